"""What a ranking catches when so many are flagged, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from gpuwarden_models.evaluation.exclusion.rows import SNAPSHOT_DAYS, Rows
from gpuwarden_models.evaluation.statistics import (
    BOOTSTRAP_ROUNDS,
    Interval,
    bootstrap_share,
    wilson,
)

SHARES = (0.005, 0.01, 0.02, 0.05)
"""Shares of the seats that are flagged at each snapshot."""

LEAK_AUC = 0.80
"""Above this the ranking knows something that it should not, until shown otherwise."""


@dataclass(frozen=True, slots=True)
class Caught:
    """Figures of one set of flags.

    Attributes:
        flagged: Seats, over all snapshots.
        hits: Of these, such that an event followed at.
        precision: hits / flagged; NaN where nothing is flagged.
        precision_wilson: Its 95 % interval as if rows were independent.
        precision_bootstrap: Its 95 % interval with whole places drawn anew.
        events: Later events at flagged seats.
        capture: Share of all later events that are at flagged seats.
        capture_bootstrap: Its 95 % interval with whole places drawn anew.
        lift: capture / share flagged: 1 is chance.
        lost_hours: Hours of flagged seats without an event: what the exclusion costs in capacity.
    """

    flagged: int
    hits: int
    precision: float
    precision_wilson: Interval
    precision_bootstrap: Interval
    events: int
    capture: float
    capture_bootstrap: Interval
    lift: float
    lost_hours: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """How well a score orders all rows.

    Attributes:
        auc: Area under the ROC curve.
        average_precision: Area under the precision-recall curve.
        leak: Whether the AUC is too good to be true.
    """

    auc: float
    average_precision: float
    leak: bool


def caught(
    rows: Rows, flags: NDArray[np.bool_], seed: int, rounds: int = BOOTSTRAP_ROUNDS
) -> Caught:
    """Figures of flags, shape (N,); intervals from so many draws, (nan, nan) for none."""
    flagged, hits = int(flags.sum()), int((flags & rows.hit).sum())
    later = rows.later.astype(np.float64)
    events, total = int(rows.later[flags].sum()), int(rows.later.sum())
    capture = events / total if total else float("nan")
    ones = flags.astype(np.float64)
    return Caught(
        flagged=flagged,
        hits=hits,
        precision=hits / flagged if flagged else float("nan"),
        precision_wilson=wilson(hits, flagged),
        precision_bootstrap=bootstrap_share(ones * rows.hit, ones, rows.place, seed, rounds),
        events=events,
        capture=capture,
        capture_bootstrap=bootstrap_share(ones * later, later, rows.place, seed, rounds),
        lift=capture * flags.size / flagged if flagged else float("nan"),
        lost_hours=(flagged - hits) * SNAPSHOT_DAYS * 24.0,
    )


def flag_top(rows: Rows, score: NDArray[np.float64], share: float, seed: int) -> NDArray[np.bool_]:
    """The share of the seats of each snapshot that scores highest; ties fall by lot."""
    flags = np.zeros(rows.snapshot.size, np.bool_)
    rng = np.random.default_rng(seed)
    for number in range(rows.at.size):
        own = np.flatnonzero(rows.snapshot == number)
        wanted = max(1, round(share * own.size))
        order = np.lexsort((rng.random(own.size), -score[own]))
        flags[own[order[:wanted]]] = True
    return flags


def flag_count(score: NDArray[np.float64], wanted: int) -> NDArray[np.bool_]:
    """The `wanted` rows that score highest over all snapshots; ties go to the earlier row."""
    flags = np.zeros(score.size, np.bool_)
    flags[np.argsort(-score, kind="stable")[:wanted]] = True
    return flags


def ranked(rows: Rows, score: NDArray[np.float64]) -> Ranked:
    """How well a score orders the rows; NaN where all or none had an event."""
    if rows.hit.all() or not rows.hit.any():
        return Ranked(float("nan"), float("nan"), leak=False)
    auc = float(roc_auc_score(rows.hit, score))
    return Ranked(auc, float(average_precision_score(rows.hit, score)), leak=auc > LEAK_AUC)
