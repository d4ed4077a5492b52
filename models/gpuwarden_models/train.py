"""`gpuwarden train`: from recordings to model folders that the server can load."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.card import write_card
from gpuwarden_models.datasets import SAMPLE_EVERY_S, SIMULATED, Dataset, dataset_of, extract
from gpuwarden_models.export import PlainModel, artifact_files, version_of
from gpuwarden_models.feature_cache import FeatureCache
from gpuwarden_models.fitting import TIME_CUT, TREES, Split, deal_nodes, fit_plain, scores
from gpuwarden_models.measures import Measures, days, episodes, labelled, leads_of, measure
from gpuwarden_models.simulate import Variation
from gpuwarden_models.surroundings import DENSER, Surroundings, surroundings_of
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion.artifact import decode_model
from gpuwarden_wire.metrics import EntityKind

HORIZON_S = 86_400.0
PROMOTED = "PROMOTED"
"""File beside the versions that names the one in use by default."""

_FEWEST_NODES = 5
_FEWEST_POSITIVE_ROWS = 20


class TrainingError(Exception):
    """Recordings that teach nothing; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What came out for one kind of entity.

    Attributes:
        kind: Whom the model scores.
        version: Name of the model.
        folder: Where it was written.
        held_out: Figures on nodes that neither trained nor calibrated.
        rows: Training rows.
        positive_rows: Of these, such that need action.
        simulated: Whether the recordings say that they were simulated.
        seconds: Wall time.
    """

    kind: EntityKind
    version: str
    folder: Path
    held_out: Measures
    rows: int
    positive_rows: int
    simulated: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Training:
    """What `train` has made.

    Attributes:
        reports: One a model.
        skipped: Why a kind has none, by kind.
    """

    reports: tuple[TrainReport, ...]
    skipped: Mapping[EntityKind, str]


@dataclass(frozen=True, slots=True)
class Course:
    """How to train.

    Attributes:
        seed: Deals the nodes out; equal arguments give equal bytes.
        horizon_s: The probability speaks of needing action within this time.
        step_s: Time between two rows of an entity.
        trees: Boosting rounds.
    """

    seed: int
    horizon_s: float = HORIZON_S
    step_s: float = SAMPLE_EVERY_S
    trees: int = TREES


def train(
    recordings: Sequence[Path],
    out: Path,
    course: Course,
    kinds: Sequence[EntityKind] = (),
    cache: Path | None = None,
) -> Training:
    """Train models from recordings and write their folders `out/KIND/VERSION`.

    Nodes, not rows, are dealt out: 60 % train on the first four fifths of the time, 20 % calibrate,
    20 % measure.

    Args:
        recordings: Folders as docs/recording.md describes them, with labels.csv.
        out: Folder of the models.
        course: How.
        kinds: Whom to score; none for every kind that the recordings have faults of.
        cache: Folder where features of recordings are kept; None for `out/features`.

    Raises:
        RecordingError: A recording cannot be read; the message names the file and the mend.
        TrainingError: There are too few nodes or faults of a kind that was asked for, or of all.
    """
    kept = cache if cache is not None else out / "features"
    caches = [extract(recording, kept, course.step_s) for recording in recordings]
    reports: list[TrainReport] = []
    skipped: dict[EntityKind, str] = {}
    for kind in kinds or FEATURE_SETS:
        try:
            reports.append(train_kind(caches, out, course, kind))
        except TrainingError as error:
            if kinds:
                raise
            skipped[kind] = str(error)
    if not reports:
        raise TrainingError("; ".join(skipped.values()))
    return Training(tuple(reports), skipped)


def train_kind(
    caches: Sequence[FeatureCache], out: Path, course: Course, kind: EntityKind
) -> TrainReport:
    """Train the model of one kind; see `train`.

    Raises:
        TrainingError: There are too few nodes or faults of it.
    """
    began = time.monotonic()
    dataset = dataset_of(caches, kind, course.horizon_s)
    split = deal_nodes(dataset, course.seed)
    _check(caches, dataset, split)
    features = FEATURE_SETS[kind]
    plain = fit_plain(dataset, features, split, course.trees)
    if not plain.slope > 0:
        raise TrainingError(
            f"{kind}: on the calibration nodes a higher score does not mean more faults; record"
            " longer or more nodes"
        )
    chance = scores(plain, dataset.matrix)
    denser = DENSER if all(_is_dense(cache) for cache in caches) else 1.0
    around = surroundings_of(dataset, features, split.train, split.calibrate, chance, denser)
    found = _figures(dataset, split.held_out, chance, around)
    version = version_of(plain, around, features)
    facts = _facts(caches, dataset, split, course, plain, around)
    facts |= {"held_out_nodes": asdict(found.held_out), **found.said}
    files = artifact_files(
        plain,
        around,
        features=features,
        version=version,
        horizon_s=course.horizon_s,
        alarms_per_entity_day=found.alarms_per_entity_day,
        metrics=facts,
        card=write_card(version, features, facts),
    )
    folder = out / kind.value / version
    write_version(folder, files)
    return TrainReport(
        kind=kind,
        version=version,
        folder=folder,
        held_out=found.held_out,
        rows=int((split.train & dataset.usable).sum()),
        positive_rows=int((split.train & dataset.needed & dataset.usable).sum()),
        simulated=all(cache.facts.origin == SIMULATED for cache in caches),
        seconds=time.monotonic() - began,
    )


def promote(models: Path, version: str) -> None:
    """Make a version the one in use by default.

    Args:
        models: Folder of one kind's versions.
        version: Which.

    Raises:
        ModelError: The version is damaged or of another feature schema.
        FileNotFoundError: There is no such version.
    """
    folder = models / version
    decode_model({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    (models / PROMOTED).write_text(f"{version}\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Figures:
    held_out: Measures
    alarms_per_entity_day: float | None
    said: dict[str, Any]


def _figures(
    dataset: Dataset,
    rows: NDArray[np.bool_],
    chance: NDArray[np.float64],
    around: Surroundings,
) -> _Figures:
    """Figures of what will run: what the first stage holds back is never flagged."""
    passed = around.first_stage.suspects(dataset.matrix)
    by_trees = chance >= around.operating_point
    flags = by_trees & passed
    strange = passed & (around.novelty.distances(dataset.matrix) >= 1.0)
    ordinary = rows & dataset.usable & ~labelled(dataset)
    later = rows & (dataset.share >= TIME_CUT)
    found = _found(dataset, rows, flags)
    said = {
        "held_out_nodes_after_the_cut": asdict(measure(dataset, later, chance, flags)),
        "first_stage": {
            "limits": int(around.first_stage.columns.size),
            "healthy_rows_passed": float(passed[ordinary].mean()) if ordinary.any() else 0.0,
            "incidents_found_by_all_trees": _found(dataset, rows, by_trees),
            "incidents_lost": _found(dataset, rows, by_trees) - found,
        },
        "novelty": {
            "incidents_found_by_it_alone": _found(dataset, rows, flags | strange) - found,
            "false_episodes": episodes(dataset, ordinary & strange & ~flags),
            "healthy_days": days(dataset, ordinary),
        },
    }
    watched = days(dataset, rows)
    rate = episodes(dataset, rows & flags) / watched if watched > 0 else None
    return _Figures(measure(dataset, rows, chance, flags), rate, said)


def _found(dataset: Dataset, rows: NDArray[np.bool_], flags: NDArray[np.bool_]) -> int:
    return sum(lead is not None for _, lead in leads_of(dataset, rows, flags))


def _is_dense(cache: FeatureCache) -> bool:
    facts = cache.facts
    usual = asdict(Variation())["rates"]
    return facts.origin == SIMULATED and facts.variation.get("rates", usual) == usual


def _check(caches: Sequence[FeatureCache], dataset: Dataset, split: Split) -> None:
    kind, names = dataset.kind.value, ", ".join(cache.facts.name for cache in caches)
    if not dataset.cases:
        raise TrainingError(
            f"{names}: labels.csv has no {kind} row with action_needed yes; without known faults"
            f" there is nothing to learn of entities of kind {kind}"
        )
    nodes = np.unique(dataset.node).size
    if nodes < _FEWEST_NODES:
        raise TrainingError(
            f"{names}: {nodes} nodes, at least {_FEWEST_NODES} are needed to train, calibrate and"
            " measure on different ones"
        )
    for name, rows in (("train", split.train), ("calibrate", split.calibrate)):
        positive = int((rows & dataset.needed & dataset.usable).sum())
        if positive < _FEWEST_POSITIVE_ROWS:
            raise TrainingError(
                f"{names}: only {positive} {kind} rows of the nodes that {name} need action, at"
                f" least {_FEWEST_POSITIVE_ROWS} are wanted: record longer or more nodes, or try"
                " another seed"
            )


def _facts(
    caches: Sequence[FeatureCache],
    dataset: Dataset,
    split: Split,
    course: Course,
    plain: PlainModel,
    around: Surroundings,
) -> dict[str, Any]:
    return {
        "kind": dataset.kind.value,
        "simulated": all(cache.facts.origin == SIMULATED for cache in caches),
        "feature_schema": FEATURE_SETS[dataset.kind].schema_hash,
        "horizon_s": course.horizon_s,
        "operating_point": around.operating_point,
        "confounders_denser": DENSER if all(_is_dense(cache) for cache in caches) else 1.0,
        "seed": course.seed,
        "sample_every_s": dataset.step_s,
        "trees": int(plain.arrays["roots"].size),
        "trained_on": {
            "recordings": [asdict(cache.facts) for cache in caches],
            "entities": len(dataset.refs),
            "incidents": len(dataset.cases),
            "mechanisms": _mechanisms(dataset),
            "train_rows": int((split.train & dataset.usable).sum()),
            "train_positive_rows": int((split.train & dataset.usable & dataset.needed).sum()),
            "calibration_rows": int((split.calibrate & dataset.usable).sum()),
        },
    }


def _mechanisms(dataset: Dataset) -> dict[str, int]:
    names = [case.mechanism or case.fault_class.value for case in dataset.cases]
    return {name: names.count(name) for name in sorted(set(names))}


def write_version(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of one version."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
