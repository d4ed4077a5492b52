from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuwarden_cli.slurm_reservations import Reservation, ReservationFault, read_reservations

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
BEGIN, END = datetime(2026, 12, 1, 8, tzinfo=UTC), datetime(2026, 12, 1, 12, tzinfo=UTC)
NODES = ("gpu-001", "gpu-002", "gpu-003", "login1")


def test_all_forms_say_the_same() -> None:
    expected = [
        Reservation("maint-r7", NODES, BEGIN.timestamp(), END.timestamp()),
        Reservation("whole", ("gpu-009",), BEGIN.timestamp(), BEGIN.timestamp() + 365 * 86_400),
    ]
    for name in ("lines.txt", "one_line.txt", "22.05.json", "23.11.json"):
        assert read_reservations((FIXTURES / f"reservations_{name}").read_text()) == expected, name


def test_times_of_text_are_of_a_zone() -> None:
    text = (FIXTURES / "reservations_one_line.txt").read_text()
    (first, _) = read_reservations(text, timezone(timedelta(hours=2)))
    assert first.starts_at == BEGIN.timestamp() - 7200


def test_none_are_none() -> None:
    assert read_reservations("No reservations in the system\n") == []
    assert read_reservations("") == []
    assert read_reservations('{"reservations": []}') == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("slurm_load_reservations error: Unable to contact", "neither text nor JSON"),
        ("ReservationName=a Flags=MAINT StartTime=x EndTime=y Nodes=n1", "reservation a"),
        (
            "ReservationName=a StartTime=2026-12-01T08:00:00 EndTime=2026-12-01T09:00:00 "
            "Nodes=(null) Flags=MAINT",
            "names no nodes",
        ),
        ('{"reservations": [{"name": "a", "flags": ["MAINT"]}]}', "--json"),
        ("{", "--json"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, named: str) -> None:
    with pytest.raises(ReservationFault, match=named):
        read_reservations(text)
