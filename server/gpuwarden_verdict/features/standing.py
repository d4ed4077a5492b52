"""Features of what stands around an entity: its job, its rack, its switch, and its own record."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.features.making import DAY_S, column, listed, of_its_node
from gpuwarden_verdict.features.scene import Column, Look, Make, made
from gpuwarden_verdict.job_ends import JobOutcome
from gpuwarden_verdict.ledger import SEVERE_MARKS, Mark
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows.planes import F32, F64, I64, Bool
from gpuwarden_wire.metrics import EntityKind

LEAST_AGE_S = DAY_S
"""Marks of the last day are the present case: other planes tell of it, and it must not count
twice."""
MONTH_S, HALF_YEAR_S = 30 * DAY_S, 180 * DAY_S
_NEVER = "never: 0 where nothing is on record"

Troubled = Callable[[Look], Bool]
"""Entities of a kind with trouble now, shape (N,)."""


def calm_share(codes: Callable[[Look], I64], troubled: Troubled, whom: str) -> Make:
    """Share of the others of an entity's group that have no trouble now.

    The more of them have trouble, the less an entity's own trouble is its own. NaN for who has no
    group, or is alone in it.
    """

    def make(look: Look) -> F32:
        whole = look.everyone
        members, sick = whole.once(
            ("calm", whom, look.now), lambda: _counted(codes(whole), troubled(whole))
        )
        group = look.of_all(("codes", whom), codes)
        trouble = look.of_all(("trouble", whom), troubled)
        inside = group != NO_CODE
        share = np.full(group.shape, np.nan, np.float32)
        others = members[group[inside]] - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            of_others = (sick[group[inside]] - trouble[inside]) / others
        share[inside] = np.where(others > 0, 1.0 - of_others, np.nan)
        return share

    return Make(
        make,
        f"share of {whom} without trouble now",
        "not in such a group, or alone in it",
        alone=True,
    )


def _counted(group: I64, trouble: Bool) -> tuple[I64, I64]:
    """Members of each group, and how many of them have trouble."""
    inside = group != NO_CODE
    size = int(group.max(initial=-1)) + 1
    members = np.bincount(group[inside], minlength=size)
    return members, np.bincount(group[inside & trouble], minlength=size)


def jobs(look: Look) -> I64:
    """Job of each entity."""
    return look.jobs()


def racks(look: Look) -> I64:
    """Rack of each node."""
    return _places(look, "rack")


def leaves(look: Look) -> I64:
    """Leaf switch of each node."""
    return _places(look, "leaf")


def _places(look: Look, what: str) -> I64:
    def make() -> I64:
        named = {node: getattr(place, what) for node, place in look.fleet.places.items()}
        return look.fleet.memory.codes(look.view, f"{what} of {look.kind}", named)

    return look.once(("places", what), make)


@made("how long the job has run", "no job, or one that ran before this process started", alone=True)
def job_age_hours(look: Look) -> F32:
    """How long the job has run: a program's own mistakes show early, a part's at any time.

    NaN without a job, and for one that ran before this process started.
    """
    jobs = look.jobs()
    words = look.fleet.memory.words("jobs") if (jobs != NO_CODE).any() else ()
    age = np.full(jobs.shape, np.nan, np.float32)
    inside = jobs != NO_CODE
    began = np.full(len(words), np.nan)
    for code in set(jobs[inside].tolist()):
        began[code] = look.fleet.jobs_began.get(words[code], np.nan)
    age[inside] = np.maximum(look.now - began[jobs[inside]], 0.0) / 3600.0
    return age


@made(
    "jobs that failed there within a day, one of many nodes counting for less",
    "never: 0 where none is known to have failed",
)
def failed_jobs(look: Look) -> F32:
    """Of nodes: jobs that failed there within a day, one of many nodes counting for less.

    0 where none is known to have failed.
    """
    failed = np.zeros(len(look.view), np.float32)
    names = list(look.fleet.job_ends)
    rows = look.state.rows_of(EntityKind.NODE, names)
    for row, name in zip(rows.tolist(), names, strict=True):
        if row >= 0:
            newest = {end.job: end for end in look.fleet.job_ends[name]}
            ended_badly = (e for e in newest.values() if e.outcome is JobOutcome.BAD)
            failed[row] = sum(max(1, end.nodes) ** -0.5 for end in ended_badly)
    return failed


FAILED_JOBS = column("failed_jobs_24h", Plane.HISTORY, FaultClass.UNKNOWN, of_its_node(failed_jobs))


def on_record(marks: Collection[Mark], window_s: float) -> Make:
    """Marks of the part within a window, those of the last day left out; 0 where there are none."""

    def make(look: Look) -> F32:
        counted = look.ledger.counted(look.kind, marks, look.now, window_s, LEAST_AGE_S)
        return _spread(look, counted)

    said = f"on record of the part within {window_s / DAY_S:.0f} days: {_in_words(marks)}"
    return Make(make, said, _NEVER)


def fading(marks: Collection[Mark], constant_s: float) -> Make:
    """As `on_record`, each mark weighing less the older it is."""

    def make(look: Look) -> F32:
        counted = look.ledger.decayed(look.kind, marks, look.now, constant_s, LEAST_AGE_S)
        return _spread(look, counted)

    said = f"on record of the part, decayed over {constant_s / DAY_S:.0f} days: {_in_words(marks)}"
    return Make(make, said, _NEVER)


def _in_words(marks: Collection[Mark]) -> str:
    return "severe events" if marks is SEVERE_MARKS else listed(sorted(marks))


def _spread(look: Look, counted: F64) -> F32:
    whole = np.zeros(len(look.view), np.float32)
    if counted.size:
        rows = look.once(
            ("ledger", id(look.ledger)),
            lambda: look.state.rows_of(look.kind, look.ledger.keys[look.kind]),
        )
        np.add.at(whole, rows[rows >= 0], counted[rows >= 0].astype(np.float32))
    return whole


def ledger_columns(fault: FaultClass) -> tuple[Column, ...]:
    """What every kind has on record of its parts."""
    rows: tuple[tuple[str, Make], ...] = (
        ("ledger_severe_decayed_30d", fading(SEVERE_MARKS, MONTH_S)),
        ("ledger_severe_30d", on_record(SEVERE_MARKS, MONTH_S)),
        ("ledger_severe_180d", on_record(SEVERE_MARKS, HALF_YEAR_S)),
    )
    return tuple(column(name, Plane.HISTORY, fault, make) for name, make in rows)


def record_columns() -> tuple[Column, ...]:
    """What is on record of GPUs and nodes besides."""
    rows = (
        ("ledger_exclusions_180d", (Mark.EXCLUSION,)),
        ("ledger_repairs_180d", (Mark.REPAIR,)),
        ("ledger_failed_jobs_180d", (Mark.FAILED_JOB,)),
    )
    return tuple(
        column(name, Plane.HISTORY, FaultClass.UNKNOWN, on_record(marks, HALF_YEAR_S))
        for name, marks in rows
    )
