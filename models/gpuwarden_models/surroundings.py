"""What stands around the trees: who reaches them, what they learnt from, where suspicion begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.datasets import Dataset
from gpuwarden_models.measures import days, episodes, labelled, leads_of
from gpuwarden_verdict.features import FeatureSet
from gpuwarden_verdict.fusion.first_stage import EVERYONE, FirstStage
from gpuwarden_verdict.fusion.novelty import Novelty

ADVICE_A_DAY = 0.84 / 500.0
"""Alarms an entity and day that advice may cost: 0.84 a day on 500 GPUs."""

DENSER = 40.0
"""How many times as often as in life what only looks like a fault comes in a simulated recording,
at least: benign memory errors 150 times, reboots and outages far more."""

LOST_TO_FIRST_STAGE = (0.02, 0.05)
"""Share of incidents that the trees find and that the first stage may keep from them; the second
where the first cannot be had."""

_OPERATING_POINTS = np.round(np.arange(0.2, 0.91, 0.02), 2)
_PASSED = (0.01, 0.02, 0.05, 0.1, 0.2)  # share of healthy rows that reach the trees
_DECILES = np.arange(0.1, 0.91, 0.1)

LIFELONG = ("_lifetime", "_decayed_7d")
"""Ends of names of features that count since a part was made. In a recording of days the parts that
have any are those that failed in it; in a fleet sound parts have counted for years. So they teach
nothing: what they counted lately has features of its own."""

_FEW = 0.999  # of healthy rows are within a spread of a feature
_FEWER = 0.9999  # of healthy rows are within the distance that is taken times _ROOM
_ROOM = 1.5
_LEAST_DISTANCE = 3.0
_NEVER = 1e12  # spread of a feature that training never saw, or may not: it is strange nowhere

_LEAST_SPREADS: Mapping[str, float] = {
    "celsius": 5.0,
    "watts": 50.0,
    "ratio": 0.2,
    "seconds": 60.0,
    "seconds_1h": 60.0,
    "seconds_24h": 600.0,
    "1h": 3.0,
    "24h": 3.0,
}
"""By the end of a feature's name: nearer than this is not strange, however still it always was."""

Bools = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """All of a model that is no tree and no calibration.

    Attributes:
        operating_point: Probability from which it says suspect.
        first_stage: Who reaches the trees.
        novelty: What it learnt from.
        quantiles: Deciles of each feature over healthy rows; () of one that was always missing.
        missing: Share of healthy rows that lacked each feature.
    """

    operating_point: float
    first_stage: FirstStage
    novelty: Novelty
    quantiles: tuple[tuple[float, ...], ...]
    missing: tuple[float, ...]


def surroundings_of(
    dataset: Dataset,
    features: FeatureSet,
    train: Bools,
    calibrate: Bools,
    scores: Numbers,
    denser: float = 1.0,
) -> Surroundings:
    """Work them out; healthy rows of training nodes say what is ordinary.

    Args:
        dataset: All rows.
        features: Its columns.
        train: Rows of nodes that trained, shape (N,).
        calibrate: Rows of nodes that calibrated, shape (N,).
        scores: Probability of every row, shape (N,).
        denser: How many times as often as in life these rows show what only looks like a fault.
    """
    ordinary = dataset.usable & ~labelled(dataset)
    healthy = dataset.matrix[train & ordinary].astype(np.float64)
    point = operating_point(dataset, calibrate, scores, denser * ADVICE_A_DAY)
    known = [column[~np.isnan(column)] for column in healthy.T]
    return Surroundings(
        operating_point=point,
        first_stage=first_stage_of(dataset, features, healthy, train | calibrate, scores >= point),
        novelty=novelty_of(features, healthy, dataset.matrix[calibrate & ordinary]),
        quantiles=tuple(_deciles(column) for column in known),
        missing=tuple(np.isnan(healthy).mean(axis=0).tolist()) if healthy.size else (),
    )


def operating_point(dataset: Dataset, rows: Bools, scores: Numbers, a_day: float) -> float:
    """Lowest probability at which these rows have so many false episodes a day at most."""
    healthy = rows & ~labelled(dataset)
    allowed = a_day * days(dataset, healthy)
    for point in _OPERATING_POINTS.tolist():
        if episodes(dataset, healthy & (scores >= point)) <= allowed:
            return float(point)
    return float(_OPERATING_POINTS[-1])


def first_stage_of(
    dataset: Dataset, features: FeatureSet, healthy: Numbers, rows: Bools, flags: Bools
) -> FirstStage:
    """Limits on the cheap features that keep healthy rows from the trees, and hardly an incident.

    Args:
        dataset: All rows.
        features: Its columns.
        healthy: Features of healthy rows, shape (M, F).
        rows: Rows by whose incidents the loss is judged, shape (N,).
        flags: Rows that the trees flag, shape (N,).
    """
    cheap = [
        place
        for place, feature in enumerate(features.features)
        if feature.cheap and feature.monotone == 1 and not np.isnan(healthy[:, place]).all()
    ]
    found = sum(lead is not None for _, lead in leads_of(dataset, rows, flags))
    stages: list[tuple[float, FirstStage]] = []
    for passed in _PASSED if cheap else ():
        share = 1.0 - passed / len(cheap)
        limits = [float(np.nanquantile(healthy[:, c], share, method="higher")) for c in cheap]
        stage = FirstStage(np.array(cheap, np.int64), np.array(limits))
        seen = flags & stage.suspects(dataset.matrix)
        left = sum(lead is not None for _, lead in leads_of(dataset, rows, seen))
        stages.append(((found - left) / max(found, 1), stage))
    for most in LOST_TO_FIRST_STAGE:
        for lost, stage in stages:
            if lost <= most:
                return stage
    return EVERYONE


def novelty_of(features: FeatureSet, healthy: Numbers, others: NDArray[np.float32]) -> Novelty:
    """The cloud of healthy rows; its limit is far beyond what others' healthy rows reach.

    Args:
        features: Their columns.
        healthy: Features of healthy rows, shape (M, F).
        others: Features of healthy rows of other nodes, shape (K, F).
    """
    center, spread = np.zeros(len(features)), np.full(len(features), _NEVER)
    sign = np.array([feature.monotone for feature in features.features], np.float64)
    for place, name in enumerate(features.names):
        column = healthy[:, place]
        column = column[~np.isnan(column)]
        if column.size == 0 or name.endswith(LIFELONG):
            continue
        low, center[place], high = np.quantile(column, (1.0 - _FEW, 0.5, _FEW))
        above, below = high - center[place], center[place] - low
        wide = {1.0: above, -1.0: below}.get(float(sign[place]), max(above, below))
        spread[place] = max(wide, _least_spread(name))
    cloud = Novelty(center, spread, sign, 1.0)
    seen = [cloud.distances(rows) for rows in (healthy, others) if len(rows)]
    limit = max((float(np.quantile(one, _FEWER)) for one in seen), default=0.0)
    return Novelty(center, spread, sign, max(_ROOM * limit, _LEAST_DISTANCE))


def _least_spread(name: str) -> float:
    for ending in ("_".join(name.split("_")[-2:]), name.split("_")[-1]):
        if ending in _LEAST_SPREADS:
            return _LEAST_SPREADS[ending]
    return 1.0


def _deciles(column: Numbers) -> tuple[float, ...]:
    if column.size == 0:
        return ()
    return tuple(float(f"{value:.6g}") for value in np.quantile(column, _DECILES))
