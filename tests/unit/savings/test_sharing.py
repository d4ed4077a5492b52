"""One failure of a job is saved once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.savings import Assumptions, Facts, Outcome, cost_of, counted_once, totals_of

NOW = 100_000.0
ASSUMED = Assumptions(hang_s=1800.0, restart_s=360.0)
WINDOW_S = ASSUMED.hang_s + ASSUMED.restart_s
JOB = frozenset({"slurm:1"})
ONE_H = 64 * WINDOW_S / 3600.0


def facts(number: int, **said: Any) -> Facts:
    made = Facts(
        *(f"dec-{number}", "n1", FaultClass.NVLINK, Rung.EXCLUDE, True, 1000.0, 2000.0, 1, 64),
        outcome=Outcome.RIGHT,
        incident_id=f"inc-{number}",
        jobs=JOB,
    )
    return replace(made, **said)


def saved(*found: Facts) -> float:
    entries = [(one, cost_of(one, ASSUMED, NOW)) for one in found]
    counted = counted_once(entries, WINDOW_S)
    assert [one for one, _ in counted] == list(found), "the same decisions in the same order"
    return totals_of(counted).saved_gpu_hours


def test_eight_gpus_of_one_job_save_it_once() -> None:
    assert saved(*(facts(number) for number in range(8))) == pytest.approx(ONE_H)


def test_nodes_of_one_job_that_go_together_save_it_once() -> None:
    assert saved(facts(0), facts(1, node_id="n2", begun_at=1000.0 + WINDOW_S)) == ONE_H


@pytest.mark.parametrize(
    "other",
    [
        {"begun_at": 1001.0 + WINDOW_S},
        {"jobs": frozenset({"slurm:2"})},
        {"jobs": frozenset(), "node_id": "n2"},
    ],
)
def test_another_failure_is_another_saving(other: dict[str, Any]) -> None:
    assert saved(facts(0), facts(1, **other)) == pytest.approx(2 * ONE_H)


def test_one_incident_is_one_failure_however_often_its_part_went_out() -> None:
    flaps = [facts(n, incident_id="inc-1", begun_at=1000.0 + n * 9000.0) for n in range(5)]
    assert saved(*flaps) == pytest.approx(ONE_H)


def test_without_a_known_job_a_node_has_one() -> None:
    assert saved(facts(0, jobs=frozenset()), facts(1)) == pytest.approx(ONE_H)


def test_the_greatest_that_was_right_stands_and_what_was_wrong_adds_up() -> None:
    small, great = facts(0, job_gpus=8), facts(1)
    waits = facts(2, outcome=Outcome.UNSETTLED, job_gpus=512)
    wrong = [facts(n, outcome=Outcome.WRONG) for n in (3, 4)]
    found = (small, great, waits, *wrong)
    counted = counted_once([(one, cost_of(one, ASSUMED, NOW)) for one in found], WINDOW_S)
    sums = totals_of(counted)
    assert sums.saved_gpu_hours == pytest.approx(ONE_H)
    assert (sums.right, sums.wrong, sums.unsettled) == (2, 2, 1)
    assert sums.open_saved_gpu_hours == 0.0
    assert sums.lost_gpu_hours == pytest.approx(2 * 1000.0 / 3600.0)
    assert "counts with dec-1" in counted[0][1].says[-1]


def test_what_would_have_been_is_counted_apart() -> None:
    assert saved(facts(0), facts(1, acted=False)) == pytest.approx(2 * ONE_H)
