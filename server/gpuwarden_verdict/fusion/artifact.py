"""A model from the bytes of its folder, every byte checked before it is believed."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion.explain import PathTable, path_table
from gpuwarden_verdict.fusion.trees import Trees, trees_from_arrays
from gpuwarden_wire.metrics import EntityKind

_S = TypeVar("_S", bound=msgspec.Struct)

_FEATURES = FEATURE_SETS[EntityKind.GPU]

MANIFEST = "MANIFEST.json"
ARTIFACT_FORMAT = "gpuwarden-fusion"
ARTIFACT_VERSION = 1


class ModelError(Exception):
    """A model that must not be used; the message says why and what to do."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """MANIFEST.json: SHA-256 of every other file, hex."""

    format: str
    format_version: int
    model: str
    version: str
    files: dict[str, str]


class FeatureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One feature in features.json."""

    name: str
    plane: str
    monotone: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Sigmoid calibration: log-odds = slope x raw score + offset; slope > 0."""

    slope: float
    offset: float


class FeatureSheet(msgspec.Struct, frozen=True, kw_only=True):
    """features.json: what the model's columns are and how its score is calibrated."""

    schema_hash: str
    features: tuple[FeatureEntry, ...]
    horizon_s: float
    calibration: Calibration
    baseline: float


@dataclass(frozen=True, eq=False)
class FusionModel:
    """A checked model.

    Attributes:
        name: "gpu".
        version: Names the artifact.
        schema_hash: Feature schema.
        horizon_s: The probability speaks of needing action within this time.
        trees: Trees; their sum is added to `baseline` to give the raw score.
        baseline: Raw score before any tree.
        slope: Calibration: log-odds = slope x raw + offset.
        offset: See `slope`.
    """

    name: str
    version: str
    schema_hash: str
    horizon_s: float
    trees: Trees
    baseline: float
    slope: float
    offset: float

    @cached_property
    def paths(self) -> PathTable:
        """What explanations need, made from the trees on first use."""
        return path_table(self.trees)


def decode_model(files: Mapping[str, bytes]) -> FusionModel:
    """The model in the files of one artifact folder.

    Args:
        files: Content by file name; MANIFEST.json names what there must be.

    Raises:
        ModelError: A file is missing, altered, of another format, or of another feature schema.
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
    _check_schema(manifest, sheet)
    if not sheet.calibration.slope > 0:
        raise ModelError(
            f"model {manifest.version}: its calibration turns the score around; retrain it"
        )
    return FusionModel(
        name=manifest.model,
        version=manifest.version,
        schema_hash=sheet.schema_hash,
        horizon_s=sheet.horizon_s,
        trees=_trees(files["model.npz"], manifest.version),
        baseline=sheet.baseline,
        slope=sheet.calibration.slope,
        offset=sheet.calibration.offset,
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


def _check_schema(manifest: Manifest, sheet: FeatureSheet) -> None:
    expected = tuple((f.name, f.plane.value, f.monotone) for f in _FEATURES.features)
    given = tuple((f.name, f.plane, f.monotone) for f in sheet.features)
    if sheet.schema_hash == _FEATURES.schema_hash and given == expected:
        return
    names = {f.name for f in sheet.features} ^ set(_FEATURES.names)
    differing = f" (differ in {', '.join(sorted(names))})" if names else ""
    raise ModelError(
        f"model {manifest.version} was trained on feature schema {sheet.schema_hash}, this"
        f" gpuwarden computes {_FEATURES.schema_hash}{differing}: retrain it with"
        " `gpuwarden train`, or pick another version"
    )


def _trees(content: bytes, version: str) -> Trees:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays: dict[str, npt.NDArray[np.generic]] = {name: archive[name] for name in archive}
        return trees_from_arrays(arrays, len(_FEATURES))
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"model {version}: model.npz cannot be read ({error}); retrain, or pick another version"
        ) from error


def _decode(content: bytes, kind: type[_S], name: str) -> _S:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ModelError(f"{name}: {error}; retrain the model, or pick another version") from error
