"""From scikit-learn's classifier to the plain arrays that the server reads."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier

from gpuwarden_models.surroundings import Surroundings
from gpuwarden_verdict.features import FeatureSet
from gpuwarden_verdict.fusion.artifact import ARTIFACT_FORMAT, ARTIFACT_VERSION, MANIFEST
from gpuwarden_verdict.fusion.trees import TREE_ARRAYS


@dataclass(frozen=True, slots=True, eq=False)
class PlainModel:
    """A calibrated classifier without scikit-learn.

    Attributes:
        arrays: Trees by name, as `fusion.trees.TREE_ARRAYS`.
        baseline: Raw score before any tree.
        slope: log-odds = slope x raw + offset.
        offset: See `slope`.
    """

    arrays: Mapping[str, NDArray[np.generic]]
    baseline: float
    slope: float
    offset: float


def plain_model(calibrated: CalibratedClassifierCV) -> PlainModel:
    """Take a binary, sigmoid-calibrated HistGradientBoostingClassifier apart.

    scikit-learn has no public view of its trees; what is read here is held to predict_proba by a
    test, so that a version that changes it fails there.

    Args:
        calibrated: Fitted with one frozen estimator and method "sigmoid".
    """
    (member,) = calibrated.calibrated_classifiers_
    (sigmoid,) = member.calibrators
    classifier: HistGradientBoostingClassifier = member.estimator.estimator
    nodes = [tree.nodes for (tree,) in classifier._predictors]
    sizes = np.array([tree.size for tree in nodes])
    roots = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    every = np.concatenate(nodes)
    shift = np.repeat(roots, sizes)
    leaf = every["is_leaf"].astype(np.bool_)
    arrays: dict[str, NDArray[np.generic]] = {
        "roots": roots.astype(np.int32),
        "feature": np.where(leaf, 0, every["feature_idx"]).astype(np.int32),
        "threshold": np.where(leaf, 0.0, every["num_threshold"]),
        "missing_left": every["missing_go_to_left"].astype(np.bool_),
        "left": np.where(leaf, 0, every["left"] + shift).astype(np.int32),
        "right": np.where(leaf, 0, every["right"] + shift).astype(np.int32),
        "leaf": leaf,
        "value": np.where(leaf, every["value"], 0.0),
        "cover": every["count"].astype(np.float64),
    }
    # Platt's sigmoid in scikit-learn: p = 1 / (1 + exp(a f + b)), f the classifier's raw score.
    return PlainModel(
        arrays=arrays,
        baseline=float(np.ravel(classifier._baseline_prediction)[0]),
        slope=-float(sigmoid.a_),
        offset=-float(sigmoid.b_),
    )


def artifact_files(
    model: PlainModel,
    around: Surroundings,
    *,
    features: FeatureSet,
    version: str,
    horizon_s: float,
    alarms_per_entity_day: float | None,
    metrics: Mapping[str, object],
    card: str,
) -> dict[str, bytes]:
    """Content of an artifact folder by file name; equal models give equal bytes.

    Args:
        model: The classifier as arrays.
        around: What stands around it.
        features: Its columns.
        version: Names the folder.
        horizon_s: What the probability speaks of.
        alarms_per_entity_day: At the operating point on nodes that did not train; None unknown.
        metrics: For metrics.json.
        card: For card.md.
    """
    kind = features.kind.value
    sheet = {
        **_sheet(model, around, features),
        "horizon_s": horizon_s,
        "alarms_per_entity_day": alarms_per_entity_day,
    }
    files = {
        "model.npz": _npz({name: model.arrays[name] for name in TREE_ARRAYS}),
        "features.json": _json(sheet),
        "metrics.json": _json(metrics),
        "card.md": card.encode(),
    }
    manifest = {
        "format": ARTIFACT_FORMAT,
        "format_version": ARTIFACT_VERSION,
        "model": kind,
        "kind": kind,
        "version": version,
        "files": {path: hashlib.sha256(content).hexdigest() for path, content in files.items()},
    }
    return {**files, MANIFEST: _json(manifest)}


def _sheet(model: PlainModel, around: Surroundings, features: FeatureSet) -> dict[str, object]:
    stage, novelty = around.first_stage, around.novelty
    limits = zip(stage.columns.tolist(), stage.limits.tolist(), strict=True)
    return {
        "schema_hash": features.schema_hash,
        "features": [
            {"name": f.name, "plane": f.plane.value, "monotone": f.monotone}
            for f in features.features
        ],
        "calibration": {"slope": model.slope, "offset": model.offset},
        "baseline": model.baseline,
        "kind": features.kind.value,
        "operating_point": around.operating_point,
        "first_stage": [
            {"feature": features.names[column], "above": limit} for column, limit in limits
        ],
        "novelty": {
            "center": novelty.center.tolist(),
            "spread": novelty.spread.tolist(),
            "limit": novelty.limit,
        },
        "quantiles": around.quantiles,
        "missing": around.missing,
    }


def version_of(model: PlainModel, around: Surroundings, features: FeatureSet) -> str:
    """A name that says what is in a model: its kind, and a hash over all that scores."""
    digest = hashlib.sha256(features.schema_hash.encode())
    for name in sorted(model.arrays):
        digest.update(name.encode() + model.arrays[name].tobytes())
    stage, novelty = around.first_stage, around.novelty
    numbers = (model.baseline, model.slope, model.offset, around.operating_point, novelty.limit)
    digest.update(repr(numbers).encode())
    for array in (stage.columns, stage.limits, novelty.center, novelty.spread):
        digest.update(array.tobytes())
    return f"{features.kind.value}-{digest.hexdigest()[:10]}"


def _npz(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """As numpy.savez_compressed, but without the time of writing: equal arrays, equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content.getvalue())
    return buffer.getvalue()


def _json(value: Mapping[str, object]) -> bytes:
    return f"{json.dumps(value, indent=2)}\n".encode()
