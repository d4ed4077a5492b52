"""Scorers of rows: the learnt scores, and baselines that learn from the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from gpuwarden_models.backtest.scores import SETTLING_S
from gpuwarden_models.datasets import Case, Dataset
from gpuwarden_models.fitting import Split, fit_plain, scores
from gpuwarden_models.measures import labelled
from gpuwarden_models.surroundings import novelty_of
from gpuwarden_verdict.features import FEATURE_SETS, FeatureSet
from gpuwarden_verdict.fusion import FusionModel, FusionModels
from gpuwarden_verdict.fusion.explain import contributions
from gpuwarden_verdict.fusion.fuse import LOOK_PROBABILITY
from gpuwarden_verdict.fusion.gate import PLANE_LOG_ODDS, WANTED_PLANES
from gpuwarden_verdict.fusion.predict import log_odds, probability
from gpuwarden_verdict.signals import Plane
from gpuwarden_wire.metrics import EntityKind

Matrix = NDArray[np.float32]
Scores = NDArray[np.float64]
Scorer = Callable[[Matrix], Scores]
"""Scores of rows, shape (N, F) to (N,); higher is graver, 0 or less is no alarm."""
Scorers = Mapping[EntityKind, Scorer]

_FEWEST_POSITIVE_ROWS = 20
_MOST_ROWS = 200_000  # of a logistic regression


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Rows to learn from.

    Attributes:
        datasets: By kind.
        seed: Deals nodes out to training and calibration, and draws rows.
    """

    datasets: Mapping[EntityKind, Dataset]
    seed: int


def shipped_scorers(models: FusionModels) -> Scorers:
    """The models under evaluation."""

    def scorer(kind: EntityKind) -> Scorer:
        return lambda matrix: probability(log_odds(models[kind], matrix))

    return {kind: scorer(kind) for kind in models}


def supported_scorers(models: FusionModels) -> Scorers:
    """The same for exclusion: 0 where fewer planes support the score than the gate asks for."""

    def scorer(model: FusionModel) -> Scorer:
        planes = [one.plane for one in model.features.features]
        places = [np.array([one is plane for one in planes]) for plane in set(planes)]

        def supported(matrix: Matrix) -> Scores:
            chance = probability(log_odds(model, matrix))
            worth = np.flatnonzero(chance >= LOOK_PROBABILITY)
            shares, _ = contributions(model, matrix[worth])
            raised = [shares[:, own].sum(axis=1) >= PLANE_LOG_ODDS for own in places]
            enough = np.sum(raised, axis=0) >= WANTED_PLANES
            found = np.zeros(chance.size)
            found[worth[enough]] = chance[worth[enough]]
            return found

        return supported

    return {kind: scorer(model) for kind, model in models.items()}


def fusion_scorers(lesson: Lesson, trees: int) -> Scorers:
    """Models of the shipped kind, trained from the lesson."""
    fitted: dict[EntityKind, Scorer] = {}
    for kind, dataset in lesson.datasets.items():
        scorer = _fusion(dataset, FEATURE_SETS[kind], lesson.seed, trees)
        if scorer is not None:
            fitted[kind] = scorer
    return fitted


def without_plane(lesson: Lesson, plane: Plane, trees: int) -> Scorers:
    """The same without the features of a plane."""
    fitted: dict[EntityKind, Scorer] = {}
    for kind, dataset in lesson.datasets.items():
        features = FEATURE_SETS[kind]
        own = [n for n, one in enumerate(features.features) if one.plane is not plane]
        if not own:
            continue
        left = FeatureSet(kind, features.version, tuple(features.features[n] for n in own))
        scorer = _fusion(replace(dataset, matrix=dataset.matrix[:, own]), left, lesson.seed, trees)
        if scorer is not None:
            fitted[kind] = _of_columns(scorer, own)
    return fitted


def without_cases(lesson: Lesson, left_out: Callable[[Case], bool]) -> Lesson:
    """The lesson without the rows of some faults: neither as faults nor as healthy."""
    return replace(
        lesson,
        datasets={kind: _without(one, left_out) for kind, one in lesson.datasets.items()},
    )


def logistic_scorers(lesson: Lesson) -> Scorers:
    """Logistic regression on the same features: logarithms of sizes, missing as a column each."""
    fitted: dict[EntityKind, Scorer] = {}
    for kind, dataset in lesson.datasets.items():
        rows = np.flatnonzero(dataset.usable)
        if not _teaches(dataset, dataset.usable):
            continue
        if rows.size > _MOST_ROWS:
            rng = np.random.default_rng(lesson.seed)
            rows = np.sort(rng.choice(rows, _MOST_ROWS, replace=False))
        scale = StandardScaler()
        flat = scale.fit_transform(_flat(dataset.matrix[rows]))
        model = LogisticRegression(max_iter=300, C=1.0)
        model.fit(flat, dataset.needed[rows])
        fitted[kind] = _logistic(scale, model)
    return fitted


def single_scorers(lesson: Lesson, columns: Mapping[EntityKind, int]) -> Scorers:
    """One feature a kind, in units of how far healthy rows spread."""
    fitted: dict[EntityKind, Scorer] = {}
    for kind, column in columns.items():
        dataset = lesson.datasets[kind]
        sign = FEATURE_SETS[kind].features[column].monotone or 1
        values = dataset.matrix[dataset.usable & ~dataset.needed, column].astype(np.float64) * sign
        values = values[~np.isnan(values)]
        if values.size:
            low, high = np.quantile(values, (0.5, 0.999)).tolist()
            fitted[kind] = _single(column, sign, low, max(high - low, 1e-6))
    return fitted


def novelty_scorers(lesson: Lesson) -> Scorers:
    """How far a row lies outside the healthy rows of the lesson: from 1 on nothing fits."""
    fitted: dict[EntityKind, Scorer] = {}
    for kind, dataset in lesson.datasets.items():
        split, healthy = _split(dataset, lesson.seed), dataset.usable & ~labelled(dataset)
        learnt = dataset.matrix[split.train & healthy].astype(np.float64)
        if learnt.size:
            others = dataset.matrix[split.calibrate & healthy]
            fitted[kind] = novelty_of(FEATURE_SETS[kind], learnt, others).distances
    return fitted


def _fusion(dataset: Dataset, features: FeatureSet, seed: int, trees: int) -> Scorer | None:
    split = _split(dataset, seed)
    if not (_teaches(dataset, split.train) and _teaches(dataset, split.calibrate)):
        return None
    teaching = dataset.matrix[split.train & dataset.usable]
    own = np.flatnonzero(~np.isnan(teaching).all(axis=0)).tolist()  # scikit-learn bins no empty one
    known = FeatureSet(features.kind, features.version, tuple(features.features[n] for n in own))
    plain = fit_plain(replace(dataset, matrix=dataset.matrix[:, own]), known, split, trees)
    return _of_columns(lambda matrix: scores(plain, matrix), own)


def _split(dataset: Dataset, seed: int) -> Split:
    """Three quarters of the nodes train, one calibrates: who measures has recordings of his own."""
    nodes = np.unique(dataset.node)
    order = np.random.default_rng(seed).permutation(nodes.size)
    train = np.isin(dataset.node, nodes[order[: round(0.75 * nodes.size)]])
    return Split(train, ~train, np.zeros(train.size, np.bool_))


def _teaches(dataset: Dataset, rows: NDArray[np.bool_]) -> bool:
    truth = dataset.needed[rows & dataset.usable]
    return _FEWEST_POSITIVE_ROWS <= int(truth.sum()) < truth.size


def _without(dataset: Dataset, left_out: Callable[[Case], bool]) -> Dataset:
    usable, needed = dataset.usable.copy(), dataset.needed.copy()
    kept: list[Case] = []
    for case in dataset.cases:
        if not left_out(case):
            kept.append(case)
            continue
        own = dataset.rows_of(case.entity)
        at = dataset.at[own]
        usable[own] &= ~((at >= case.precursor_start - 86_400.0) & (at < case.end + SETTLING_S))
    needed &= usable
    return replace(dataset, usable=usable, needed=needed, cases=tuple(kept))


def _flat(matrix: Matrix) -> NDArray[np.float64]:
    values = matrix.astype(np.float64)
    missing = np.isnan(values)
    sizes = np.sign(values) * np.log1p(np.abs(np.where(missing, 0.0, values)))
    return np.concatenate([np.where(missing, 0.0, sizes), missing.astype(np.float64)], axis=1)


def _logistic(scale: StandardScaler, model: LogisticRegression) -> Scorer:
    def scorer(matrix: Matrix) -> Scores:
        if matrix.shape[0] == 0:
            return np.empty(0)
        found: Scores = model.predict_proba(scale.transform(_flat(matrix)))[:, 1]
        return found

    return scorer


def _single(column: int, sign: int, low: float, wide: float) -> Scorer:
    def scorer(matrix: Matrix) -> Scores:
        values = matrix[:, column].astype(np.float64) * sign
        return np.nan_to_num((values - low) / wide, nan=0.0)

    return scorer


def _of_columns(scorer: Scorer, own: Sequence[int]) -> Scorer:
    return lambda matrix: scorer(matrix[:, list(own)])
