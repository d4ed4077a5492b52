"""Rows and labels that a server kept, fetched into a folder, as a dataset."""

from __future__ import annotations

import base64
import binascii
from collections import Counter, defaultdict
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
_AN_HOUR_S = 3600.0


class StoreError(Exception):
    """What was fetched cannot be read; the message names the file and the mend."""


class StoredRow(msgspec.Struct, frozen=True):
    """One line of feature-rows.jsonl; `values` is base64 of little-endian float32."""

    at: float
    kind: str
    entity: str
    node_id: str
    schema_hash: str
    values: str


class StoredLabel(msgspec.Struct, frozen=True):
    """One line of labels.jsonl; `needed` is null where nobody knows or our own action hid it."""

    entity_kind: str
    entity: str
    fault_class: str
    opened_at: float
    resolved_at: float | None = None
    needed: bool | None = None


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
        weights: Of each row: those of one fault together weigh as one an hour at most.
        labelled: Incidents that somebody judged and of whose time rows are kept: others teach
            nothing, and count for nothing.
        faults: Of these, such that needed action.
        costs: Of a wrong decision; None where nobody set any.
    """

    dataset: Dataset
    weights: NDArray[np.float64]
    labelled: int
    faults: int
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
    dataset = _dataset(folder, rows, labels, model)
    taught = _taught(labels, rows, model.horizon_s)
    costs = folder / "costs.json"
    return Fetched(
        dataset=dataset,
        weights=_weights(dataset),
        labelled=len(taught),
        faults=sum(label.needed is True for label in taught),
        costs=_decode(costs, costs.read_bytes(), StoredCosts) if costs.exists() else None,
    )


def _dataset(
    folder: Path, rows: Sequence[StoredRow], labels: Sequence[StoredLabel], model: FusionModel
) -> Dataset:
    rows = sorted(rows, key=lambda row: (row.entity, row.at))
    places = {row.entity: EntityRef(model.kind, row.entity, row.node_id) for row in rows}
    index = {entity: place for place, entity in enumerate(places)}
    entity = np.array([index[row.entity] for row in rows], np.int64)
    at = np.array([row.at for row in rows], np.float64)
    last_at = float(at.max()) if at.size else 0.0
    settled = at < last_at - model.horizon_s  # what is newer may yet turn out faulty
    needed, usable = np.zeros(at.size, np.bool_), settled
    unsure = np.zeros(at.size, np.bool_)
    cases: list[Case] = []
    for label in labels:
        if label.entity not in index:
            continue
        end = _end_of(label)
        own = entity == index[label.entity]
        inside = own & (at >= label.opened_at - model.horizon_s) & (at < end)
        if label.needed is None:
            unsure |= inside
            continue
        usable |= inside
        if label.needed:
            needed |= inside
            cases.append(_case(index[label.entity], label, model.horizon_s, end))
    first, last = (float(at.min()), float(at.max())) if at.size else (0.0, 0.0)
    return Dataset(
        kind=model.kind,
        matrix=_matrix(folder, rows, len(model.features)),
        needed=needed,
        usable=usable & ~unsure,
        traceless=np.zeros(at.size, np.bool_),
        entity=entity,
        at=at,
        share=(at - first) / max(last - first, 1.0),
        refs=tuple(places.values()),
        recordings=np.zeros(len(places), np.int64),
        cases=tuple(cases),
        step_s=SAMPLE_EVERY_S,
    )


def _taught(
    labels: Sequence[StoredLabel], rows: Sequence[StoredRow], horizon_s: float
) -> list[StoredLabel]:
    """Labels that settle something about rows that were kept."""
    kept: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        kept[row.entity].append(row.at)
    return [
        label
        for label in labels
        if label.needed is not None
        and any(
            label.opened_at - horizon_s <= at < _end_of(label) for at in kept.get(label.entity, ())
        )
    ]


def _end_of(label: StoredLabel) -> float:
    return np.inf if label.resolved_at is None else label.resolved_at


def _case(entity: int, label: StoredLabel, horizon_s: float, end: float) -> Case:
    known = label.fault_class in tuple(FaultClass)
    fault_class = FaultClass(label.fault_class) if known else FaultClass.UNKNOWN
    begin = label.opened_at - horizon_s
    return Case(entity, fault_class, "", begin, label.opened_at, end)


def _weights(dataset: Dataset) -> NDArray[np.float64]:
    """Rows of one fault are much alike: together they weigh as one an hour at most."""
    weights = np.ones(dataset.at.size)
    for case in dataset.cases:
        own = dataset.rows_of(case.entity)
        at = dataset.at[own]
        inside = (at >= case.precursor_start) & (at < case.end)
        if inside.any():
            hours = (float(at[inside].max()) - case.precursor_start) / _AN_HOUR_S
            share = min(1.0, max(hours, 1.0) / float(inside.sum()))
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
