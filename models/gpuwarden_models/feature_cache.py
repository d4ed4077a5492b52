"""Features of a recording, worked out once: what training, baselines and ablations share."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.recording_tables import LabelRow, RecordingError
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_wire.metrics import EntityKind

CACHE_VERSION = 1
"""Raised whenever the same recording gives other rows."""

_HEADER = "header"


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """Where rows come from.

    Attributes:
        name: Folder of the recording.
        digest: SHA-256 over its files, hex.
        start: Epoch seconds of the first reading.
        end: Epoch seconds of the last.
        interval_s: Time between readings.
        step_s: Time between two rows of an entity.
        nodes: Number of nodes.
        gpus: Number of GPUs at a time; a part that replaced another one is not counted twice.
        origin: "simulated" or what else made it, "" where it does not say.
        generator: Program that made it up, "" where nothing is made up.
        parameters_sha256: Of that program's parameters, "" where it does not say.
        seed: Its seed, None where it does not say.
        common_causes: Whether what many entities show together was simulated too.
        variation: How a simulated one departs from the usual, by the simulator's words.
    """

    name: str
    digest: str
    start: float
    end: float
    interval_s: float
    step_s: float
    nodes: int
    gpus: int
    origin: str = ""
    generator: str = ""
    parameters_sha256: str = ""
    seed: int | None = None
    common_causes: bool = False
    variation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        """Length."""
        return (self.end - self.start + self.interval_s) / 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class KindRows:
    """Rows of all entities of a kind, an entity's together and in order of time.

    Attributes:
        kind: The kind.
        refs: Entities.
        matrix: Features, float32, shape (N, F), columns as the kind's set; NaN where missing.
        entity: Index into `refs`, rising, shape (N,).
        at: Epoch seconds, shape (N,).
        silent: Whether the entity no longer answered at that time, shape (N,).
    """

    kind: EntityKind
    refs: tuple[EntityRef, ...]
    matrix: NDArray[np.float32]
    entity: NDArray[np.int64]
    at: NDArray[np.float64]
    silent: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureCache:
    """All rows of one recording, and its truth.

    Attributes:
        facts: Where they come from.
        labels: Rows of labels.csv, of all kinds.
        kinds: Rows by kind.
    """

    facts: RecordingFacts
    labels: tuple[LabelRow, ...]
    kinds: Mapping[EntityKind, KindRows]


class _Header(msgspec.Struct, frozen=True):
    version: int
    schemas: dict[str, str]
    facts: RecordingFacts
    labels: tuple[LabelRow, ...]


def write_cache(path: Path, cache: FeatureCache) -> None:
    """Write all of it as one archive; a reader never sees half of one."""
    schemas = {kind.value: FEATURE_SETS[kind].schema_hash for kind in cache.kinds}
    header = _Header(CACHE_VERSION, schemas, cache.facts, cache.labels)
    arrays: dict[str, NDArray[np.generic]] = {_HEADER: _bytes(header)}
    for kind, rows in cache.kinds.items():
        arrays[f"{kind.value}.refs"] = _bytes([[ref.key, ref.node_id] for ref in rows.refs])
        for name in ("matrix", "entity", "at", "silent"):
            arrays[f"{kind.value}.{name}"] = getattr(rows, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    unfinished.replace(path)


def read_cache(path: Path) -> FeatureCache | None:
    """What was written there; None where there is nothing, or rows of other features.

    Raises:
        RecordingError: The archive is cut short or damaged; says to delete it.
    """
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            header = msgspec.json.decode(archive[_HEADER].tobytes(), type=_Header)
            if header.version != CACHE_VERSION or not _is_ours(header.schemas):
                return None
            kinds = {kind: _rows(archive, kind) for kind in map(EntityKind, header.schemas)}
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RecordingError(
            f"{path}: cannot be read ({error}); delete it: it is made anew from the recording"
        ) from error
    return FeatureCache(header.facts, header.labels, kinds)


def _is_ours(schemas: Mapping[str, str]) -> bool:
    return schemas == {kind.value: one.schema_hash for kind, one in FEATURE_SETS.items()}


def _rows(archive: Mapping[str, NDArray[np.generic]], kind: EntityKind) -> KindRows:
    refs: Sequence[Sequence[str]] = msgspec.json.decode(archive[f"{kind.value}.refs"].tobytes())
    return KindRows(
        kind,
        tuple(EntityRef(kind, key, node) for key, node in refs),
        archive[f"{kind.value}.matrix"].astype(np.float32, copy=False),
        archive[f"{kind.value}.entity"].astype(np.int64, copy=False),
        archive[f"{kind.value}.at"].astype(np.float64, copy=False),
        archive[f"{kind.value}.silent"].astype(np.bool_, copy=False),
    )


def _bytes(value: object) -> NDArray[np.uint8]:
    return np.frombuffer(msgspec.json.encode(value), np.uint8)
