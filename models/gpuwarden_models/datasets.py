"""Rows to learn from: features of recordings, with the truth beside them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.extracting import KINDS_READ, Extractor
from gpuwarden_models.feature_cache import (
    CACHE_VERSION,
    FeatureCache,
    KindRows,
    RecordingFacts,
    read_cache,
    write_cache,
)
from gpuwarden_models.recording import Recording
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_wire.metrics import EntityKind

SAMPLE_EVERY_S = 600.0
"""Time between two rows of an entity."""

SIMULATED = "simulated"
"""Origin of recordings whose labels say of every fault from when it shows."""

_READ_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A fault that needs action.

    Attributes:
        entity: Index into the dataset's `refs`.
        fault_class: Where it lies.
        mechanism: How it came about, "" where nobody says.
        precursor_start: Epoch seconds from which it may be flagged.
        start: Epoch seconds from which action is needed.
        end: Epoch seconds of its end.
    """

    entity: int
    fault_class: FaultClass
    mechanism: str
    precursor_start: float
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One row an entity and moment, of one or several recordings.

    Attributes:
        kind: Kind of the entities.
        matrix: Features, float32, shape (N, F).
        needed: Whether the entity needs action within the horizon, bool, shape (N,).
        usable: False for rows that teach nothing: a precursor further off than the horizon, and an
            entity that no longer answers. Of that one most features are missing, and the model
            would learn that a missing reading is a fault, which it is not where a GPU lacks it.
        traceless: Rows before a made-up fault shows anything, though action is needed within the
            horizon: they teach nothing save chance, and faults are so dense in what is made up that
            they would be in every healthy entity's probability. Of real faults nobody knows when
            they began to show, so none of their rows is left out.
        entity: Index into `refs`, rising, shape (N,).
        at: Epoch seconds, rising within an entity, shape (N,).
        share: How far into its recording each row lies, 0..1, shape (N,).
        refs: All entities; the same name in two recordings is two entities.
        recordings: Number of the recording of each entity, shape (entities,).
        cases: Faults that need action.
        step_s: Time between two rows of an entity; young windows have more.
    """

    kind: EntityKind
    matrix: NDArray[np.float32]
    needed: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    traceless: NDArray[np.bool_]
    entity: NDArray[np.int64]
    at: NDArray[np.float64]
    share: NDArray[np.float64]
    refs: tuple[EntityRef, ...]
    recordings: NDArray[np.int64]
    cases: tuple[Case, ...]
    step_s: float

    def rows_of(self, entity: int) -> slice:
        """Where the rows of an entity lie."""
        first, last = np.searchsorted(self.entity, (entity, entity + 1)).tolist()
        return slice(first, last)

    @property
    def node(self) -> NDArray[np.str_]:
        """Node of each row, with the number of its recording before it."""
        names = np.array(
            [f"{n}/{ref.node_id}" for n, ref in zip(self.recordings, self.refs, strict=True)],
            dtype=np.str_,
        )
        rows: NDArray[np.str_] = names[self.entity]
        return rows


def extract(recording: Path, out: Path, step_s: float = SAMPLE_EVERY_S) -> FeatureCache:
    """Features of all kinds of entities of a recording, from the cache where they are there.

    Args:
        recording: Its folder.
        out: Folder of caches; each recording, step and feature schema has its own file.
        step_s: Time between two rows of an entity; at least the recording's interval.

    Raises:
        RecordingError: The recording cannot be read, or the cache is damaged; the message names
            the file and the mend.
    """
    opened = Recording(recording, KINDS_READ)
    digest = recording_digest(recording)
    path = out / f"{recording.resolve().name}-{_cache_key(digest, step_s)}.npz"
    found = read_cache(path)
    if found is not None:
        return found
    extractor = Extractor(opened, step_s)
    kinds = extractor.play()
    facts = RecordingFacts(
        name=recording.resolve().name,
        digest=digest,
        start=opened.start,
        end=opened.end,
        interval_s=opened.interval_s,
        step_s=extractor.step_s,
        nodes=len(opened.nodes),
        gpus=sum(opened.gpus_expected.values()) or len(kinds[EntityKind.GPU].refs),
        origin=opened.origin,
        generator=opened.generator,
        parameters_sha256=opened.parameters_hash,
        seed=opened.seed,
        common_causes=opened.common_causes,
        variation=opened.variation,
    )
    cache = FeatureCache(facts, opened.labels, kinds)
    write_cache(path, cache)
    return cache


def recording_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a recording's files, hex."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        one = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_READ_AT_ONCE):
                one.update(block)
        whole.update(f"{path.relative_to(folder).as_posix()}\0{one.hexdigest()}\n".encode())
    return whole.hexdigest()


def dataset_of(caches: Sequence[FeatureCache], kind: EntityKind, horizon_s: float) -> Dataset:
    """Rows of a kind of several recordings, one after the other.

    Args:
        caches: At least one.
        kind: Whose rows.
        horizon_s: A row is positive where action is needed at its moment or within this time.
    """
    parts = [cache.kinds[kind] for cache in caches]
    firsts = np.cumsum([0, *(len(part.refs) for part in parts)]).tolist()
    cases = tuple(
        case
        for cache, part, first in zip(caches, parts, firsts, strict=False)
        for case in _cases(part, cache.labels, first)
    )
    entity = np.concatenate([p.entity + n for p, n in zip(parts, firsts, strict=False)])
    at = np.concatenate([part.at for part in parts])
    needed, usable = _truth(entity, at, cases, horizon_s)
    made_up = np.repeat(
        [cache.facts.origin == SIMULATED for cache in caches], [part.at.size for part in parts]
    )
    return Dataset(
        kind=kind,
        matrix=np.concatenate([part.matrix for part in parts]),
        needed=needed,
        usable=usable & ~np.concatenate([part.silent for part in parts]),
        traceless=made_up & needed & ~_shows(entity, at, cases),
        entity=entity,
        at=at,
        share=np.concatenate([_shares(c, p) for c, p in zip(caches, parts, strict=True)]),
        refs=tuple(ref for part in parts for ref in part.refs),
        recordings=np.repeat(np.arange(len(parts)), [len(part.refs) for part in parts]),
        cases=cases,
        step_s=max(cache.facts.step_s for cache in caches),
    )


def _cache_key(digest: str, step_s: float) -> str:
    schemas = [one.schema_hash for one in FEATURE_SETS.values()]
    text = f"{CACHE_VERSION}/{digest}/{step_s:g}/{'/'.join(schemas)}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _shares(cache: FeatureCache, part: KindRows) -> NDArray[np.float64]:
    facts = cache.facts
    return (part.at - facts.start) / max(facts.end - facts.start, facts.interval_s)


def _cases(part: KindRows, labels: Sequence[LabelRow], first: int) -> list[Case]:
    named: dict[str, list[int]] = defaultdict(list)
    for number, ref in enumerate(part.refs):
        named[ref.key].append(number)
        if part.kind is EntityKind.NIC:
            named[ref.key.rpartition("/")[0]].append(number)
    return [
        Case(
            first + number,
            row.fault_class,
            row.mechanism,
            row.precursor_start,
            row.start,
            row.end,
        )
        for row in labels
        if row.entity_kind == part.kind.value and row.action_needed
        for number in named.get(row.entity, ())
    ]


def _truth(
    entity: NDArray[np.int64], at: NDArray[np.float64], cases: Sequence[Case], horizon_s: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    needed = np.zeros(entity.size, dtype=np.bool_)
    usable = np.ones(entity.size, dtype=np.bool_)
    for case in cases:
        first, last = np.searchsorted(entity, (case.entity, case.entity + 1)).tolist()
        times = at[first:last]
        needed[first:last] |= (times >= case.start - horizon_s) & (times < case.end)
        early = (times >= case.precursor_start) & (times < case.start - horizon_s)
        usable[first:last] &= ~early
    return needed, usable | needed


def _shows(
    entity: NDArray[np.int64], at: NDArray[np.float64], cases: Sequence[Case]
) -> NDArray[np.bool_]:
    """Rows in which some fault is there to be seen."""
    found = np.zeros(entity.size, dtype=np.bool_)
    for case in cases:
        first, last = np.searchsorted(entity, (case.entity, case.entity + 1)).tolist()
        times = at[first:last]
        found[first:last] |= (times >= case.precursor_start) & (times < case.end)
    return found
