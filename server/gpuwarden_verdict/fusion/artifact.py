"""A model from the bytes of its folder, every byte checked before it is believed."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.features import FEATURE_SETS, FeatureSet
from gpuwarden_verdict.fusion.explain import Paths, paths_of
from gpuwarden_verdict.fusion.first_stage import EVERYONE, FirstStage
from gpuwarden_verdict.fusion.novelty import Novelty
from gpuwarden_verdict.fusion.trees import Trees, trees_from_arrays
from gpuwarden_wire.metrics import EntityKind

_S = TypeVar("_S", bound=msgspec.Struct)

MANIFEST = "MANIFEST.json"
ARTIFACT_FORMAT = "gpuwarden-fusion"
ARTIFACT_VERSION = 1

_NAMED = 5


class ModelError(Exception):
    """A model that must not be used; the message says why and what to do."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """MANIFEST.json: SHA-256 of every other file, hex; `kind` is whom it scores."""

    format: str
    format_version: int
    model: str
    version: str
    files: dict[str, str]
    kind: str = "gpu"


class FeatureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One feature in features.json."""

    name: str
    plane: str
    monotone: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Sigmoid calibration: log-odds = slope x raw score + offset; slope > 0."""

    slope: float
    offset: float


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """First stage: a row whose feature is above this is a suspect."""

    feature: str
    above: float


class NoveltySheet(msgspec.Struct, frozen=True, kw_only=True):
    """The cloud of healthy training rows: center and spread of each feature, and the limit."""

    center: tuple[float, ...]
    spread: tuple[float, ...]
    limit: float


class FeatureSheet(msgspec.Struct, frozen=True, kw_only=True):
    """features.json: what the model's columns are, and all of it that is no tree.

    `quantiles` are deciles 10 % to 90 % of each feature over healthy training rows (none of a
    feature that was always missing), `missing` the share of rows that lacked it;
    `alarms_per_entity_day` was measured at the operating point on nodes that did not train.
    """

    schema_hash: str
    features: tuple[FeatureEntry, ...]
    horizon_s: float
    calibration: Calibration
    baseline: float
    kind: str = "gpu"
    operating_point: float = 0.5
    first_stage: tuple[Limit, ...] = ()
    novelty: NoveltySheet | None = None
    quantiles: tuple[tuple[float, ...], ...] = ()
    missing: tuple[float, ...] = ()
    alarms_per_entity_day: float | None = None


@dataclass(frozen=True, eq=False)
class FusionModel:
    """A checked model.

    Attributes:
        kind: Whom it scores.
        version: Names the artifact.
        features: Its columns.
        horizon_s: The probability speaks of needing action within this time.
        trees: Trees; their sum is added to `baseline` to give the raw score.
        baseline: Raw score before any tree.
        slope: Calibration: log-odds = slope x raw + offset.
        offset: See `slope`.
        operating_point: Probability from which the score says suspect.
        first_stage: Who the trees must see.
        novelty: What it learnt from; None where the artifact does not say.
        quantiles: Deciles of each feature over healthy training rows; () where it does not say.
        missing_share: Share of training rows that lacked each feature; () likewise.
        alarms_per_entity_day: At the operating point, on nodes that did not train; None likewise.
        digest: SHA-256 of its MANIFEST.json, which holds the hashes of all else; "" for one that
            was read from no files.
    """

    kind: EntityKind
    version: str
    features: FeatureSet
    horizon_s: float
    trees: Trees
    baseline: float
    slope: float
    offset: float
    operating_point: float = 0.5
    first_stage: FirstStage = EVERYONE
    novelty: Novelty | None = None
    quantiles: tuple[tuple[float, ...], ...] = ()
    missing_share: tuple[float, ...] = ()
    alarms_per_entity_day: float | None = None
    digest: str = ""

    @property
    def schema_hash(self) -> str:
        """Feature schema."""
        return self.features.schema_hash

    @cached_property
    def paths(self) -> Paths:
        """What explanations need, made from the trees on first use."""
        return paths_of(self.trees)


FusionModels = Mapping[EntityKind, FusionModel]
"""The models in use, by whom they score; none of a kind that rules alone judge."""


def with_calibration(
    model: FusionModel, slope: float, offset: float, operating_point: float
) -> FusionModel:
    """The same trees under another calibration and operating point.

    Args:
        model: The model.
        slope: See `FusionModel`, > 0.
        offset: See `FusionModel`.
        operating_point: Between 0 and 1.
    """
    return replace(model, slope=slope, offset=offset, operating_point=operating_point)


def decode_model(files: Mapping[str, bytes], kind: EntityKind | None = None) -> FusionModel:
    """The model in the files of one artifact folder.

    Args:
        files: Content by file name; MANIFEST.json names what there must be.
        kind: Whom it must score; None for whomever it says.

    Raises:
        ModelError: A file is missing, altered, of another format, of another kind, or of another
            feature schema.
    """
    if MANIFEST not in files:
        raise ModelError(f"the model has no {MANIFEST}: retrain it, or pick another version")
    manifest = _decode(files[MANIFEST], Manifest, MANIFEST)
    if manifest.format != ARTIFACT_FORMAT or manifest.format_version != ARTIFACT_VERSION:
        raise ModelError(
            f"model {manifest.version} is in format {manifest.format} {manifest.format_version},"
            f" this gpuwarden reads {ARTIFACT_FORMAT} {ARTIFACT_VERSION}: retrain it with this"
            " gpuwarden, or pick another version"
        )
    _check_hashes(manifest, files)
    sheet = _decode(files["features.json"], FeatureSheet, "features.json")
    features = _features(manifest, sheet, kind)
    _check_schema(manifest, sheet, features)
    _check_numbers(manifest, sheet)
    return FusionModel(
        kind=features.kind,
        version=manifest.version,
        features=features,
        horizon_s=sheet.horizon_s,
        trees=_trees(files["model.npz"], manifest.version, len(features)),
        baseline=sheet.baseline,
        slope=sheet.calibration.slope,
        offset=sheet.calibration.offset,
        operating_point=sheet.operating_point,
        first_stage=_first_stage(manifest, sheet, features),
        novelty=_novelty(manifest, sheet, features),
        quantiles=sheet.quantiles,
        missing_share=sheet.missing,
        alarms_per_entity_day=sheet.alarms_per_entity_day,
        digest=hashlib.sha256(files[MANIFEST]).hexdigest(),
    )


def _check_hashes(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    for wanted in ("model.npz", "features.json", *manifest.files):
        if wanted not in manifest.files or wanted not in files:
            raise ModelError(
                f"model {manifest.version}: {wanted} is missing; copy the whole folder again,"
                " or pick another version"
            )
    for name, digest in manifest.files.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ModelError(
                f"model {manifest.version}: {name} is not what {MANIFEST} says, so it was altered"
                " or damaged: restore the folder, retrain, or pick another version"
            )


def _features(manifest: Manifest, sheet: FeatureSheet, kind: EntityKind | None) -> FeatureSet:
    """The columns of the kind that it scores."""
    kinds = {one.value: features for one, features in FEATURE_SETS.items()}
    if manifest.kind != sheet.kind or sheet.kind not in kinds:
        raise ModelError(
            f"model {manifest.version} scores {sheet.kind!r} by features.json and"
            f" {manifest.kind!r} by {MANIFEST}, and there are models of {', '.join(kinds)}:"
            " retrain it, or pick another version"
        )
    if kind is not None and sheet.kind != kind.value:
        raise ModelError(
            f"model {manifest.version} scores entities of kind {sheet.kind}, and one of kind"
            f" {kind.value} is wanted here: move it into the folder of {sheet.kind} models, or pick"
            " another version"
        )
    return kinds[sheet.kind]


def _check_schema(manifest: Manifest, sheet: FeatureSheet, features: FeatureSet) -> None:
    expected = tuple((f.name, f.plane.value, f.monotone) for f in features.features)
    given = tuple((f.name, f.plane, f.monotone) for f in sheet.features)
    if sheet.schema_hash == features.schema_hash and given == expected:
        return
    names = sorted({f.name for f in sheet.features} ^ set(features.names))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    differing = f" (differ in {', '.join(names[:_NAMED])}{more})" if names else ""
    raise ModelError(
        f"model {manifest.version} was trained on feature schema {sheet.schema_hash}, this"
        f" gpuwarden computes {features.schema_hash}{differing}: retrain it with `gpuwarden train`,"
        " or pick another version"
    )


def _check_numbers(manifest: Manifest, sheet: FeatureSheet) -> None:
    if not sheet.calibration.slope > 0:
        raise ModelError(
            f"model {manifest.version}: its calibration turns the score around; retrain it"
        )
    if not 0.0 < sheet.operating_point < 1.0:
        raise ModelError(
            f"model {manifest.version}: its operating point is {sheet.operating_point}, no"
            " probability between 0 and 1; retrain it"
        )


def _first_stage(manifest: Manifest, sheet: FeatureSheet, features: FeatureSet) -> FirstStage:
    places = {features.names[place]: place for place in features.cheap}
    unknown = [one.feature for one in sheet.first_stage if one.feature not in places]
    if unknown:
        raise ModelError(
            f"model {manifest.version}: its first stage asks for {', '.join(unknown)}, which is"
            " none of the features that cost little; retrain it"
        )
    return FirstStage(
        np.array([places[one.feature] for one in sheet.first_stage], np.int64),
        np.array([one.above for one in sheet.first_stage]),
    )


def _novelty(manifest: Manifest, sheet: FeatureSheet, features: FeatureSet) -> Novelty | None:
    if sheet.novelty is None:
        return None
    center, spread = np.array(sheet.novelty.center), np.array(sheet.novelty.spread)
    wanted = (len(features),)
    if center.shape != wanted or spread.shape != wanted or not (spread > 0).all():
        raise ModelError(
            f"model {manifest.version}: what it says of novelty does not fit its"
            f" {len(features)} features; retrain it"
        )
    sign = np.array([feature.monotone for feature in features.features], np.float64)
    return Novelty(center, spread, sign, sheet.novelty.limit)


def _trees(content: bytes, version: str, features: int) -> Trees:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays: dict[str, npt.NDArray[np.generic]] = {name: archive[name] for name in archive}
        return trees_from_arrays(arrays, features)
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(
            f"model {version}: model.npz cannot be read ({error}); copy the whole folder again,"
            " retrain, or pick another version"
        ) from error


def _decode(content: bytes, kind: type[_S], name: str) -> _S:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ModelError(f"{name}: {error}; retrain the model, or pick another version") from error
