"""One job against its own past: what asks for a diagnosis, and what jobs do anyway."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from gpuwarden_verdict.diagnosis.watching import DWELL, JobWatch, Pace, Sample

BEGAN = 0.0
STEADY, HALF = 0.8, 0.4


def sample(minute: int, effort: float, **said: float | bool | None) -> Sample:
    told = {"read_bytes": 1e6, "written_bytes": 1e6, "held": True, "step_seconds": None} | said
    return Sample(at=60.0 * minute, effort=effort, **told)  # type: ignore[arg-type] # by name


def watched(efforts: Iterable[float], watch: JobWatch | None = None, start: int = 0) -> list[Pace]:
    watch = watch or JobWatch(BEGAN)
    return [watch.note(sample(start + n, effort)) for n, effort in enumerate(efforts)]


def noisy(count: int, level: float = STEADY, swing: float = 0.03) -> list[float]:
    return [level + swing * math.sin(2.3 * n) for n in range(count)]


def test_a_drop_that_lasts_is_told_after_the_dwell_and_ends_when_the_pace_is_back() -> None:
    watch = JobWatch(BEGAN)
    assert set(watched(noisy(60), watch)) <= {Pace.UNKNOWN, Pace.STEADY}
    slower = watched(noisy(10, HALF), watch, 60)
    assert slower.index(Pace.SLOWER) == DWELL - 1
    assert watch.drop is not None
    assert watch.drop.since == 60 * 60.0
    assert watch.drop.usual == pytest.approx(STEADY, rel=0.05)
    assert watched(noisy(200, HALF), watch, 70)[-1] is Pace.SLOWER  # no new usual pace
    back = watched(noisy(10), watch, 270)
    assert back.index(Pace.STEADY) == DWELL - 1
    assert watch.drop is None


@pytest.mark.parametrize(
    ("efforts", "why"),
    [
        (noisy(14) + noisy(40, HALF), "what it did while it began is no past"),
        (noisy(60) + noisy(DWELL - 1, HALF) + noisy(20), "shorter than the dwell"),
        (noisy(60) + noisy(40, STEADY * 0.9), "within what is usual"),
        (noisy(60, swing=0.25) + noisy(30, 0.62, 0.1), "a job that swings anyway"),
        (noisy(60) + [math.nan] * 30, "nothing is read: that is our trouble"),
        (noisy(60) + [HALF, STEADY] * 15, "now and then is no lasting drop"),
    ],
)
def test_what_jobs_do_anyway_is_no_drop(efforts: list[float], why: str) -> None:
    assert Pace.SLOWER not in watched(efforts), why


def test_checkpoints_loads_and_the_end_are_no_drops() -> None:
    for said in (
        {"written_bytes": 5e8},  # it saves
        {"read_bytes": 5e8},  # it loads
        {"held": False},  # it is over, or has not begun again
    ):
        watch = JobWatch(BEGAN)
        watched(noisy(60), watch)
        paces = [watch.note(sample(60 + n, 0.02, **said)) for n in range(12)]
        assert set(paces) == {Pace.RESTING}, said
        assert Pace.SLOWER not in watched(noisy(20), watch, 72)


def test_a_checkpoint_that_goes_on_for_far_too_long_is_one() -> None:
    watch = JobWatch(BEGAN)
    watched(noisy(60), watch)
    paces = [watch.note(sample(60 + n, 0.02, written_bytes=5e7)) for n in range(20)]
    assert paces.index(Pace.SLOWER) == 15
    assert watch.drop is not None
    assert "saves or loads for 16 looks" in watch.drop.words


def test_told_steps_go_before_effort() -> None:
    watch = JobWatch(BEGAN)
    for minute in range(60):
        watch.note(sample(minute, STEADY, step_seconds=2.0))
    slower = [watch.note(sample(60 + n, STEADY, step_seconds=3.0)) for n in range(8)]
    assert slower.index(Pace.SLOWER) == DWELL - 1  # GPUs look busy as ever
    assert watch.drop is not None
    assert watch.drop.measured

    watch = JobWatch(BEGAN)
    for minute in range(60):
        watch.note(sample(minute, STEADY, step_seconds=2.0))
    hung = [watch.note(sample(60 + n, STEADY)) for n in range(8)]
    assert Pace.SLOWER in hung  # it tells no step any more


def test_a_job_that_ran_before_the_server_needs_a_past_too() -> None:
    assert Pace.SLOWER not in watched(noisy(10) + noisy(8, HALF), JobWatch(None))
    assert Pace.SLOWER in watched(noisy(40) + noisy(8, HALF), JobWatch(None))
