"""Times that a node was out, put together from its decisions."""

from __future__ import annotations

from gpuwarden_server.savings.repository import Span
from gpuwarden_server.savings.sizing import stays_of
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.evaluate import EntityCase
from tests.builders.cases import GPU, incident, made

DECISION = made(EntityCase(GPU, (incident(),)))


def span(begun_at: float, ended_at: float | None) -> Span:
    return Span(DECISION, True, Rung.EXCLUDE, begun_at, ended_at)


def test_what_overlaps_is_one_stay() -> None:
    spans = [span(50.0, 60.0), span(10.0, 20.0), span(15.0, 30.0), span(16.0, 18.0)]
    assert stays_of(spans) == [(10.0, 30.0), (50.0, 60.0)]


def test_a_stay_that_goes_on_takes_in_all_that_comes_after() -> None:
    assert stays_of([span(10.0, None), span(20.0, 30.0)]) == [(10.0, None)]
    assert stays_of([span(10.0, 20.0), span(15.0, None), span(40.0, 50.0)]) == [(10.0, None)]
    assert stays_of([]) == []
