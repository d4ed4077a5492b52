"""Contributions: they sum to the log-odds, and are the Shapley values of the trees."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from gpuwarden_verdict.fusion.explain import contributions
from gpuwarden_verdict.fusion.predict import log_odds
from gpuwarden_verdict.fusion.trees import Trees
from tests.builders.simulated import GPU_FEATURES, shipped_model


def odd_rows(count: int) -> NDArray[np.float32]:
    """Rows over the range of the features, a quarter of the cells missing, some infinite."""
    rng = np.random.default_rng(4)
    matrix = rng.gamma(0.4, 8.0, (count, len(GPU_FEATURES))).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.25] = np.nan
    matrix[rng.random(matrix.shape) < 0.01] = np.inf
    matrix[rng.random(matrix.shape) < 0.01] = -np.inf
    return matrix


def expected_without(trees: Trees, node: int, row: NDArray[np.float64], known: set[int]) -> float:
    """A tree's value with the unknown features averaged over by cover: the definition."""
    if trees.leaf[node]:
        return float(trees.value[node])
    left, right = int(trees.left[node]), int(trees.right[node])
    if int(trees.feature[node]) in known:
        seen = row[trees.feature[node]]
        goes_left = trees.missing_left[node] if np.isnan(seen) else seen <= trees.threshold[node]
        return expected_without(trees, left if goes_left else right, row, known)
    share = trees.cover[left] / trees.cover[node]
    return float(
        share * expected_without(trees, left, row, known)
        + (1.0 - share) * expected_without(trees, right, row, known)
    )


def shapley_by_definition(trees: Trees, root: int, row: NDArray[np.float64]) -> dict[int, float]:
    players = sorted({int(f) for f in split_features(trees, root)})
    count = len(players)
    result = {}
    for player in players:
        others = [p for p in players if p != player]
        total = 0.0
        for size in range(count):
            weight = factorial(size) * factorial(count - 1 - size) / factorial(count)
            for chosen in combinations(others, size):
                with_it = expected_without(trees, root, row, {*chosen, player})
                total += weight * (with_it - expected_without(trees, root, row, set(chosen)))
        result[player] = total
    return result


def split_features(trees: Trees, node: int) -> list[int]:
    if trees.leaf[node]:
        return []
    below = (int(trees.left[node]), int(trees.right[node]))
    return [int(trees.feature[node]), *(f for child in below for f in split_features(trees, child))]


def test_contributions_sum_to_the_log_odds() -> None:
    model, matrix = shipped_model(), odd_rows(60)
    shares, intercept = contributions(model, matrix)
    assert np.abs(shares.sum(axis=1) + intercept - log_odds(model, matrix)).max() < 1e-6


def test_contributions_are_the_shapley_values_by_their_definition() -> None:
    whole, matrix = shipped_model(), odd_rows(3)
    model = replace(whole, trees=replace(whole.trees, roots=whole.trees.roots[::48]))
    shares, _ = contributions(model, matrix)
    for number, row in enumerate(matrix.astype(np.float64)):
        expected = np.zeros(len(GPU_FEATURES))
        for root in model.trees.roots.tolist():
            for feature, value in shapley_by_definition(model.trees, root, row).items():
                expected[feature] += model.slope * value
        assert np.abs(shares[number] - expected).max() < 1e-9


def test_a_feature_that_no_tree_splits_on_contributes_nothing() -> None:
    model, matrix = shipped_model(), odd_rows(20)
    used = set(model.trees.feature[~model.trees.leaf].tolist())
    unused = [index for index in range(len(GPU_FEATURES)) if index not in used]
    assert unused, "take another feature: this model uses all"
    shares, _ = contributions(model, matrix)
    assert np.abs(shares[:, unused]).max() == 0.0


def test_more_of_a_bad_thing_never_lowers_the_risk() -> None:
    model = shipped_model()
    rng = np.random.default_rng(6)
    base = rng.gamma(0.4, 6.0, (200, len(GPU_FEATURES))).astype(np.float32)
    before = log_odds(model, base)
    for index, feature in enumerate(GPU_FEATURES.features):
        assert feature.monotone == 1
        more = base.copy()
        more[:, index] += rng.gamma(1.0, 5.0, 200).astype(np.float32)
        assert (log_odds(model, more) >= before - 1e-12).all(), feature.name


def test_no_rows_make_no_contributions() -> None:
    shares, _ = contributions(shipped_model(), np.empty((0, len(GPU_FEATURES)), np.float32))
    assert shares.shape == (0, len(GPU_FEATURES))
