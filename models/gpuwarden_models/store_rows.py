"""Rows and labels that a server kept, fetched into a folder, as a dataset."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.datasets import SAMPLE_EVERY_S, Case, Dataset
from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.fusion import FusionModel

_T = TypeVar("_T")
KEPT_EACH_S = 300.0
"""So often a server keeps rows."""
AT_RANDOM = "healthy"
"""Why a row was kept that was taken at random."""


class StoreError(Exception):
    """What was fetched cannot be read; the message names the file and the mend."""


class StoredRow(msgspec.Struct, frozen=True):
    """One line of feature-rows.jsonl; `values` is base64 of little-endian float32.

    `share` is the chance that an entity was kept for the reason `why` at that moment.
    """

    at: float
    kind: str
    entity: str
    node_id: str
    schema_hash: str
    values: str
    why: str = ""
    share: float = 1.0


class StoredLabel(msgspec.Struct, frozen=True):
    """One line of labels.jsonl; `needed` is null where nobody knows or our own action hid it.

    From `excluded_at` on its rows show what we did ourselves.
    """

    entity_kind: str
    entity: str
    fault_class: str
    opened_at: float
    resolved_at: float | None = None
    excluded_at: float | None = None
    needed: bool | None = None

    @property
    def resolved(self) -> float:
        """Epoch seconds of its end, infinite while it goes on."""
        return np.inf if self.resolved_at is None else self.resolved_at

    @property
    def end(self) -> float:
        """Until when its rows show the fault alone: until we acted, else until its end."""
        acted = np.inf if self.excluded_at is None else self.excluded_at
        return min(acted, self.resolved)


class StoredCosts(msgspec.Struct, frozen=True):
    """costs.json: what a GPU-hour falsely excluded, and one of a missed fault, cost."""

    gpu_hour_false_exclusion: float
    gpu_hour_missed_fault: float

    @property
    def operating_point(self) -> float:
        """Probability from which an exclusion costs less than waiting does."""
        return self.gpu_hour_false_exclusion / (
            self.gpu_hour_false_exclusion + self.gpu_hour_missed_fault
        )


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """What a fleet's own incidents say.

    Attributes:
        dataset: Rows, with the truth as people and repairs told it.
        weights: Of each row, by how many it stands for: those taken at random stand for the fleet,
            and those of one fault together weigh no more than one horizon's.
        labelled: Incidents that somebody judged and of whose time there are rows that teach: others
            count for nothing.
        faults: Of these, such that needed action.
        acted: Such that were judged, and excluded before any row of theirs was kept.
        costs: Of a wrong decision; None where nobody set any.
    """

    dataset: Dataset
    weights: NDArray[np.float64]
    labelled: int
    faults: int
    acted: int
    costs: StoredCosts | None


def read_fetched(folder: Path, model: FusionModel) -> Fetched:
    """Read what was fetched from a server.

    Args:
        folder: labels.jsonl, feature-rows.jsonl, and costs.json where there are any.
        model: Whose rows are wanted: of its kind and feature schema; others are left out.

    Raises:
        StoreError: A file is missing or broken.
    """
    rows = [
        row
        for row in _lines(folder / "feature-rows.jsonl", StoredRow)
        if row.kind == model.kind.value and row.schema_hash == model.schema_hash
    ]
    labels = [
        label
        for label in _lines(folder / "labels.jsonl", StoredLabel)
        if label.entity_kind == model.kind.value
    ]
    rows.sort(key=lambda row: (row.entity, row.at))
    dataset, labelled, acted = _dataset(folder, rows, labels, model)
    costs = folder / "costs.json"
    return Fetched(
        dataset=dataset,
        weights=_weights(dataset, rows, model.horizon_s),
        labelled=labelled,
        faults=len(dataset.cases),
        acted=acted,
        costs=_decode(costs, costs.read_bytes(), StoredCosts) if costs.exists() else None,
    )


def _dataset(
    folder: Path, rows: Sequence[StoredRow], labels: Sequence[StoredLabel], model: FusionModel
) -> tuple[Dataset, int, int]:
    """The rows with their truth; how many labels taught any of them, and how many came too late."""
    places = {row.entity: EntityRef(model.kind, row.entity, row.node_id) for row in rows}
    index = {entity: place for place, entity in enumerate(places)}
    entity = np.array([index[row.entity] for row in rows], np.int64)
    at = np.array([row.at for row in rows], np.float64)
    first, last = (float(at.min()), float(at.max())) if at.size else (0.0, 0.0)
    truth = _Truth(
        needed=np.zeros(at.size, np.bool_),
        told=at < last - model.horizon_s,  # what is newer may yet turn out faulty
        hidden=np.zeros(at.size, np.bool_),
    )
    known = [label for label in labels if label.entity in index]
    spans = [_span(label, entity == index[label.entity], at, model.horizon_s) for label in known]
    for label, span in zip(known, spans, strict=True):
        truth.take(label, span)
    usable = truth.told & ~truth.hidden
    taught = [
        label
        for label, span in zip(known, spans, strict=True)
        if label.needed is not None and (span.shown & usable).any()
    ]
    dataset = Dataset(
        kind=model.kind,
        matrix=_matrix(folder, rows, len(model.features)),
        needed=truth.needed,
        usable=usable,
        traceless=np.zeros(at.size, np.bool_),
        entity=entity,
        at=at,
        share=(at - first) / max(last - first, 1.0),
        refs=tuple(places.values()),
        recordings=np.zeros(len(places), np.int64),
        cases=tuple(_case(index[one.entity], one, model.horizon_s) for one in taught if one.needed),
        step_s=SAMPLE_EVERY_S,
    )
    late = sum(
        label.needed is not None and label not in taught and bool(span.acted.any())
        for label, span in zip(known, spans, strict=True)
    )
    return dataset, len(taught), late


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """Rows of one incident, shape (N,): before we acted, and from then on until its end."""

    shown: NDArray[np.bool_]
    acted: NDArray[np.bool_]


def _span(
    label: StoredLabel, own: NDArray[np.bool_], at: NDArray[np.float64], horizon_s: float
) -> _Span:
    begun = own & (at >= label.opened_at - horizon_s)
    return _Span(begun & (at < label.end), begun & (at >= label.end) & (at < label.resolved))


@dataclass(frozen=True, slots=True, eq=False)
class _Truth:
    """What is known of rows, shape (N,): of a fault, told at all, hidden by us or by doubt."""

    needed: NDArray[np.bool_]
    told: NDArray[np.bool_]
    hidden: NDArray[np.bool_]

    def take(self, label: StoredLabel, span: _Span) -> None:
        """Note what a label says of its rows."""
        self.hidden[span.acted] = True
        if label.needed is None:
            self.hidden[span.shown] = True
            return
        self.told[span.shown] = True
        if label.needed:
            self.needed[span.shown] = True


def _case(entity: int, label: StoredLabel, horizon_s: float) -> Case:
    known = label.fault_class in tuple(FaultClass)
    fault_class = FaultClass(label.fault_class) if known else FaultClass.UNKNOWN
    begin = label.opened_at - horizon_s
    return Case(entity, fault_class, "", begin, label.opened_at, label.resolved)


def _weights(dataset: Dataset, rows: Sequence[StoredRow], horizon_s: float) -> NDArray[np.float64]:
    """How many rows each stands for.

    A healthy one that was taken at random stands for all that were not; all faults are labelled, so
    that a row of one stands for itself. Nor does a fault that stood for weeks outweigh the others.
    """
    weights = np.array([1.0 / row.share if row.why == AT_RANDOM else 1.0 for row in rows])
    weights[dataset.needed] = 1.0
    for case in dataset.cases:
        own = dataset.rows_of(case.entity)
        at = dataset.at[own]
        inside = dataset.needed[own] & (at >= case.precursor_start) & (at < case.end)
        share = min(1.0, horizon_s / KEPT_EACH_S / max(1, int(inside.sum())))
        weights[own] = np.where(inside, share, weights[own])
    return weights


def _matrix(folder: Path, rows: Sequence[StoredRow], width: int) -> NDArray[np.float32]:
    matrix = np.empty((len(rows), width), np.float32)
    for number, row in enumerate(rows):
        try:
            values = np.frombuffer(base64.b64decode(row.values, validate=True), "<f4")
        except (binascii.Error, ValueError) as error:
            raise StoreError(
                f"{folder / 'feature-rows.jsonl'}: the values of {row.entity} at {row.at:.0f}"
                f" cannot be read ({error}); fetch them again"
            ) from error
        if values.size != width:
            raise StoreError(
                f"{folder / 'feature-rows.jsonl'}: {row.entity} at {row.at:.0f} has {values.size}"
                f" features, its schema has {width}; fetch them again"
            )
        matrix[number] = values
    return matrix


def _lines(path: Path, kind: type[_T]) -> list[_T]:
    if not path.exists():
        raise StoreError(f"{path}: no such file; fetch it again")
    lines = path.read_bytes().splitlines()
    return [_decode(path, line, kind) for line in lines if line.strip()]


def _decode(path: Path, content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: {error}; fetch it again") from error


def counted_by_class(cases: Sequence[Case]) -> Mapping[str, int]:
    """How many faults of each class."""
    return dict(Counter(case.fault_class.value for case in cases))
