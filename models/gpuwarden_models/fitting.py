"""Boosted trees and their calibration, from arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from gpuwarden_models.datasets import Dataset
from gpuwarden_models.export import PlainModel, plain_model
from gpuwarden_models.surroundings import LIFELONG
from gpuwarden_verdict.features import FeatureSet
from gpuwarden_verdict.fusion.predict import probability
from gpuwarden_verdict.fusion.trees import trees_from_arrays

TREES = 120

TIME_CUT = 0.8
"""Rows of the last fifth of a recording train nothing: who learns from them knows the future."""

HEALTHY_A_FAULTY = 10
"""Healthy rows that train beside each faulty one."""

GAPS = 0.35
"""Share of readings that are left out of the third copy of each row that trains."""

CHRONIC = ("ecc_corrected_1h", "ecc_corrected_24h", "ecc_corrected_rise_1h")
"""What a part may have for months without a fault: errors that were corrected."""
CHRONIC_SHARE = 0.05
"""Of healthy rows that train with such errors (assumed: as public counts have it, few parts have
most of them, and go on for months)."""
CHRONIC_AN_HOUR = (1.0, 300.0)
"""Errors, log-uniform (assumed)."""
_CHRONIC_FOR_H = (0.5, 240.0)  # since when they are counted
_SHAPE_OF_RATE = 3.0  # of the gamma by which an hour's rate differs from the part's own

SLOW_TO_KNOW = "_drift_"
"""In names of features that need hours of sweeps."""

_FEWEST_HEALTHY = 20_000
_PARTS = (0.6, 0.2)  # share of nodes that train, that calibrate; the rest measures
_ROWS_AT_ONCE = 4096
_FEWEST_KNOWN = 100


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows by the part their node was dealt to, shape (N,) each."""

    train: NDArray[np.bool_]
    calibrate: NDArray[np.bool_]
    held_out: NDArray[np.bool_]


def deal_nodes(dataset: Dataset, seed: int) -> Split:
    """Deal whole nodes out to training, calibration and measuring; only early rows train."""
    nodes = np.unique(dataset.node)
    order = np.random.default_rng(seed).permutation(nodes.size)
    bounds = np.round(np.cumsum(_PARTS) * nodes.size).astype(int)
    parts = [np.isin(dataset.node, part) for part in np.split(nodes[order], bounds)]
    return Split(parts[0] & (dataset.share < TIME_CUT), parts[1], parts[2])


def fit(
    matrix: NDArray[np.float32],
    needed: NDArray[np.bool_],
    features: FeatureSet,
    train: NDArray[np.bool_],
    calibrate: NDArray[np.bool_],
    trees: int = TREES,
) -> CalibratedClassifierCV:
    """The classifier, monotone in every feature, and its sigmoid from other rows.

    Args:
        matrix: Features, shape (N, F).
        needed: Truth, shape (N,).
        features: The columns.
        train: Rows that train, shape (N,).
        calibrate: Rows that calibrate, shape (N,).
        trees: Boosting rounds.
    """
    classifier = HistGradientBoostingClassifier(
        max_iter=trees,
        learning_rate=0.08,
        max_leaf_nodes=16,
        min_samples_leaf=60,
        l2_regularization=1.0,
        early_stopping=False,
        monotonic_cst=[feature.monotone for feature in features.features],
        random_state=0,
    )
    rows, truth = _with_gaps(matrix[train], needed[train], features)
    classifier.fit(_teachable(rows), truth)
    calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), method="sigmoid")
    calibrated.fit(matrix[calibrate], needed[calibrate])
    return calibrated


def _teachable(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows with columns that hardly any of them has set to 0: nothing splits on a constant.

    scikit-learn cannot bin a column without numbers, nor one whose few numbers its sample misses.
    """
    known = (~np.isnan(matrix)).sum(axis=0)
    return np.where(known >= _FEWEST_KNOWN, matrix, np.float32(0.0))


def _with_gaps(
    matrix: NDArray[np.float32], needed: NDArray[np.bool_], features: FeatureSet
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The rows, and each twice more: as young windows see it, and with columns missing at random.

    A fleet lacks what its exporter does not give, and for hours what takes hours to know: the
    score must not rest on one column where others say the same. LIFELONG ones are in none.
    """
    matrix = with_chronic(matrix, needed, features)
    lifelong = np.array([name.endswith(LIFELONG) for name in features.names])
    matrix = np.where(lifelong, np.float32(np.nan), matrix)
    slow = np.array([SLOW_TO_KNOW in name for name in features.names])
    young = np.where(slow, np.float32(np.nan), matrix)
    holes = np.random.default_rng(0).random(matrix.shape) < GAPS
    gaps = np.where(holes, np.float32(np.nan), young)
    return np.concatenate([matrix, young, gaps]), np.concatenate([needed, needed, needed])


def with_chronic(
    matrix: NDArray[np.float32], needed: NDArray[np.bool_], features: FeatureSet
) -> NDArray[np.float32]:
    """The rows, some healthy ones with corrected errors that a sound part has always had.

    In a recording of days hardly any part has such errors but those that fail in it, and the score
    would take every one of them for wear.
    """
    if not set(CHRONIC) <= set(features.names):
        return matrix
    rng, rows = np.random.default_rng(0), matrix.copy()
    chosen = np.flatnonzero((rng.random(needed.size) < CHRONIC_SHARE) & ~needed)
    rate, age_h = (
        np.exp(rng.uniform(np.log(low), np.log(high), chosen.size))
        for low, high in (CHRONIC_AN_HOUR, _CHRONIC_FOR_H)
    )
    spread = rng.gamma(_SHAPE_OF_RATE, 1.0 / _SHAPE_OF_RATE, chosen.size)
    hour = rng.poisson(rate * spread).astype(np.float64)
    day = np.maximum(24.0 * rate * -np.expm1(-age_h / 24.0), hour)
    for name, more in zip(CHRONIC, (hour, day, hour - day / 24.0), strict=True):
        place = features.names.index(name)
        rows[chosen, place] = np.nan_to_num(rows[chosen, place]) + more
    return rows


def thinned(rows: NDArray[np.bool_], needed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rows with healthy ones left out at random where there are far more than teach anything.

    What that does to the mix, the calibration undoes: its rows are all there.
    """
    healthy = np.flatnonzero(rows & ~needed)
    kept = max(HEALTHY_A_FAULTY * int((rows & needed).sum()), _FEWEST_HEALTHY)
    left_out = rows.copy()
    chosen = np.random.default_rng(0).permutation(healthy)[kept:]
    left_out[chosen] = False
    return left_out


def fit_plain(
    dataset: Dataset, features: FeatureSet, split: Split, trees: int = TREES
) -> PlainModel:
    """The fitted model as arrays, from the rows of a split that teach."""
    teaches = dataset.usable & ~dataset.traceless
    rows = thinned(split.train & teaches, dataset.needed), split.calibrate & teaches
    return plain_model(fit(dataset.matrix, dataset.needed, features, *rows, trees))


def scores(model: PlainModel, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probability of each row by the predictor that serves, shape (N,)."""
    trees = trees_from_arrays(model.arrays, matrix.shape[1])
    parts = [
        trees.sum_of_leaves(matrix[first : first + _ROWS_AT_ONCE])
        for first in range(0, matrix.shape[0], _ROWS_AT_ONCE)
    ]
    raw = np.concatenate(parts) if parts else np.empty(0)
    return probability(model.slope * (model.baseline + raw) + model.offset)
