"""What a scorer showed of incidents and of the healthy: all that any threshold needs later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.evaluation.ground import DAY_S, Ground, Incident
from gpuwarden_verdict.entities import Rung

MOST_KEPT = 3000
"""False alarms that are kept, highest first: budgets allow far fewer."""

Climb = tuple[float, float]
"""When a score was first so high, and how high."""


@dataclass(frozen=True, slots=True)
class IncidentTrace:
    """One incident as a scorer saw it.

    Attributes:
        incident: The incident.
        climbs: Each new height between its precursor and its end, earliest first.
        line_at: First kernel line that acts alone, epoch seconds; None for none.
    """

    incident: Incident
    climbs: tuple[Climb, ...]
    line_at: float | None = None

    def first_alarm(self, threshold: float) -> float | None:
        """When the score first reached the threshold; None never."""
        return next((at for at, score in self.climbs if score >= threshold), None)


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
    spans = [np.searchsorted(alarms.entity, (number, number + 1)) for number in concerned]
    rows = np.concatenate([np.empty(0, np.int64), *(np.arange(*span) for span in spans)])
    rows = rows[alarms.score[rows] > 0]
    at = alarms.at[rows]
    rows = rows[(at >= incident.precursor_start) & (at < incident.end)]
    rows = rows[np.argsort(alarms.at[rows], kind="stable")]
    score = alarms.score[rows]
    before = np.concatenate([[0.0], np.maximum.accumulate(score)[:-1]]) if score.size else score
    new = score > before
    return tuple(zip(alarms.at[rows][new].tolist(), score[new].tolist(), strict=True))


SUSPECT, EXCLUDED = 1.0, 2.0
"""Scores of a whole-system trace: shown as suspect, excluded by the policy."""


def trace_flags(ground: Ground, flags: Sequence[Flag]) -> Trace:
    """The whole system as a scorer of two heights; a flag that stands is one alarm."""
    numbers = {(name.kind, name.entity): place for place, name in enumerate(ground.names)}
    found = [(numbers[flag.name.kind, flag.name.entity], flag) for flag in flags]
    false = sorted(
        (
            EXCLUDED if flag.rung >= Rung.EXCLUDE else SUSPECT
            for number, flag in found
            if not ground.is_right(number, flag.first_flagged_at, flag.last_flagged_at)
        ),
        reverse=True,
    )
    traces = []
    for incident, concerned in zip(ground.incidents, ground.concerned, strict=True):
        own = [flag for number, flag in found if number in concerned]
        traces.append(IncidentTrace(incident, _flag_climbs(incident, own)))
    return Trace(tuple(traces), tuple(false[:MOST_KEPT]), ground.healthy_fleet_days)


def _flag_climbs(incident: Incident, flags: Sequence[Flag]) -> tuple[Climb, ...]:
    begin = incident.precursor_start
    live = [one for one in flags if one.first_flagged_at < incident.end]
    live = [one for one in live if one.last_flagged_at >= begin]
    suspect = min((max(one.first_flagged_at, begin) for one in live), default=None)
    excluded = min(
        (max(one.first_excluded_at, begin) for one in live if one.first_excluded_at is not None),
        default=None,
    )
    if excluded is not None and excluded < incident.end:
        if suspect is not None and suspect < excluded:
            return (suspect, SUSPECT), (excluded, EXCLUDED)
        return ((excluded, EXCLUDED),)
    return () if suspect is None else ((suspect, SUSPECT),)
