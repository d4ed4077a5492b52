"""Frames into the same windows that the server keeps: in-process sink for training and tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.detectors.plug_in_check import is_plug_in
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import group_of
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind


class Replay:
    """Feeds frames to a `FleetState`.

    Attributes:
        state: The windows.
    """

    def __init__(self) -> None:
        """Empty windows."""
        self.state = FleetState()
        self._rows: dict[EntityKind, tuple[int, NDArray[np.int64]]] = {}

    def feed(self, frame: Frame) -> None:
        """Apply one frame: readings that were reported, then its events."""
        for table in frame.tables:
            self._feed_table(frame, table)
        for event in frame.events:
            self._feed_event(event)

    def _feed_table(self, frame: Frame, table: FrameTable) -> None:
        rows = self._rows_of(frame, table)[table.reported]
        values = table.values[:, table.reported]
        split = table.schema.f32_count
        # The wire carries float32: training must see the numbers that serving sees.
        gauges = values[:split].astype(np.float32)
        self.state.apply_table(table.kind, rows, table.schema, gauges, values[split:], (), frame.at)

    def _rows_of(self, frame: Frame, table: FrameTable) -> NDArray[np.int64]:
        known = self._rows.get(table.kind)
        if known is not None and known[0] == id(table.keys):
            return known[1]
        rows = np.array(
            [
                self.state.register(EntityRef(table.kind, key, frame.nodes[node]))
                for key, node in zip(table.keys, table.node_of.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        self._rows[table.kind] = (id(table.keys), rows)
        return rows

    def _feed_event(self, node_event: NodeEvent) -> None:
        event = node_event.event
        ref = entity_named(event.entity_kind, event.entity, node_event.node_id)
        if event.kind is EventKind.CHECK_PASSED and not is_plug_in(event):
            self.state.note_repair(ref)
            return
        group = group_of(event)
        if group is not None:
            self.state.note_event(ref, group, event.observed_at, event.count)
