"""Columnar state of the fleet: what is kept of every series between batches and sweeps.

Signal-major: one row of numbers a metric, one column an entity, so that a sweep reads memory in
order. No object a sample. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_wire.batches import MissingCell
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


class CheckpointError(Exception):
    """A checkpoint that cannot be read; the message says why and what to do."""


class KindView:
    """The state of all entities of one kind; arrays of N in row order, NaN where there is no number.

    The arrays are views of live state: use them under the owner's lock, never write to them.
    """

    refs: Sequence[EntityRef]
    node_rows: I64  # row of each entity's node in the view of nodes

    def last(self, metric: str) -> F32: ...
    def age_s(self, metric: str, now: float) -> F32: ...
    def lag_s(
        self, metric: str
    ) -> F32: ...  # last_seen_at - time of the latest number: clock-skew proof
    def missing_code(self, metric: str) -> U8: ...
    def increment_1h(self, metric: str) -> F32: ...
    def increment_24h(self, metric: str) -> F32: ...
    def ewma_fast(self, metric: str) -> F32: ...
    def ewma_slow(self, metric: str) -> F32: ...
    def variance(self, metric: str) -> F32: ...
    def last_change_at(self, metric: str) -> F64: ...
    def coverage_s(self, metric: str) -> F32: ...
    def highest(self, metric: str) -> F32: ...
    def resets(self, metric: str) -> F32: ...
    def events_1h(self, group: EventGroup, now: float | None = None) -> F32: ...
    def events_24h(self, group: EventGroup, now: float | None = None) -> F32: ...
    def last_event_at(self, group: EventGroup) -> F64: ...
    def last_seen_at(self) -> F64: ...


class FleetState:
    """Columnar state of all entities."""

    late_rows: int

    def register(self, ref: EntityRef) -> int: ...
    def rows_of(self, kind: EntityKind, keys: Sequence[str]) -> I64: ...
    def apply_table(
        self,
        kind: EntityKind,
        rows: I64,
        schema: Schema,
        f32: F32,
        f64: F64,
        missing: Sequence[MissingCell],
        observed_at: float,
    ) -> None: ...
    def note_event(self, ref: EntityRef, group: EventGroup, at: float, count: int) -> None: ...
    def view(self, kind: EntityKind) -> KindView: ...
    def export_nodes(self, node_ids: Iterable[str]) -> bytes: ...
    def import_nodes(self, blob: bytes) -> None: ...
    def retire_node(self, node_id: str) -> None: ...
