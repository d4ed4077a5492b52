from __future__ import annotations

import json
from typing import Any

import pytest

from gpuwarden_server.notifications.document import SilenceUse
from gpuwarden_server.notifications.quiet.domain import Silence, SilenceKind
from gpuwarden_server.notifications.quiet.foreign import own_silence, read_silences

NOW = 1_800_000_000.0
LABELS = {"node": "gpu-01", "entity": "GPU-7", "entity_kind": "gpu", "rack": "r7", "pool": "a*"}


def matcher(name: str, value: str, regex: bool = False, equal: bool = True) -> dict[str, Any]:
    return {"name": name, "value": value, "isRegex": regex, "isEqual": equal}


def taken(*matchers: dict[str, Any], use: SilenceUse = SilenceUse.MAINTENANCE) -> Silence | None:
    told = {
        "id": "3f0b2f52-1d0c-4c0e-8f5c-0d9a3e9a1b11",
        "status": {"state": "active"},
        "updatedAt": "2027-01-15T07:59:00.123Z",
        "comment": "new switches",
        "createdBy": "ana",
        "startsAt": "2027-01-15T07:59:00.123Z",
        "endsAt": "2027-01-15T10:00:00.000+01:00",
        "matchers": list(matchers),
    }
    (foreign,) = read_silences(json.dumps([told]).encode())
    return own_silence(foreign, "am", use, NOW)


def test_a_silence_that_names_nodes_is_a_maintenance_window() -> None:
    silence = taken(matcher("alertname", "Gpuwarden.*", regex=True), matcher("node", "gpu-01"))
    assert silence is not None
    assert silence.kind is SilenceKind.MAINTENANCE
    assert silence.author == "alertmanager am"
    assert silence.reason == "ana: new switches"
    assert (silence.starts_at, silence.ends_at) == (NOW - 59.877, NOW + 3600.0)
    assert silence.covers(LABELS, NOW)
    assert not silence.covers(LABELS | {"node": "gpu-02"}, NOW)
    again = taken(matcher("node", "gpu-01"))
    assert again is not None
    assert again.id == silence.id, "the same one each time it is read"


@pytest.mark.parametrize(
    ("matchers", "kind", "covers"),
    [
        ([matcher("rack", "r7|r8", regex=True)], SilenceKind.MAINTENANCE, True),
        ([matcher("node", "gpu-0[2-9]", regex=True)], SilenceKind.MAINTENANCE, False),
        ([matcher("pool", "a*")], SilenceKind.MAINTENANCE, True),
        ([matcher("pool", "ab")], SilenceKind.MAINTENANCE, False),
        ([matcher("gpu_uuid", "GPU-7")], SilenceKind.SILENCE, True),
        ([matcher("node", "gpu-01"), matcher("severity", "warning")], SilenceKind.SILENCE, False),
        ([matcher("alertname", "GpuwardenIncident")], SilenceKind.SILENCE, True),
        ([matcher("node", ".*", regex=True)], SilenceKind.SILENCE, True),
        ([matcher("node", "gpu-02", equal=False)], SilenceKind.SILENCE, True),
        ([matcher("rack", "", equal=False)], SilenceKind.MAINTENANCE, True),
        ([matcher("maintainer", "")], SilenceKind.SILENCE, True),
        ([matcher("instance", "gpu-01:9100")], SilenceKind.MAINTENANCE, False),
    ],
)
def test_what_it_holds_for(matchers: list[Any], kind: SilenceKind, covers: bool) -> None:
    silence = taken(*matchers)
    assert silence is not None
    assert (silence.kind, silence.covers(LABELS, NOW)) == (kind, covers)


def test_silences_of_other_alerts_are_none_of_ours() -> None:
    assert taken(matcher("alertname", "NodeDown"), matcher("node", "gpu-01")) is None
    assert taken(matcher("service", "gpuwarden", equal=False)) is None


def test_they_may_be_taken_as_mere_silences() -> None:
    silence = taken(matcher("node", "gpu-01"), use=SilenceUse.SILENCE)
    assert silence is not None
    assert silence.kind is SilenceKind.SILENCE


def test_what_cannot_be_held_is_refused() -> None:
    with pytest.raises(ValueError, match="a group is repeated"):
        taken(matcher("node", "(gpu-)+", regex=True))
    for text in (b"", b"{}", b'[{"id": 1}]', b"<html>"):
        with pytest.raises(ValueError, match="no list of silences"):
            read_silences(text)
