"""Ends of jobs weigh, and never decide."""

from __future__ import annotations

from dataclasses import replace

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.failed_jobs import FailedJobsDetector
from gpuwarden_verdict.entities import EntityRef, Rung, Severity
from gpuwarden_verdict.job_ends import WINDOW_S, EndBook, JobEnd, JobOutcome, tally_of, told_end
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

NOW = 1_000_000.0
NODE = EntityRef(EntityKind.NODE, "n1", "n1")
DETECTOR = FailedJobsDetector()


def end(number: int, state: str = "FAILED", **changes: object) -> JobEnd:
    made = JobEnd(f"slurm:{number}", state, 1, f"user-{number % 3}", NOW - 100.0 + number)
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of JobEnd by name


def signals(*ends: JobEnd, silent: bool = False) -> list[str]:
    fleet = FleetContext(job_ends={"n1": ends}, silent_nodes=frozenset({"n1"} if silent else ()))
    found = DETECTOR.detect(FleetState(), fleet, NOW)
    assert all(one.max_rung is Rung.SUSPECT and one.severity is Severity.WARNING for one in found)
    return [one.sentence for one in found]


def test_bad_ends_of_several_jobs_of_several_users_are_worth_a_word() -> None:
    (sentence,) = signals(end(1), end(2), end(3))
    assert sentence == (
        "3 jobs of 3 users ended badly on n1 within a day and 0 ended well: "
        "slurm:1 FAILED (exit code 1), slurm:2 FAILED (exit code 1), slurm:3 FAILED (exit code 1)"
    )


def test_what_a_person_a_limit_or_one_user_did_is_not() -> None:
    assert not signals(end(1), end(2))
    assert not signals(*(end(n, user="ann") for n in range(9)))
    assert not signals(*(end(n, "CANCELLED") for n in range(9)))
    assert not signals(*(end(n, "TIMEOUT") for n in range(9)))
    assert not signals(*(end(1) for _ in range(9))), "the same job, told nine times"
    assert not signals(end(1), end(2), end(3), silent=True)
    assert not signals(*(end(n, at=NOW - WINDOW_S - n) for n in range(9)))


def test_a_job_of_many_nodes_says_little_of_each_and_success_lowers() -> None:
    assert not signals(*(end(n, nodes=64) for n in range(3)))
    assert tally_of([end(n, nodes=64) for n in range(3)], NOW).score < 0.1
    bad = [end(n) for n in range(4)]
    with_good = tally_of([*bad, *(end(n, "COMPLETED") for n in range(10, 13))], NOW)
    assert 0.0 < with_good.score < tally_of(bad, NOW).score
    all_well = [*bad, *(end(n, "COMPLETED") for n in range(10, 30))]
    assert not signals(*all_well)
    fleet = FleetContext(job_ends={"n1": tuple(all_well)})
    assert [r.entity for r in DETECTOR.clears(FleetState(), fleet, [NODE], NOW)] == [NODE]
    still = FleetContext(job_ends={"n1": tuple(bad)})
    assert not DETECTOR.clears(FleetState(), still, [NODE], NOW)


def test_the_book_shows_nodes_where_one_went_badly_and_forgets() -> None:
    book = EndBook()
    book.note("n1", end(1))
    book.note("n1", end(1))
    book.note("n2", end(2, "COMPLETED"))
    assert book.shown(NOW) == {"n1": (end(1),)}
    assert book.shown(NOW) is book.shown(NOW)
    assert book.shown(NOW + WINDOW_S) == {}


def test_the_event_says_it_all_and_an_unknown_word_says_nothing() -> None:
    said: dict[str, str | int] = {
        "job": "slurm:1",
        "state": "failed",
        "exit_code": 9,
        "user": "ann",
        "nodes": 2,
    }
    event = Event(id="x", kind=EventKind.JOB_ENDED, observed_at=5.0, attributes=said)
    assert told_end(event) == JobEnd("slurm:1", "FAILED", 9, "ann", 5.0, 2)
    strange = Event(id="x", kind=EventKind.JOB_ENDED, observed_at=5.0, attributes={"job": "x:1"})
    told = told_end(strange)
    assert told is not None
    assert told.outcome is JobOutcome.NEUTRAL
    assert told_end(Event(id="x", kind=EventKind.JOB_ENDED, observed_at=5.0)) is None
    assert told_end(Event(id="x", kind=EventKind.CHECK_PASSED, observed_at=5.0)) is None


def test_one_users_program_that_is_started_again_counts_twice_at_most() -> None:
    again = [end(n, user="ann", nodes=4) for n in range(8)]
    assert signals(*(end(n, nodes=4) for n in range(8)))
    assert not signals(*again, end(9, user="bob", nodes=4))
    assert tally_of(again, NOW).score == tally_of(again[:2], NOW).score
    nobody = [end(n, user="") for n in range(8)]
    assert tally_of(nobody, NOW).score > tally_of(nobody[:2], NOW).score


def test_jobs_that_end_badly_on_many_nodes_at_once_blame_none_of_them() -> None:
    ends = (end(1), end(2), end(3))
    state = FleetState()
    for number in range(8):
        state.register(EntityRef(EntityKind.NODE, f"n{number}", f"n{number}"))
    told = [
        len(DETECTOR.detect(state, FleetContext(job_ends=dict.fromkeys(nodes, ends)), NOW))
        for nodes in (["n0"], ["n0", "n1"], ["n0", "n1", "n2"])
    ]
    assert told == [1, 2, 0]
