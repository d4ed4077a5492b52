"""A person's clear: what was known stays put aside, what is new does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_verdict.entities import FaultClass, Severity
from gpuwarden_verdict.incidents.behind import place_signal
from gpuwarden_verdict.incidents.clearing import GAP_S, Clearance, clear
from gpuwarden_verdict.incidents.domain import IncidentPhase
from gpuwarden_verdict.incidents.lifecycle import LifecycleError
from gpuwarden_verdict.places import PlaceKind, place_ref
from tests.builders.cases import incident, item
from tests.builders.verdict import START

READING = replace(
    place_signal(place_ref(PlaceKind.RACK, "r"), "d", FaultClass.THERMAL, "hot", {}, START),
    score=0.5,
    severity=Severity.ERROR,
)
KNOWN = Clearance(READING.entity, "d", Severity.ERROR, 0.5, START, START)


def test_a_clear_closes_and_knows_every_piece_of_evidence() -> None:
    opened = incident(
        READING.entity, item(detector="a", score=0.3), item(detector="b", severity=Severity.WARNING)
    )
    move, known = clear(opened, "ann", "reseated", START + 5)
    assert (move.incident.phase, move.reason, move.author) == (
        *(IncidentPhase.RESOLVED, "cleared: reseated"),
        "ann",
    )
    assert [(one.detector, one.score, one.at) for one in known] == [
        *(("a", 0.3, START + 5), ("b", 0.95, START + 5))
    ]
    with pytest.raises(LifecycleError):
        clear(move.incident, "ann", "again", START + 6)


def test_a_reading_that_goes_on_is_known_and_a_graver_or_a_new_one_is_not() -> None:
    assert KNOWN.covers(READING, START + GAP_S)
    assert not KNOWN.covers(READING, START + GAP_S + 1), "it was gone and is back"
    assert not KNOWN.covers(replace(READING, severity=Severity.CRITICAL), START + 1)
    assert not KNOWN.covers(replace(READING, score=0.7), START + 1)


def test_an_event_is_new_when_it_happened_after_the_word() -> None:
    old = replace(READING, event_ids=("e",), observed_at=START - 1)
    assert KNOWN.covers(old, START + 10 * GAP_S)
    assert not KNOWN.covers(replace(old, observed_at=START + 1), START + 2)
