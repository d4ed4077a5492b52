"""Thresholds from budgets, and what is caught at them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, inf, nextafter
from statistics import median

import numpy as np

from gpuwarden_models.evaluation.ground import DAY_S, FLEET_GPUS
from gpuwarden_models.evaluation.statistics import Interval, bootstrap_share, rate_bound, wilson
from gpuwarden_models.evaluation.traces import IncidentTrace, Trace

EXCLUSION_BUDGET = 0.03
ADVICE_BUDGET = 0.84
"""False alarms a day on 500 GPUs."""

BASE_RATES = (0.31, 0.12)
"""Faults a day on 500 GPUs, as public fleets have them."""

ENOUGH_FLEET_DAYS = 100.0
"""With fewer healthy days of 500 GPUs a false rate is printed as a bound only."""

USUAL_WINDOW_S = 3600.0


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """Incidents of one class or mechanism.

    Attributes:
        incidents: All.
        found: Alarmed before their end.
        recall_interval: 95 % Wilson.
        ahead: Alarmed before action was needed.
        median_lead_s: Start less first alarm, of those found; negative is late. None for none.
        window_s: Median time in which they could be found ahead.
        chance_ahead: Chance that a healthy entity has an alarm in so long a window.
    """

    incidents: int
    found: int
    recall_interval: Interval
    ahead: int
    median_lead_s: float | None
    window_s: float
    chance_ahead: float


@dataclass(frozen=True, slots=True)
class Operating:
    """One scorer at one threshold on one set.

    Attributes:
        threshold: Score from which it alarms.
        incidents: All but those that were covered.
        covered: Those that came while their entity stood at the threshold, rightly, for an earlier
            fault: nothing was left to find, and nothing found them.
        found: Alarmed before their end.
        recall: found / incidents; NaN where there is none.
        recall_interval: 95 %, nodes drawn anew.
        false: False alarms.
        fleet_days: Days at risk of 500 healthy GPUs.
        false_a_day: Rate a day on 500 GPUs.
        false_bound: Its exact upper 95 % Poisson bound.
        precision: At each of BASE_RATES: share of alarms that are right, from the rate seen.
        precision_floor: The same from the bound.
        ahead: Alarmed before action was needed.
        median_delay_s: First alarm less start, of those found that do not announce themselves.
        by_class: By fault class.
        by_mechanism: By mechanism.
    """

    threshold: float
    incidents: int
    covered: int
    found: int
    recall: float
    recall_interval: Interval
    false: int
    fleet_days: float
    false_a_day: float
    false_bound: float
    precision: tuple[float, ...]
    precision_floor: tuple[float, ...]
    ahead: int
    median_delay_s: float | None
    by_class: dict[str, ClassFigures]
    by_mechanism: dict[str, ClassFigures]


def threshold_for(traces: Sequence[Trace], budget: float) -> float:
    """Lowest threshold whose false alarms keep to a budget.

    Args:
        traces: One scorer on healthy time that was kept for tuning.
        budget: False alarms a day on 500 GPUs; what is less than one over all the time is none.
    """
    allowed = floor(budget * sum(one.fleet_days for one in traces) + 1e-9)
    false = sorted((score for one in traces for score in one.false), reverse=True)
    return nextafter(false[allowed], inf) if len(false) > allowed else nextafter(0.0, 1.0)


def operating(traces: Sequence[Trace], threshold: float, seed: int) -> Operating:
    """Figures of one scorer on a set.

    Args:
        traces: Its recordings.
        threshold: Score from which it alarms.
        seed: Draws of nodes.
    """
    left = [
        replace(trace, incidents=tuple(i for i in trace.incidents if i.covered < threshold))
        for trace in traces
    ]
    found = [(one, one.first_alarm(threshold)) for trace in left for one in trace.incidents]
    hits = [one for one, at in found if at is not None]
    false = sum(score >= threshold for trace in traces for score in trace.false)
    days = sum(trace.fleet_days for trace in traces)
    rate, bound = (false / days if days > 0 else float("nan")), rate_bound(false, days)
    recall = len(hits) / len(found) if found else float("nan")
    late = [at - one.incident.start for one, at in found if at and not one.incident.announced]
    return Operating(
        threshold=threshold,
        incidents=len(found),
        covered=sum(len(trace.incidents) for trace in traces) - len(found),
        found=len(hits),
        recall=recall,
        recall_interval=_recall_interval(left, threshold, seed),
        false=false,
        fleet_days=days,
        false_a_day=rate,
        false_bound=bound,
        precision=tuple(_precision(base * recall, rate) for base in BASE_RATES),
        precision_floor=tuple(_precision(base * recall, bound) for base in BASE_RATES),
        ahead=sum(at is not None and at < one.incident.start for one, at in found),
        median_delay_s=median(late) if late else None,
        by_class=_grouped(found, rate, "fault_class"),
        by_mechanism=_grouped(found, rate, "mechanism"),
    )


def _precision(right: float, wrong: float) -> float:
    return right / (right + wrong) if right + wrong > 0 else float("nan")


def _recall_interval(traces: Sequence[Trace], threshold: float, seed: int) -> Interval:
    rows = [
        (f"{number}/{one.incident.node or one.incident.entity}", one.first_alarm(threshold))
        for number, trace in enumerate(traces)
        for one in trace.incidents
    ]
    if not rows:
        return float("nan"), float("nan")
    _, unit = np.unique([node for node, _ in rows], return_inverse=True)
    hit = np.array([at is not None for _, at in rows], np.float64)
    return bootstrap_share(hit, np.ones(hit.size), unit, seed)


def _grouped(
    found: Sequence[tuple[IncidentTrace, float | None]], rate: float, by: str
) -> dict[str, ClassFigures]:
    groups: dict[str, list[tuple[IncidentTrace, float | None]]] = defaultdict(list)
    for one, at in found:
        groups[getattr(one.incident, by)].append((one, at))
    return {name: _of_group(rows, rate) for name, rows in sorted(groups.items()) if name}


def _of_group(rows: Sequence[tuple[IncidentTrace, float | None]], rate: float) -> ClassFigures:
    leads = [one.incident.start - at for one, at in rows if at is not None]
    windows = [one.incident.start - one.incident.precursor_start for one, _ in rows]
    window = median([length for length in windows if length > 0] or [USUAL_WINDOW_S])
    return ClassFigures(
        incidents=len(rows),
        found=len(leads),
        recall_interval=wilson(len(leads), len(rows)),
        ahead=sum(lead > 0 for lead in leads),
        median_lead_s=median(leads) if leads else None,
        window_s=window,
        # The rate is that of 500 GPUs and all that is in their nodes: a bound from above for one.
        chance_ahead=rate / FLEET_GPUS * window / DAY_S,
    )
