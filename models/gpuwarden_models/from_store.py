"""`gpuwarden train --from-store`: what a fleet's own incidents teach the promoted model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from gpuwarden_models.card import write_refit_card
from gpuwarden_models.export import PlainModel, artifact_files, version_of
from gpuwarden_models.fitting import Split, deal_nodes, fit_plain, scores
from gpuwarden_models.measures import Measures, measure
from gpuwarden_models.store_rows import Fetched, counted_by_class, read_fetched
from gpuwarden_models.surroundings import Surroundings, surroundings_of
from gpuwarden_models.train import TrainingError, TrainReport, write_version
from gpuwarden_verdict.fusion import FusionModel, decode_model
from gpuwarden_verdict.fusion.novelty import Novelty
from gpuwarden_verdict.fusion.trees import TREE_ARRAYS, trees_from_arrays

FEWEST_INCIDENTS = 20
"""Labelled incidents from which calibration and operating point follow the fleet."""

FEWEST_FOR_TREES = 200
"""Faults from which the trees are grown anew, from the fleet's rows alone."""

_LOWEST, _HIGHEST = 0.02, 0.98
_UNREGULARISED = 1e6
_MOST_STEPS = 1000


def retrain(fetched: Path, promoted: Path, out: Path, seed: int) -> TrainReport:
    """Refit a promoted model to what people said of a fleet's incidents.

    From FEWEST_INCIDENTS labelled incidents on, the sigmoid is fitted anew over the same trees and
    the operating point is the costs'; from FEWEST_FOR_TREES faults on, trees are grown anew too.
    One node in five measures only.

    Args:
        fetched: Folder of labels.jsonl, feature-rows.jsonl and costs.json, as a server gives them.
        promoted: Folder of the version that serves.
        out: Folder of the models; the new version goes to `out/KIND/VERSION`.
        seed: Deals the nodes out.

    Raises:
        ModelError: The promoted version must not be used.
        StoreError: A fetched file is missing or broken.
        TrainingError: There are too few labels or rows; says how many are wanted.
    """
    began = time.monotonic()
    model = decode_model({path.name: path.read_bytes() for path in sorted(promoted.iterdir())})
    told = read_fetched(fetched, model)
    dataset = told.dataset
    split = deal_nodes(dataset, seed)
    learns = (split.train | split.calibrate | (~split.held_out)) & dataset.usable
    _check(told, learns)
    if told.faults >= FEWEST_FOR_TREES:
        plain, around = _grown(told, model, split)
    else:
        plain, around = _refitted(told, model, learns)
    if not plain.slope > 0:
        raise TrainingError(
            "on this fleet's incidents a higher score does not mean more faults: check the labels,"
            " or train from recordings"
        )
    chance = scores(plain, dataset.matrix)
    held_out = measure(dataset, split.held_out, chance, chance >= around.operating_point)
    version = version_of(plain, around, model.features)
    facts = _facts(told, model, plain, around, held_out, seed)
    files = artifact_files(
        plain,
        around,
        features=model.features,
        version=version,
        horizon_s=model.horizon_s,
        alarms_per_entity_day=None,
        metrics=facts,
        card=write_refit_card(version, model.features, facts),
    )
    folder = out / model.kind.value / version
    write_version(folder, files)
    return TrainReport(
        kind=model.kind,
        version=version,
        folder=folder,
        held_out=held_out,
        rows=int(learns.sum()),
        positive_rows=int((learns & dataset.needed).sum()),
        simulated=False,
        seconds=time.monotonic() - began,
    )


def _check(told: Fetched, learns: NDArray[np.bool_]) -> None:
    if told.labelled < FEWEST_INCIDENTS:
        late = f" ({told.acted} more were excluded before any was kept)" if told.acted else ""
        raise TrainingError(
            f"{told.labelled} incidents of kind {told.dataset.kind} are labelled and have rows"
            f" that teach{late}, at least {FEWEST_INCIDENTS} are wanted: label more with"
            " `gpuwarden verdict`, or train from recordings"
        )
    positive = int((learns & told.dataset.needed).sum())
    if positive == 0 or positive == int(learns.sum()):
        raise TrainingError(
            f"of {int(learns.sum())} kept rows {positive} belong to faults: both faulty and healthy"
            " rows are wanted; wait until the server has kept more, or try another seed"
        )


def _refitted(
    told: Fetched, model: FusionModel, learns: NDArray[np.bool_]
) -> tuple[PlainModel, Surroundings]:
    """The same trees under a sigmoid of the fleet's own rows."""
    arrays = {name: getattr(model.trees, name) for name in TREE_ARRAYS}
    plain = PlainModel(arrays, model.baseline, model.slope, model.offset)
    return _calibrated(plain, told, learns), Surroundings(
        operating_point=_operating_point(told, model),
        first_stage=model.first_stage,
        novelty=model.novelty or _never(model),
        quantiles=model.quantiles,
        missing=model.missing_share,
    )


def _grown(told: Fetched, model: FusionModel, split: Split) -> tuple[PlainModel, Surroundings]:
    """Trees of the fleet's own rows; what is ordinary is what its healthy rows show."""
    dataset = told.dataset
    teaches = split.calibrate & dataset.usable
    plain = _calibrated(fit_plain(dataset, model.features, split), told, teaches)
    chance = scores(plain, dataset.matrix)
    around = surroundings_of(dataset, model.features, split.train, split.calibrate, chance)
    return plain, replace(around, operating_point=_operating_point(told, model))


def _calibrated(plain: PlainModel, told: Fetched, rows: NDArray[np.bool_]) -> PlainModel:
    """The same trees under a sigmoid of these rows, each by how many it stands for."""
    trees = trees_from_arrays(plain.arrays, told.dataset.matrix.shape[1])
    raw = plain.baseline + trees.sum_of_leaves(told.dataset.matrix[rows])
    weights = told.weights[rows] / told.weights[rows].mean()
    sigmoid = LogisticRegression(C=_UNREGULARISED, max_iter=_MOST_STEPS)
    sigmoid.fit(raw[:, None], told.dataset.needed[rows], weights)
    slope, offset = float(sigmoid.coef_[0, 0]), float(sigmoid.intercept_[0])
    return replace(plain, slope=slope, offset=offset)


def _operating_point(told: Fetched, model: FusionModel) -> float:
    point = model.operating_point if told.costs is None else told.costs.operating_point
    return min(max(point, _LOWEST), _HIGHEST)


def _never(model: FusionModel) -> Novelty:
    """What the promoted version does not say: nothing is strange."""
    size = len(model.features)
    return Novelty(np.zeros(size), np.full(size, 1e12), np.ones(size), 1.0)


def _facts(
    told: Fetched,
    model: FusionModel,
    plain: PlainModel,
    around: Surroundings,
    held_out: Measures,
    seed: int,
) -> Mapping[str, Any]:
    dataset = told.dataset
    return {
        "kind": model.kind.value,
        "simulated": False,
        "feature_schema": model.schema_hash,
        "horizon_s": model.horizon_s,
        "operating_point": around.operating_point,
        "seed": seed,
        "trees": int(plain.arrays["roots"].size),
        "refitted_from": model.version,
        "operating_point_before": model.operating_point,
        "trees_grown_anew": told.faults >= FEWEST_FOR_TREES,
        "costs": None
        if told.costs is None
        else {
            "gpu_hour_false_exclusion": told.costs.gpu_hour_false_exclusion,
            "gpu_hour_missed_fault": told.costs.gpu_hour_missed_fault,
        },
        "trained_on": {
            "rows": int(dataset.at.size),
            "entities": len(dataset.refs),
            "labelled_incidents": told.labelled,
            "faults": told.faults,
            "by_class": counted_by_class(dataset.cases),
        },
        "held_out_nodes": asdict(held_out),
    }
