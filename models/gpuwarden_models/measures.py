"""How good a score is, by row and by incident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from gpuwarden_models.backtest.flags import QUIET_S
from gpuwarden_models.datasets import Case, Dataset

SETTLING_S = 900.0
"""After a repair the means still remember the fault: a flag in this time is not called false."""

_DAY_S = 86_400.0
Bools = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClassMeasures:
    """Incidents of one class: all, flagged before their end, flagged before action was needed."""

    incidents: int
    flagged: int
    flagged_before_start: int


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of one part of the nodes.

    Attributes:
        rows: Rows; those before a made-up fault shows anything are left out.
        positive_rows: Of these, such that need action.
        base_rate: Their share.
        brier: Mean squared error of the probability.
        brier_skill: 1 - Brier / Brier of the base rate.
        roc_auc: Area under the ROC curve; None where only one class is there.
        average_precision: Area under the precision-recall curve; None likewise.
        incidents: Labelled incidents.
        flagged: Incidents flagged before their end.
        flagged_before_start: Incidents flagged before action was needed.
        median_lead_s: Median of start - first flag over flagged incidents, None where none.
        by_class: Incidents by fault class.
        false_episodes: Runs of flagged rows of an entity that touch no label.
        healthy_days: Entity-days outside labels.
    """

    rows: int
    positive_rows: int
    base_rate: float
    brier: float
    brier_skill: float
    roc_auc: float | None
    average_precision: float | None
    incidents: int
    flagged: int
    flagged_before_start: int
    median_lead_s: float | None
    by_class: Mapping[str, ClassMeasures]
    false_episodes: int
    healthy_days: float


def measure(dataset: Dataset, rows: Bools, probability: Numbers, flags: Bools) -> Measures:
    """Figures of the chosen rows.

    Args:
        dataset: All rows.
        rows: Which count, shape (N,).
        probability: Score of every row, shape (N,).
        flags: Rows that are flagged, shape (N,).
    """
    usable = rows & dataset.usable & ~dataset.traceless
    truth, chance = dataset.needed[usable], probability[usable]
    base = float(truth.mean()) if truth.size else 0.0
    brier = float(np.mean((chance - truth) ** 2)) if truth.size else 0.0
    both = 0.0 < base < 1.0
    found = leads_of(dataset, rows, flags)
    leads = [lead for _, lead in found if lead is not None]
    return Measures(
        rows=int(truth.size),
        positive_rows=int(truth.sum()),
        base_rate=base,
        brier=brier,
        brier_skill=1.0 - brier / (base * (1.0 - base)) if both else 0.0,
        roc_auc=float(roc_auc_score(truth, chance)) if both else None,
        average_precision=float(average_precision_score(truth, chance)) if both else None,
        incidents=len(found),
        flagged=len(leads),
        flagged_before_start=sum(lead > 0 for lead in leads),
        median_lead_s=float(np.median(leads)) if leads else None,
        by_class=_by_class(found),
        false_episodes=episodes(dataset, rows & ~labelled(dataset) & flags),
        healthy_days=days(dataset, rows & ~labelled(dataset)),
    )


def leads_of(dataset: Dataset, rows: Bools, flags: Bools) -> list[tuple[Case, float | None]]:
    """Incidents in these rows, each with its start less its first flag, seconds (None: no flag).

    A flag that stood before the precursor finds nothing; one after QUIET_S without any does.

    Args:
        dataset: All rows.
        rows: Which count, shape (N,).
        flags: Rows that are flagged, shape (N,).
    """
    found: list[tuple[Case, float | None]] = []
    for case in dataset.cases:
        own = dataset.rows_of(case.entity)
        at = dataset.at[own]
        during = rows[own] & (at >= case.precursor_start) & (at < case.end)
        if not (during & (at >= case.start)).any():
            continue
        flagged = at[during & _begins(at, flags[own])]
        found.append((case, case.start - float(flagged.min()) if flagged.size else None))
    return found


def _begins(at: Numbers, flags: Bools) -> Bools:
    """Rows of one entity in which an alarm begins, shape of both."""
    flagged = np.flatnonzero(flags)
    begins = np.zeros(flags.size, np.bool_)
    begins[flagged] = np.diff(at[flagged], prepend=-np.inf) > QUIET_S
    return begins


def labelled(dataset: Dataset) -> Bools:
    """Rows in which a flag is not called false: a fault, its precursor, or shortly after."""
    inside = dataset.needed.copy()
    for case in dataset.cases:
        own = dataset.rows_of(case.entity)
        at = dataset.at[own]
        inside[own] |= (at >= case.precursor_start) & (at < case.end + SETTLING_S)
    return inside


def episodes(dataset: Dataset, flagged: Bools) -> int:
    """Runs of rows of an entity, of those that are flagged."""
    entity, at = dataset.entity[flagged], dataset.at[flagged]
    if entity.size == 0:
        return 0
    new = (np.diff(entity) != 0) | (np.diff(at) > 1.5 * dataset.step_s)
    return 1 + int(new.sum())


def days(dataset: Dataset, rows: Bools) -> float:
    """Days that rows stand for: each for the time until its entity's next, a step at most."""
    step = np.append(np.diff(dataset.at), -1.0)
    step = np.where(step > 0, np.minimum(step, dataset.step_s), dataset.step_s)
    return float(step[rows].sum()) / _DAY_S


def _by_class(found: Sequence[tuple[Case, float | None]]) -> dict[str, ClassMeasures]:
    result: dict[str, ClassMeasures] = {}
    for name in sorted({case.fault_class for case, _ in found}):
        leads = [lead for case, lead in found if case.fault_class is name]
        result[name.value] = ClassMeasures(
            incidents=len(leads),
            flagged=sum(lead is not None for lead in leads),
            flagged_before_start=sum(lead is not None and lead > 0 for lead in leads),
        )
    return result
