"""How good a score is, by row and by incident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from gpuwarden_models.datasets import Dataset

THRESHOLD = 0.5
"""Probability from which a GPU counts as flagged in incident figures."""

SETTLING_S = 300.0
"""After a repair the means still remember the fault: a flag in this time is not called false."""


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
        rows: Rows.
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
        false_episodes: Runs of flagged rows of a GPU that touch no label.
        healthy_gpu_days: GPU-days outside labels.
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
    healthy_gpu_days: float


def measure(
    dataset: Dataset, rows: NDArray[np.bool_], probability: NDArray[np.float64]
) -> Measures:
    """Figures of the chosen rows.

    Args:
        dataset: All rows.
        rows: Which count, shape (N,).
        probability: Score of every row, shape (N,).
    """
    usable = rows & dataset.usable
    truth, chance = dataset.needed[usable], probability[usable]
    base = float(truth.mean()) if truth.size else 0.0
    brier = float(np.mean((chance - truth) ** 2)) if truth.size else 0.0
    both = 0.0 < base < 1.0
    found = _incidents(dataset, rows, probability)
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
        false_episodes=_false_episodes(dataset, rows, probability),
        healthy_gpu_days=float((rows & ~_labelled(dataset)).sum()) * dataset.interval_s / 86_400.0,
    )


def _incidents(
    dataset: Dataset, rows: NDArray[np.bool_], probability: NDArray[np.float64]
) -> list[tuple[str, float | None]]:
    """Class of each incident in these rows, and its start less its first flag (None: no flag)."""
    number = {ref.key: index for index, ref in enumerate(dataset.gpus)}
    found: list[tuple[str, float | None]] = []
    for label in dataset.labels:
        own = rows & (dataset.gpu == number.get(label.entity, -1))
        during = own & (dataset.at >= label.precursor_start) & (dataset.at < label.end)
        if not (during & (dataset.at >= label.start)).any():
            continue
        flags = dataset.at[during & (probability >= THRESHOLD)]
        lead = label.start - float(flags.min()) if flags.size else None
        found.append((label.fault_class.value, lead))
    return found


def _by_class(found: Sequence[tuple[str, float | None]]) -> dict[str, ClassMeasures]:
    result: dict[str, ClassMeasures] = {}
    for name in sorted({name for name, _ in found}):
        leads = [lead for other, lead in found if other == name]
        result[name] = ClassMeasures(
            incidents=len(leads),
            flagged=sum(lead is not None for lead in leads),
            flagged_before_start=sum(lead is not None and lead > 0 for lead in leads),
        )
    return result


def _labelled(dataset: Dataset) -> NDArray[np.bool_]:
    number = {ref.key: index for index, ref in enumerate(dataset.gpus)}
    inside = dataset.needed.copy()
    for label in dataset.labels:
        own = dataset.gpu == number.get(label.entity, -1)
        until = label.end + SETTLING_S
        inside |= own & (dataset.at >= label.precursor_start) & (dataset.at < until)
    return inside


def _false_episodes(
    dataset: Dataset, rows: NDArray[np.bool_], probability: NDArray[np.float64]
) -> int:
    wrong = rows & ~_labelled(dataset) & (probability >= THRESHOLD)
    gpu, at = dataset.gpu[wrong], dataset.at[wrong]
    order = np.lexsort((at, gpu))
    gpu, at = gpu[order], at[order]
    if gpu.size == 0:
        return 0
    new = (np.diff(gpu) != 0) | (np.diff(at) > 1.5 * dataset.interval_s)
    return 1 + int(new.sum())
