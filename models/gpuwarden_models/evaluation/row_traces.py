"""Scorers of rows over the features of a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.naming import Name, name_of
from gpuwarden_models.evaluation.ground import Ground
from gpuwarden_models.evaluation.scorers import Scorers
from gpuwarden_models.evaluation.traces import (
    LOOK_S,
    SLACK_S,
    Alarms,
    Climb,
    IncidentTrace,
    Trace,
    fresh,
    trace_alarms,
)
from gpuwarden_models.feature_cache import FeatureCache, KindRows

SURE = 10.0
"""Score of what the rules exclude, beside learnt scores that never pass 1."""


def trace_rows(cache: FeatureCache, scorers: Scorers) -> Trace:
    """Scores of all rows of all kinds against the truth, one row an entity and look.

    Rows of young windows lie closer together: more looks than rule sets have.

    Args:
        cache: Features of a recording.
        scorers: By kind; a kind without one raises no alarm.
    """
    places: dict[Name, int] = {}
    entity, at, score = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
    for kind, rows in cache.kinds.items():
        # Ports of one adapter share its name, and so its alarms.
        named = [places.setdefault(name_of(ref), len(places)) for ref in rows.refs]
        if kind in scorers and rows.at.size:
            chosen = _at_looks(rows, cache.facts.start)
            entity.append(np.array(named, np.int64)[rows.entity[chosen]])
            at.append(rows.at[chosen])
            score.append(scorers[kind](rows.matrix[chosen]))
    ground = Ground(tuple(places), cache.labels, {}, cache.facts.start, cache.facts.end)
    who = np.concatenate(entity)
    order = np.argsort(who, kind="stable")
    alarms = Alarms(who[order], np.concatenate(at)[order], np.concatenate(score)[order])
    return trace_alarms(ground, alarms)


def _at_looks(rows: KindRows, start: float) -> NDArray[np.int64]:
    """The first row of each entity in each look, in order."""
    look = ((rows.at - start + SLACK_S) // LOOK_S).astype(np.int64)
    new = np.ones(look.size, np.bool_)
    new[1:] = (np.diff(rows.entity) != 0) | (np.diff(look) != 0)
    found: NDArray[np.int64] = np.flatnonzero(new)
    return found


def joined(score: Trace, rules: Trace, excluded: float) -> Trace:
    """A learnt score with a floor: what rules exclude is sure, whatever the score says.

    Args:
        score: Of rows.
        rules: Of the same recording.
        excluded: Height from which the rules exclude.
    """
    by_rules = defaultdict(list)
    for one in rules.incidents:
        by_rules[_key(one)].append(one)
    incidents = tuple(
        IncidentTrace(one.incident, _climbs([one, *_lifted(by_rules[_key(one)], excluded)]))
        for one in score.incidents
    )
    floor = tuple(SURE for height in rules.false if height >= excluded)
    return Trace(incidents, (*floor, *score.false), score.fleet_days)


def _key(one: IncidentTrace) -> tuple[str, str, float]:
    return one.incident.kind, one.incident.entity, one.incident.start


def _lifted(ruled: Sequence[IncidentTrace], excluded: float) -> list[IncidentTrace]:
    firsts = [(one.incident, one.first_alarm(excluded)) for one in ruled]
    return [IncidentTrace(who, ((at, 0.0, SURE),)) for who, at in firsts if at is not None]


def _climbs(traces: Sequence[IncidentTrace]) -> tuple[Climb, ...]:
    return fresh(climb for one in traces for climb in one.climbs)
