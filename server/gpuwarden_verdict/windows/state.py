"""The fleet's state: registration, application, events, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gpuwarden_verdict.entities import EntityRef, renamed_ref
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.windows.checkpoint import (
    CheckpointPart,
    decode_checkpoint,
    encode_checkpoint,
)
from gpuwarden_verdict.windows.joined import JoinedTables
from gpuwarden_verdict.windows.planes import DAY_S, F32, F64, HOUR_S, I64, KindPlanes
from gpuwarden_verdict.windows.snapshot import FleetSnapshot
from gpuwarden_verdict.windows.update import (
    ReadTable,
    apply_readings,
    stack_joined,
    stack_tables,
)
from gpuwarden_verdict.windows.view import KindView
from gpuwarden_wire.batches import MissingCell
from gpuwarden_wire.metrics import DEVICE_KINDS, EntityKind
from gpuwarden_wire.schema import Schema


class FleetState:
    """Columnar state of all entities. Not thread-safe: its owner holds a lock.

    Rows are stable until `retire_node`, which closes gaps and raises `generation`; who keeps rows
    between calls compares it.

    Attributes:
        late_rows: Rows left out because later readings were already there.
        generation: Raised whenever rows move.
    """

    def __init__(self) -> None:
        self.late_rows = 0
        self.generation = 0
        self._kinds = {kind: KindPlanes() for kind in DEVICE_KINDS}
        self._views: dict[EntityKind, KindView] = {}
        self._members: dict[str, set[tuple[EntityKind, str]]] = {}

    @property
    def size(self) -> int:
        """Bytes of all series."""
        return sum(planes.size for planes in self._kinds.values())

    def register(self, ref: EntityRef) -> int:
        """Row of an entity in its kind, made on first sight; its node is registered with it.

        A key that comes back under another node (a GPU moved) keeps its state: it is the part's.
        """
        planes = self._kinds[ref.kind]
        row = planes.index.get(ref.key)
        if row is not None and planes.refs[row].node_id == ref.node_id:
            return row
        if row is None:
            row = planes.add(ref)
        else:
            self._members[planes.refs[row].node_id].discard((ref.kind, ref.key))
            planes.refs[row] = ref
            planes.changes += 1
        self._members.setdefault(ref.node_id, set()).add((ref.kind, ref.key))
        node = EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)
        planes.node_rows[row] = row if ref.kind is EntityKind.NODE else self.register(node)
        return row

    def rows_of(self, kind: EntityKind, keys: Sequence[str]) -> I64:
        """Rows of entities by key, int64, -1 where unknown."""
        index = self._kinds[kind].index
        return np.array([index.get(key, -1) for key in keys], dtype=np.int64)

    def apply_table(
        self,
        kind: EntityKind,
        rows: I64,
        schema: Schema,
        f32: F32,
        f64: F64,
        missing: Sequence[MissingCell],
        observed_at: float,
    ) -> None:
        """Fold one table in; see `apply_batches`.

        Args:
            kind: Kind of the entities.
            rows: Their rows, int64, shape (n,); -1 is skipped.
            schema: Columns, f32 first.
            f32: Shape (f32 columns, n), in the metrics' units.
            f64: Counters, shape (counter columns, n).
            missing: Reasons of NaN cells.
            observed_at: Epoch seconds.
        """
        table = ReadTable(
            kind,
            rows,
            schema,
            np.asarray(f32, "<f4").tobytes(),
            np.asarray(f64, "<f8").tobytes(),
            missing,
            observed_at,
        )
        self.apply_batches([[table]])

    def apply_batches(self, batches: Sequence[Sequence[ReadTable]]) -> None:
        """Fold the batches of several nodes in, as if one after the other.

        Rows that already hold a later reading of one of the columns are left out and counted in
        `late_rows`. Metrics outside the registry are kept like any other. A clock that runs ahead
        is the caller's to hold back: what is older than the latest reading counts as late.

        Args:
            batches: Each the tables of one node, in order. Tables of one schema are folded
                together, so the cost of a table falls with the number of nodes.
        """
        self._views.clear()  # they keep columns that nobody will ask for again
        for number in range(max(map(len, batches), default=0)):
            alike: dict[tuple[int, int], list[ReadTable]] = {}
            for tables in batches:
                if number < len(tables):
                    table = tables[number]
                    alike.setdefault((id(table.schema), table.rows.size), []).append(table)
            for group in alike.values():
                self._apply_group(group)

    def apply_joined(self, batches: Sequence[JoinedTables], rows: Sequence[Sequence[I64]]) -> None:
        """Fold the batches of several nodes in, as `apply_batches` does; for many it costs less.

        Args:
            batches: One a node.
            rows: Of each batch, the rows of each table's entities; none is -1.
        """
        self._views.clear()
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for place, batch in enumerate(batches):
            alike.setdefault(batch.layout.alike, []).append(place)
        for places in alike.values():
            group, own = [batches[p] for p in places], [rows[p] for p in places]
            for kind, readings in stack_joined(group, own):
                planes = self._kinds[kind]
                for part in planes.each_row_once(readings.rows, len(group)):
                    one = readings if part is None else readings.only(part)
                    self.late_rows += apply_readings(planes, one)

    def _apply_group(self, group: Sequence[ReadTable]) -> None:
        readings = stack_tables(group)
        planes = self._kinds[group[0].kind]
        if len(group) > 1 and planes.names_twice(readings.rows):
            for table in group:  # two nodes name one GPU that nobody has claimed yet
                self.late_rows += apply_readings(planes, stack_tables([table]))
            return
        self.late_rows += apply_readings(planes, readings)

    def note_event(self, ref: EntityRef, group: EventGroup, at: float, count: int) -> None:
        """Count `count` events of a group on an entity at `at` (epoch seconds).

        An event older than the latest one is counted as decayed since then.
        """
        planes = self._kinds[ref.kind]
        row, line = self.register(ref), planes.group_row(group)
        latest = planes.by_group["event_at"][line, row]
        until = at if np.isnan(latest) else max(float(latest), at)
        idle = 0.0 if np.isnan(latest) else until - float(latest)
        for name, constant in (("events_1h", HOUR_S), ("events_24h", DAY_S)):
            plane = planes.by_group[name]
            fresh = count * np.exp(-(until - at) / constant)
            plane[line, row] = plane[line, row] * np.exp(-idle / constant) + fresh
        planes.by_group["event_at"][line, row] = until
        planes.changes += 1

    def note_repair(self, ref: EntityRef) -> None:
        """A check passed after a repair: what was counted before it is no longer evidence.

        Event counts and counter increments of the entity, and of what sits in a node, start anew;
        levels and means go on.
        """
        refs = {(ref.kind, ref.key)}
        if ref.kind is EntityKind.NODE:
            refs = self._members.get(ref.node_id, set())
        for kind, key in refs:
            planes = self._kinds[kind]
            row = planes.index.get(key)
            if row is None:
                continue
            for name in ("events_1h", "events_24h"):
                planes.by_group[name][:, row] = 0.0
            counted = planes.wide.block[row, planes.wide.place["increment_1h"] :]
            counted[~np.isnan(counted)] = 0.0
            planes.changes += 1

    def view(self, kind: EntityKind) -> KindView:
        """What sweeps and features read; the same view while nothing changes."""
        planes = self._kinds[kind]
        view = self._views.get(kind)
        if view is None or view.changes != planes.changes:
            view = self._views[kind] = KindView(planes)
        return view

    def snapshot(self, asked: Callable[[], None] = lambda: None) -> FleetSnapshot:
        """All entities that there are, to be read without the lock; see `FleetSnapshot`.

        Args:
            asked: Called whenever a view of it is asked for, in the thread that asks.
        """
        views = {kind: KindView(planes.picked()) for kind, planes in self._kinds.items()}
        index = {kind: planes.index for kind, planes in self._kinds.items()}
        return FleetSnapshot(views, index, asked)

    def export_nodes(self, node_ids: Iterable[str]) -> bytes:
        """Checkpoint of the incremental state of whole nodes; unknown nodes are left out."""
        return encode_checkpoint(self.copy_nodes(node_ids))

    def copy_nodes(self, node_ids: Iterable[str]) -> list[CheckpointPart]:
        """As `export_nodes`, not encoded yet: that needs no lock."""
        wanted = [self._members[node] for node in node_ids if node in self._members]
        rows = {
            kind: np.array(
                sorted(
                    self._kinds[kind].index[key]
                    for members in wanted
                    for member_kind, key in members
                    if member_kind is kind
                ),
                dtype=np.int64,
            )
            for kind in DEVICE_KINDS
        }
        return [CheckpointPart.copied(k, planes, rows[k]) for k, planes in self._kinds.items()]

    def import_nodes(
        self, blob: bytes, present: Callable[[EntityRef], EntityRef] = lambda ref: ref
    ) -> None:
        """Restore what `export_nodes` gave; it replaces the state of the entities in it.

        Args:
            blob: What it gave.
            present: What an entity in it is called now.

        Raises:
            CheckpointError: Not a checkpoint, damaged, or of a newer form. Nothing was changed.
        """
        for part in decode_checkpoint(blob):
            rows = np.array([self.register(present(ref)) for ref in part.refs], dtype=np.int64)
            part.restore(self._kinds[part.kind], rows)

    def retire_node(self, node_id: str) -> None:
        """Forget a node and all that sits in it; a node never seen is no error."""
        members = self._members.pop(node_id, None)
        if members is None:
            return
        for kind in DEVICE_KINDS:
            keys = {key for member_kind, key in members if member_kind is kind}
            if keys:
                self._kinds[kind].drop(keys)
        self._renumber_nodes()
        self.generation += 1

    def rename_node(self, old: str, new: str) -> None:
        """Give a node and all that sits in it the node's new name; no row moves.

        What was kept under the new name before is forgotten.
        """
        self.retire_node(new)
        members = self._members.pop(old, None)
        if members is None:
            return
        renamed = set()
        for kind, key in members:
            planes = self._kinds[kind]
            row = planes.index.pop(key)
            ref = planes.refs[row] = renamed_ref(planes.refs[row], old, new)
            planes.index[ref.key] = row
            planes.changes += 1
            renamed.add((kind, ref.key))
        self._members[new] = renamed
        self.generation += 1

    def _renumber_nodes(self) -> None:
        nodes = self._kinds[EntityKind.NODE].index
        for planes in self._kinds.values():
            rows = np.full(planes.capacity, -1, np.int64)
            rows[: len(planes.refs)] = [nodes[ref.node_id] for ref in planes.refs]
            planes.node_rows = rows
