"""`gpuwarden train`: from a recording to a model folder that the server can load."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from gpuwarden_models.card import write_card
from gpuwarden_models.datasets import Dataset, build_dataset
from gpuwarden_models.export import PlainModel, artifact_files, plain_model
from gpuwarden_models.measures import THRESHOLD, Measures, measure
from gpuwarden_models.recording import Recording
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion.artifact import decode_model
from gpuwarden_verdict.fusion.predict import log_odds, probability
from gpuwarden_wire.metrics import EntityKind

MODEL_NAME = "gpu"
PROMOTED = "PROMOTED"
"""File beside the versions that names the one in use by default."""

_FEATURES = FEATURE_SETS[EntityKind.GPU]
_FEWEST_NODES = 5
_FEWEST_POSITIVE_ROWS = 20
_PARTS = (0.6, 0.2)  # share of nodes that train, that calibrate; the rest measures


class TrainingError(Exception):
    """A recording that teaches nothing; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What came out.

    Attributes:
        version: Name of the model.
        folder: Where it was written.
        held_out: Figures on nodes that neither trained nor calibrated.
        rows: Training rows.
        positive_rows: Of these, such that need action.
        simulated: Whether the recording says that it was simulated.
        seconds: Wall time.
    """

    version: str
    folder: Path
    held_out: Measures
    rows: int
    positive_rows: int
    simulated: bool
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows by the part their node was dealt to."""

    train: NDArray[np.bool_]
    calibrate: NDArray[np.bool_]
    held_out: NDArray[np.bool_]


def train(
    recording: Path,
    out: Path,
    seed: int,
    *,
    horizon_s: float = 3600.0,
    sample_every_s: float = 120.0,
    trees: int = 120,
) -> TrainReport:
    """Train the GPU model and write its folder `out/VERSION`.

    Nodes, not rows, are dealt out: 60 % train, 20 % calibrate, 20 % measure.

    Args:
        recording: Folder as docs describe it, with labels.csv.
        out: Folder of the model's versions.
        seed: Deals the nodes out; equal arguments give equal bytes.
        horizon_s: The probability speaks of needing action within this time.
        sample_every_s: Time between rows of a GPU.
        trees: Boosting rounds.

    Raises:
        RecordingError: The recording cannot be read; the message names the file and the mend.
        TrainingError: It has too few nodes or faults to learn from.
    """
    began = time.monotonic()
    opened = Recording(recording)
    dataset = build_dataset(opened, horizon_s, sample_every_s)
    split = deal_nodes(dataset, seed)
    _check_split(recording, dataset, split)
    plain = plain_model(fit(dataset, split, trees))
    if not plain.slope > 0:
        raise TrainingError(
            f"{recording}: on the calibration nodes a higher score does not mean more faults;"
            " record longer or more nodes"
        )
    version = _version(plain)
    scores = _scores(plain, version, horizon_s, dataset.matrix)
    held_out = measure(dataset, split.held_out, scores)
    simulated = opened.origin == "simulated"
    facts = _facts(opened, dataset, split, held_out, seed, horizon_s)
    files = artifact_files(
        plain,
        name=MODEL_NAME,
        version=version,
        horizon_s=horizon_s,
        metrics=facts,
        card=write_card(version, facts),
    )
    _write(out / version, files)
    return TrainReport(
        version=version,
        folder=out / version,
        held_out=held_out,
        rows=int((split.train & dataset.usable).sum()),
        positive_rows=int((split.train & dataset.needed).sum()),
        simulated=simulated,
        seconds=time.monotonic() - began,
    )


def promote(models: Path, version: str) -> None:
    """Make a version the one in use by default.

    Args:
        models: Folder of the model's versions.
        version: Which.

    Raises:
        ModelError: The version is damaged or of another feature schema.
        FileNotFoundError: There is no such version.
    """
    folder = models / version
    decode_model({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    (models / PROMOTED).write_text(f"{version}\n", encoding="utf-8")


def deal_nodes(dataset: Dataset, seed: int) -> Split:
    """Deal whole nodes out to training, calibration and measuring."""
    nodes = np.unique(dataset.node)
    order = np.random.default_rng(seed).permutation(nodes.size)
    bounds = np.round(np.cumsum(_PARTS) * nodes.size).astype(int)
    parts = np.split(nodes[order], bounds)
    masks = [np.isin(dataset.node, part) for part in parts]
    return Split(*masks)


def fit(dataset: Dataset, split: Split, trees: int) -> CalibratedClassifierCV:
    """The classifier, monotone in every feature, and its sigmoid from other nodes."""
    classifier = HistGradientBoostingClassifier(
        max_iter=trees,
        learning_rate=0.08,
        max_leaf_nodes=10,
        min_samples_leaf=60,
        l2_regularization=1.0,
        early_stopping=False,
        monotonic_cst=[feature.monotone for feature in _FEATURES.features],
        random_state=0,
    )
    rows = split.train & dataset.usable
    classifier.fit(dataset.matrix[rows], dataset.needed[rows])
    rows = split.calibrate & dataset.usable
    calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), method="sigmoid")
    calibrated.fit(dataset.matrix[rows], dataset.needed[rows])
    return calibrated


def _scores(
    plain: PlainModel, version: str, horizon_s: float, matrix: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Scores by the predictor that serves: what is measured is what will run."""
    files = artifact_files(
        plain, name=MODEL_NAME, version=version, horizon_s=horizon_s, metrics={}, card=""
    )
    return probability(log_odds(decode_model(files), matrix))


def _check_split(recording: Path, dataset: Dataset, split: Split) -> None:
    if not dataset.labels:
        raise TrainingError(
            f"{recording / 'labels.csv'}: no gpu row with action_needed yes;"
            " without known faults there is nothing to learn"
        )
    nodes = np.unique(dataset.node).size
    if nodes < _FEWEST_NODES:
        raise TrainingError(
            f"{recording}: {nodes} nodes, at least {_FEWEST_NODES} are needed to train, calibrate"
            " and measure on different ones"
        )
    for name, rows in (("train", split.train), ("calibrate", split.calibrate)):
        positive = int((rows & dataset.needed).sum())
        if positive < _FEWEST_POSITIVE_ROWS:
            raise TrainingError(
                f"{recording}: only {positive} rows of the nodes that {name} need action, at least"
                f" {_FEWEST_POSITIVE_ROWS} are wanted: record longer or more nodes, or try another"
                " seed"
            )


def _version(plain: PlainModel) -> str:
    digest = hashlib.sha256()
    for name in sorted(plain.arrays):
        digest.update(name.encode() + plain.arrays[name].tobytes())
    digest.update(repr((plain.baseline, plain.slope, plain.offset)).encode())
    return f"{MODEL_NAME}-{digest.hexdigest()[:10]}"


def _facts(
    opened: Recording,
    dataset: Dataset,
    split: Split,
    held_out: Measures,
    seed: int,
    horizon_s: float,
) -> Mapping[str, object]:
    return {
        "simulated": opened.origin == "simulated",
        "feature_schema": _FEATURES.schema_hash,
        "horizon_s": horizon_s,
        "threshold": THRESHOLD,
        "seed": seed,
        "sample_every_s": dataset.interval_s,
        "trained_on": {
            "nodes": len(opened.nodes),
            "gpus": len(dataset.gpus),
            "hours": round((opened.end - opened.start + opened.interval_s) / 3600.0, 3),
            "interval_s": opened.interval_s,
            "recording_seed": opened.seed,
            **({"common_causes": True} if opened.common_causes else {}),
            "incidents": len(dataset.labels),
            "train_rows": int((split.train & dataset.usable).sum()),
            "train_positive_rows": int((split.train & dataset.needed).sum()),
            "calibration_rows": int((split.calibrate & dataset.usable).sum()),
        },
        "held_out_nodes": asdict(held_out),
    }


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
