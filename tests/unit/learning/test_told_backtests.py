"""A backtest that is told counts only where it is of this model and of this fleet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.learning.shadow.backtests import ToldBacktest, refuse_foreign, taught_by
from tests.builders.simulated import shipped_files

OURS, TAUGHT = "a" * 64, "b" * 64
FLEET = frozenset(f"GPU-{number}" for number in range(20))
TOLD = ToldBacktest("v1", OURS, 60_000.0, 0, 0.8, FLEET, origin="", recording_digest="c" * 64)


def test_a_backtest_of_this_fleet_and_model_is_taken() -> None:
    refuse_foreign(TOLD, OURS, {TAUGHT}, FLEET)
    refuse_foreign(replace(TOLD, recording_digest=""), OURS, {TAUGHT}, FLEET)
    replaced = FLEET - {"GPU-0", "GPU-1"}
    refuse_foreign(TOLD, OURS, {TAUGHT}, replaced)


@pytest.mark.parametrize(
    ("told", "known", "why"),
    [
        (replace(TOLD, digest="d" * 64), FLEET, "not the v1 of this server"),
        (replace(TOLD, origin="simulated"), FLEET, "simulated"),
        (replace(TOLD, recording_digest=TAUGHT), FLEET, "taught v1"),
        (TOLD, FLEET - {"GPU-0", "GPU-1", "GPU-2"}, "3 of 20 entities"),
        (TOLD, frozenset(), "20 of 20 entities"),
    ],
)
def test_another_model_fleet_or_lesson_is_refused(
    told: ToldBacktest, known: frozenset[str], why: str
) -> None:
    with pytest.raises(ProblemError, match=why) as refused:
        refuse_foreign(told, OURS, {TAUGHT}, known)
    assert refused.value.status == 409


def test_what_taught_a_model_stands_in_its_metrics() -> None:
    files = shipped_files()
    recordings = json.loads(files["metrics.json"])["trained_on"]["recordings"]
    assert taught_by(files) == {one["digest"] for one in recordings} != set()
    assert taught_by({}) == taught_by({"metrics.json": b"{"}) == frozenset()
    assert taught_by({"metrics.json": b'{"trained_on": {"rows": 3}}'}) == frozenset()
