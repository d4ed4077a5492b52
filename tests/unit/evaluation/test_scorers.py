"""Scorers that learn from rows: they find what is there, and forget what is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_models.datasets import Case, Dataset
from gpuwarden_models.evaluation.calibration import calibration, chance_of, off_bins, summed
from gpuwarden_models.evaluation.scorers import (
    Lesson,
    fusion_scorers,
    logistic_scorers,
    novelty_scorers,
    single_scorers,
    without_cases,
    without_plane,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_wire.metrics import EntityKind

GPU = EntityKind.GPU
FEATURES = FEATURE_SETS[GPU]
ROWS, ENTITIES = 40, 120
TELLING = next(n for n, one in enumerate(FEATURES.features) if one.monotone == 1)
OTHER = next(
    n
    for n, one in enumerate(FEATURES.features)
    if one.monotone == 1 and one.plane is not FEATURES.features[TELLING].plane
)


def lesson() -> Lesson:
    """Every sixth GPU has a fault that one feature tells of, the next one that another tells of."""
    rng = np.random.default_rng(1)
    entity = np.repeat(np.arange(ENTITIES), ROWS)
    at = np.tile(np.arange(ROWS) * 600.0, ENTITIES)
    matrix = rng.random((entity.size, len(FEATURES))).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    needed = np.zeros(entity.size, np.bool_)
    cases = []
    for gpu in range(ENTITIES):
        if gpu % 6 < 2:
            mechanism, column = (("one", TELLING), ("two", OTHER))[gpu % 6]
            cases.append(Case(gpu, FaultClass.MEMORY, mechanism, 12000.0, 12000.0, 24000.0))
            own = (entity == gpu) & (at >= 12000.0)
            needed |= own
            matrix[own, column] = 5.0
    dataset = Dataset(
        kind=GPU,
        matrix=matrix,
        needed=needed,
        usable=np.ones(entity.size, np.bool_),
        traceless=np.zeros(entity.size, np.bool_),
        entity=entity,
        at=at,
        share=at / at.max(),
        refs=tuple(EntityRef(GPU, f"g{n}", f"n{n // 4}") for n in range(ENTITIES)),
        recordings=np.zeros(ENTITIES, np.int64),
        cases=tuple(cases),
        step_s=600.0,
    )
    return Lesson({GPU: dataset}, seed=1)


TAUGHT = lesson()


def told(mechanism: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    dataset = TAUGHT.datasets[GPU]
    whose = [case.entity for case in dataset.cases if case.mechanism == mechanism]
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = dataset.needed & np.isin(
        dataset.entity, whose
    )
    return found


def test_fusion_finds_both_and_a_single_feature_one() -> None:
    dataset = TAUGHT.datasets[GPU]
    score = fusion_scorers(TAUGHT, 20)[GPU](dataset.matrix)
    assert np.median(score[dataset.needed]) > 0.8 > 0.2 > np.median(score[~dataset.needed])
    single = single_scorers(TAUGHT, {GPU: TELLING})[GPU](dataset.matrix)
    assert single[told("one")].min() > 2 > single[told("two")].max()


def test_logistic_regression_and_novelty_see_them_too() -> None:
    dataset = TAUGHT.datasets[GPU]
    for scorers in (logistic_scorers(TAUGHT), novelty_scorers(TAUGHT)):
        score = scorers[GPU](dataset.matrix)
        assert np.median(score[dataset.needed]) > np.quantile(score[~dataset.needed], 0.6)


def test_what_was_left_out_is_neither_fault_nor_healthy() -> None:
    dataset = TAUGHT.datasets[GPU]
    less = without_cases(TAUGHT, lambda case: case.mechanism == "two").datasets[GPU]
    assert not less.needed[told("two")].any()
    assert not less.usable[told("two")].any()
    assert {case.mechanism for case in less.cases} == {"one"}
    score = fusion_scorers(Lesson({GPU: less}, 1), 20)[GPU](dataset.matrix)
    assert np.median(score[told("two")]) < 0.5 < np.median(score[told("one")])


def test_a_plane_can_be_taken_away() -> None:
    dataset = TAUGHT.datasets[GPU]
    plane = FEATURES.features[OTHER].plane
    score = without_plane(TAUGHT, plane, 20)[GPU](dataset.matrix)
    assert np.median(score[told("one")]) > 0.9 > 0.5 > np.median(score[told("two")])


def test_bins_hold_predicted_against_observed() -> None:
    dataset = TAUGHT.datasets[GPU]
    half = calibration(dataset, lambda matrix: np.full(matrix.shape[0], 0.5))
    (bin_,) = (one for one in half.bins if one.rows)
    assert (bin_.low, bin_.rows, bin_.incidents) == (0.5, dataset.needed.size, len(dataset.cases))
    assert half.skill is not None and half.skill < 0
    judged, off = off_bins(half.bins)
    assert len(judged) == len(off) == 1
    twice = summed([half, half])
    assert twice.rows == 2 * half.rows
    assert twice.skill == pytest.approx(half.skill)


def test_the_chance_of_what_shows_nothing_is_added_and_the_bare_score_told_beside_it() -> None:
    dataset = TAUGHT.datasets[GPU]
    calm = replace(dataset, traceless=dataset.needed.copy())
    unseen = chance_of([calm])
    assert unseen == pytest.approx(float(dataset.needed[dataset.usable].mean()))
    found = calibration(calm, lambda matrix: np.zeros(matrix.shape[0]), unseen)
    assert found.skill == pytest.approx(0.0, abs=1e-9), "knows the base rate and nothing else"
    assert found.bare_skill is not None and found.bare_skill < 0.0
    assert summed([found, found]).bare_skill == pytest.approx(found.bare_skill)
    assert chance_of([]) == 0.0
