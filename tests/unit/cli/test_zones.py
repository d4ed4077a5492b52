from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gpuwarden_cli.commands.kernel_log import parse_zone
from gpuwarden_cli.exits import CommandError

SUMMER = datetime(2026, 7, 1)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("UTC", 0.0), ("+01:00", 1.0), ("-0330", -3.5), ("Europe/Berlin", 2.0)],
)
def test_zone(text: str, hours: float) -> None:
    assert parse_zone(text).utcoffset(SUMMER) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "Nowhere/Land", "+99:00", "../etc/passwd", "1"])
def test_no_zone_is_named(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_zone(text)
    assert repr(text) in str(caught.value)
