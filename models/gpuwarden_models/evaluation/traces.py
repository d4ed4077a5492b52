"""What a scorer showed of incidents and of the healthy: all that any threshold needs later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.flags import QUIET_S, Flag
from gpuwarden_models.evaluation.ground import DAY_S, Ground, Incident
from gpuwarden_verdict.entities import FaultClass

LOOK_S = 600.0
"""Whoever is compared looks so often, no oftener: each look more is a chance more to be right, and
to be wrong."""

MOST_KEPT = 3000
"""False alarms that are kept, highest first: budgets allow far fewer."""

SLACK_S = 1.0
"""A reading that comes a little before its time is of the look that it was due for."""

Climb = tuple[float, float, float]
"""When a score rose, from what height, and to which: a fresh alarm at any threshold between."""


@dataclass(frozen=True, slots=True)
class IncidentTrace:
    """One incident as a scorer saw it.

    Attributes:
        incident: The incident.
        climbs: Each rise between its precursor and its end, earliest first.
        line_at: First kernel line that acts alone, epoch seconds; None for none.
        covered: Height of an alarm that stood when it came, rightly, for an earlier fault: at
            thresholds up to it nothing was left to find. 0 for none.
    """

    incident: Incident
    climbs: tuple[Climb, ...]
    line_at: float | None = None
    covered: float = 0.0

    def first_alarm(self, threshold: float) -> float | None:
        """When the score first rose to the threshold from below; None never."""
        return next((at for at, below, to in self.climbs if below < threshold <= to), None)


@dataclass(frozen=True, slots=True)
class Trace:
    """A scorer on one recording.

    Attributes:
        incidents: All of them.
        false: Highest score of each entity and day that no fault explains, highest first.
        fleet_days: Days at risk of 500 healthy GPUs.
    """

    incidents: tuple[IncidentTrace, ...]
    false: tuple[float, ...]
    fleet_days: float


def look_of(at: float, start: float) -> int:
    """Number of the look that a moment belongs to, from 0."""
    return int((at - start + SLACK_S) // LOOK_S)


@dataclass(frozen=True, slots=True, eq=False)
class Alarms:
    """Scores of entities over time, an entity's together.

    Attributes:
        entity: Index into the ground's names, rising, shape (N,).
        at: Epoch seconds, shape (N,).
        score: Higher is graver; 0 or less is no alarm, shape (N,).
    """

    entity: NDArray[np.int64]
    at: NDArray[np.float64]
    score: NDArray[np.float64]


def alarms_of(entity: Sequence[int], at: Sequence[float], score: Sequence[float]) -> Alarms:
    """Alarms in any order."""
    who = np.array(entity, np.int64)
    order = np.argsort(who, kind="stable")
    return Alarms(who[order], np.array(at)[order], np.array(score, np.float64)[order])


def trace_alarms(ground: Ground, alarms: Alarms) -> Trace:
    """Keep what any threshold needs.

    A repeated alarm of an entity within a day (of the recording) is one false alarm.
    """
    wrong = ~ground.right(alarms.entity, alarms.at) & (alarms.score > 0)
    days = int((ground.end - ground.start) // DAY_S) + 1
    day = np.clip(((alarms.at[wrong] - ground.start) // DAY_S).astype(np.int64), 0, days - 1)
    highest = np.zeros(len(ground.names) * days)
    np.maximum.at(highest, alarms.entity[wrong] * days + day, alarms.score[wrong])
    false = np.sort(highest[highest > 0])[::-1][:MOST_KEPT]
    traces = tuple(
        IncidentTrace(incident, _climbs(alarms, incident, sorted(concerned)))
        for incident, concerned in zip(ground.incidents, ground.concerned, strict=True)
    )
    return Trace(traces, tuple(false.tolist()), ground.healthy_fleet_days)


def _climbs(alarms: Alarms, incident: Incident, concerned: Sequence[int]) -> tuple[Climb, ...]:
    found: list[Climb] = []
    for number in concerned:
        first, last = np.searchsorted(alarms.entity, (number, number + 1)).tolist()
        found += _rises(alarms.at[first:last], alarms.score[first:last], incident)
    return fresh(found)


def _rises(
    at: NDArray[np.float64], score: NDArray[np.float64], incident: Incident
) -> Iterator[Climb]:
    """Rises of one entity within a fault, above the highest that it showed shortly before each."""
    order = np.argsort(at, kind="stable")
    at, score = at[order], score[order]
    begin = int(np.searchsorted(at, incident.precursor_start))
    since = np.searchsorted(at, at - QUIET_S)
    for row in range(begin, int(np.searchsorted(at, incident.end))):
        before = max(0.0, float(score[since[row] : row].max(initial=0.0)))
        if score[row] > before:
            yield float(at[row]), before, float(score[row])


def fresh(climbs: Iterable[Climb]) -> tuple[Climb, ...]:
    """In order of time, without those that add nothing to one before."""
    kept: list[Climb] = []
    for one in sorted(climbs):
        if not any(old[1] <= one[1] and one[2] <= old[2] for old in kept):
            kept.append(one)
    return tuple(kept)


SUSPECT, EXCLUDED = 1.0, 2.0
"""Scores of a whole-system trace: shown as suspect, excluded by the policy."""


def trace_flags(ground: Ground, flags: Sequence[Flag]) -> Trace:
    """The whole system as a scorer of two heights; a flag that stands is one alarm.

    A flag that began where no fault explains it is false, however long it stands. One that was
    right when it began, and led to an exclusion once the fault was over, excluded wrongly.
    """
    numbers = {(name.kind, name.entity): place for place, name in enumerate(ground.names)}
    found = [(numbers[flag.name.kind, flag.name.entity], flag) for flag in flags]
    heights = (_false_height(ground, number, flag) for number, flag in found)
    false = sorted((height for height in heights if height > 0), reverse=True)
    traces = []
    for incident, concerned in zip(ground.incidents, ground.concerned, strict=True):
        own = [(number, flag) for number, flag in found if number in concerned]
        covered = max((_covers(ground, n, flag, incident) for n, flag in own), default=0.0)
        climbs = _flag_climbs(incident, [flag for _, flag in own])
        traces.append(IncidentTrace(incident, climbs, covered=covered))
    return Trace(tuple(traces), tuple(false[:MOST_KEPT]), ground.healthy_fleet_days)


PLACES = frozenset({"mount", "fabric", "rack", "power", "job"})
"""Kinds that are shown and never excluded."""
_NOBODYS = frozenset({FaultClass.APPLICATION, FaultClass.OPERATOR})


def shown_counts(trace: Trace) -> Trace:
    """The trace with a place's fault found where it is shown: nobody can exclude a place."""

    def risen(one: IncidentTrace) -> IncidentTrace:
        if one.incident.kind not in PLACES:
            return one
        climbs = fresh([(at, 0.0, EXCLUDED) for at, _, _ in one.climbs])
        covered = EXCLUDED if one.covered > 0 else 0.0
        return replace(one, climbs=climbs, covered=covered)

    return replace(trace, incidents=tuple(map(risen, trace.incidents)))


def _acquits(flag: Flag) -> bool:
    """Whether it says of a job or place that a program or a person did it: that blames nobody."""
    return flag.name.kind in PLACES and flag.fault_class in _NOBODYS


def _false_height(ground: Ground, number: int, flag: Flag) -> float:
    if _acquits(flag):
        return 0.0
    excluded = flag.first_excluded_at
    if excluded is not None and not ground.is_right(number, excluded):
        return EXCLUDED
    return 0.0 if ground.is_right(number, flag.first_flagged_at) else SUSPECT


def _covers(ground: Ground, number: int, flag: Flag, incident: Incident) -> float:
    """How high a flag stood when a fault began, where it began rightly for an earlier one."""
    begin, excluded = incident.precursor_start, flag.first_excluded_at
    stood = flag.first_flagged_at < begin <= flag.last_flagged_at
    if not (stood and ground.is_right(number, flag.first_flagged_at)):
        return 0.0
    if excluded is not None and excluded < begin and ground.is_right(number, excluded):
        return EXCLUDED
    return SUSPECT


def _flag_climbs(incident: Incident, flags: Sequence[Flag]) -> tuple[Climb, ...]:
    """What began within the fault: of a flag that stood before, only that it then excluded."""
    climbs: list[Climb] = []
    for one in flags:
        suspect, excluded = one.first_flagged_at, one.first_excluded_at
        if incident.precursor_start <= suspect < incident.end:
            climbs.append((suspect, 0.0, SUSPECT))
        if excluded is not None and incident.precursor_start <= excluded < incident.end:
            climbs.append((excluded, 0.0 if excluded == suspect else SUSPECT, EXCLUDED))
    return fresh(climbs)
