"""All scorers at the same budget, on the same recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwarden_models.evaluation.budgets import (
    EXCLUSION_BUDGET,
    Operating,
    operating,
    threshold_for,
)
from gpuwarden_models.evaluation.comparison import (
    IN_SAMPLE,
    LOGISTIC,
    RETRAINED,
    SHIPPED,
    SINGLE,
    Scored,
)
from gpuwarden_models.evaluation.playing import ABSENCE, CATALOGUE, OPEN_RULES
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.sets import Use
from gpuwarden_models.evaluation.traces import IncidentTrace, Trace

ORACLE = "oracle (knows the faults)"
FLOORED, FLOORED_RETRAINED = "rules + learnt score (shipped)", "rules + learnt score (retrained)"
BASELINES = (CATALOGUE, OPEN_RULES, ABSENCE, LOGISTIC, SINGLE)
FUSIONS = (FLOORED, FLOORED_RETRAINED)

_STEPS = {
    "score-shipped": SHIPPED,
    "score-retrained": RETRAINED,
    "score-logistic": LOGISTIC,
    "score-single": SINGLE,
    "score-in-sample": IN_SAMPLE,
}


@dataclass(frozen=True, slots=True)
class Contest:
    """Scorers on one set.

    Attributes:
        group: The set.
        budget: False alarms a day on 500 GPUs that each was tuned to, on the tuning recordings.
        entrants: Each scorer's figures.
    """

    group: str
    budget: float
    entrants: Mapping[str, Operating]

    @property
    def best_baseline(self) -> tuple[str, float]:
        """The baseline that finds most, and its recall."""
        found = {name: self.entrants[name].recall for name in BASELINES if name in self.entrants}
        return max(found.items(), key=lambda one: one[1])

    @property
    def best_fusion(self) -> tuple[str, float] | None:
        """Rules with the shipped scores, else with retrained ones; None without either."""
        for name in FUSIONS:
            if name in self.entrants:
                return name, self.entrants[name].recall
        return None


def contests(results: Results, budget: float) -> list[Contest]:
    """Every set with features that holds faults.

    Args:
        results: Finished steps.
        budget: False alarms a day on 500 GPUs.
    """
    scored = {
        name: found for step, name in _STEPS.items() if (found := results.scored(step)) is not None
    }
    tuned = results.names(Use.TUNE)
    told: list[Contest] = []
    for group, some in results.groups(Use.TEST).items():
        names = [one.name for one in some if one.rows]
        if not names:
            continue
        entrants = _entrants(results, scored, tuned, names, budget)
        if entrants[ORACLE].incidents:
            told.append(Contest(group, budget, entrants))
    return told


def _entrants(
    results: Results,
    scored: Mapping[str, Scored],
    tuned: Sequence[str],
    names: Sequence[str],
    budget: float,
) -> dict[str, Operating]:
    seed = results.options.seed
    entrants: dict[str, Operating] = {}
    own = {name: _traces(one, budget) for name, one in scored.items()}
    for floored, name in ((FLOORED, SHIPPED), (FLOORED_RETRAINED, RETRAINED)):
        if name in own:
            limit = threshold_for(results.with_floor(own[name], tuned), budget)
            # What rules exclude stays excluded, even where they alone overspend the budget.
            limit = min(limit, 1.5)
            entrants[floored] = operating(results.with_floor(own[name], names), limit, seed)
    for name, traces in own.items():
        limit = threshold_for([traces[place] for place in tuned], budget)
        entrants[name] = operating([traces[place] for place in names], limit, seed)
    for rules in (CATALOGUE, OPEN_RULES, ABSENCE):
        entrants[rules] = operating(results.baseline(rules, names, budget), 1.0, seed)
    oracle = [_oracle(results.played(name).system) for name in names]
    entrants[ORACLE] = operating(oracle, 1.0, seed)
    return entrants


def _traces(scored: Scored, budget: float) -> Mapping[str, Trace]:
    """For exclusion what ships needs several planes, as its gate asks; for advice it does not."""
    return scored.supported or scored.traces if budget <= EXCLUSION_BUDGET else scored.traces


def _oracle(trace: Trace) -> Trace:
    """Alarms where and when a fault may first be flagged: what no scorer can beat."""
    incidents = tuple(
        IncidentTrace(one.incident, ((one.incident.precursor_start, 0.0, 1.0),))
        for one in trace.incidents
    )
    return Trace(incidents, (), trace.fleet_days)
