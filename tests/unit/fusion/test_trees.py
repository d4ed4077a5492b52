"""The numpy predictor against scikit-learn's predict_proba."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from gpuwarden_models.export import PlainModel, plain_model
from gpuwarden_verdict.fusion.predict import probability
from gpuwarden_verdict.fusion.trees import TREE_ARRAYS, Trees, trees_from_arrays

COLUMNS = 4


def awkward_rows(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Ties, heavy tails, NaN in three columns, often and rarely."""
    matrix = rng.standard_t(2.0, (count, COLUMNS)).astype(np.float32)
    matrix[:, 0] = 7.0  # says nothing but whether it is there
    matrix[:, 1] = np.round(matrix[:, 1])
    matrix[rng.random(count) < 0.4, 0] = np.nan
    matrix[rng.random(count) < 0.02, 2] = np.nan
    return matrix


@cache
def trained() -> tuple[CalibratedClassifierCV, NDArray[np.float32]]:
    rng = np.random.default_rng(8)
    matrix = awkward_rows(rng, 3000)
    score = np.nan_to_num(matrix[:, 1]) + 2.0 * np.isnan(matrix[:, 0]) - np.isnan(matrix[:, 2])
    truth = rng.random(3000) < 1.0 / (1.0 + np.exp(-score + 1.0))
    classifier = HistGradientBoostingClassifier(
        max_iter=25, max_leaf_nodes=9, monotonic_cst=[0, 1, 0, 1], random_state=0
    )
    classifier.fit(matrix[:2000], truth[:2000])
    calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), method="sigmoid")
    calibrated.fit(matrix[2000:], truth[2000:])
    return calibrated, matrix


def predict(plain: PlainModel, trees: Trees, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    raw = plain.baseline + trees.sum_of_leaves(matrix)
    return probability(plain.slope * raw + plain.offset)


def test_numpy_predicts_what_scikit_learn_predicts() -> None:
    calibrated, seen = trained()
    plain = plain_model(calibrated)
    trees = trees_from_arrays(plain.arrays, COLUMNS)
    rng = np.random.default_rng(9)
    unseen = awkward_rows(rng, 20_000)
    unseen[rng.random(20_000) < 0.02, 3] = np.inf
    unseen[rng.random(20_000) < 0.02, 0] = -np.inf
    unseen[rng.random(20_000) < 0.02, 3] = np.nan  # missing where training never missed it
    for matrix in (seen, unseen):
        expected = calibrated.predict_proba(matrix)[:, 1]
        assert np.abs(predict(plain, trees, matrix) - expected).max() < 1e-9
    inner = ~trees.leaf
    assert {True, False} == set(trees.missing_left[inner].tolist()), "NaN goes both ways"
    assert np.isinf(trees.threshold[inner]).any(), "a split on missing alone was met"


def test_trees_with_more_leaves_than_a_word_has_bits_are_summed_alike() -> None:
    rng = np.random.default_rng(10)
    matrix = awkward_rows(rng, 4000)
    truth = rng.random(4000) < 1.0 / (1.0 + np.exp(-np.nan_to_num(matrix[:, 1])))
    classifier = HistGradientBoostingClassifier(
        max_iter=3, max_leaf_nodes=150, min_samples_leaf=2, random_state=0
    ).fit(matrix, truth)
    calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), method="sigmoid")
    plain = plain_model(calibrated.fit(matrix, truth))
    trees = trees_from_arrays(plain.arrays, COLUMNS)
    assert trees.leaf.sum() > 3 * 64
    expected = calibrated.predict_proba(matrix)[:, 1]
    assert np.abs(predict(plain, trees, matrix) - expected).max() < 1e-9


def test_a_row_of_nothing_but_nan_has_a_score() -> None:
    calibrated, _ = trained()
    plain = plain_model(calibrated)
    nothing = np.full((2, COLUMNS), np.nan, dtype=np.float32)
    expected = calibrated.predict_proba(nothing)[:, 1]
    trees = trees_from_arrays(plain.arrays, COLUMNS)
    assert np.abs(predict(plain, trees, nothing) - expected).max() < 1e-9


def arrays_of_a_stump() -> dict[str, NDArray[np.generic]]:
    return {
        "roots": np.array([0], dtype=np.int32),
        "feature": np.array([1, 0, 0], dtype=np.int32),
        "threshold": np.array([0.5, 0.0, 0.0]),
        "missing_left": np.array([True, False, False]),
        "left": np.array([1, 0, 0], dtype=np.int32),
        "right": np.array([2, 0, 0], dtype=np.int32),
        "leaf": np.array([False, True, True]),
        "value": np.array([0.0, -1.0, 2.0]),
        "cover": np.array([10.0, 8.0, 2.0]),
    }


def test_a_stump_splits_at_its_threshold() -> None:
    trees = trees_from_arrays(arrays_of_a_stump(), 2)
    matrix = np.array([[0.0, 0.5], [0.0, 0.51], [0.0, np.nan]], dtype=np.float32)
    assert trees.sum_of_leaves(matrix).tolist() == [-1.0, 2.0, -1.0]
    assert trees.sum_of_leaves(np.empty((0, 2), np.float32)).shape == (0,)


@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        ("left", [0, 0, 0], "behind"),
        ("right", [9, 0, 0], "behind"),
        ("roots", [7], "root"),
        ("feature", [2, 0, 0], "feature"),
        ("value", [0.0, np.nan, 2.0], "not a number"),
        ("threshold", [0.5], "length"),
        ("cover", [0.0, 0.0, 0.0], "covers nothing"),
    ],
)
def test_arrays_that_are_no_trees_are_refused(name: str, broken: list[float], said: str) -> None:
    arrays = arrays_of_a_stump()
    arrays[name] = np.array(broken)
    with pytest.raises(ValueError, match=said):
        trees_from_arrays(arrays, 2)


def test_a_missing_array_is_named() -> None:
    for name in TREE_ARRAYS:
        arrays = arrays_of_a_stump()
        del arrays[name]
        with pytest.raises(ValueError, match=name):
            trees_from_arrays(arrays, 2)
