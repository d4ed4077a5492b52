"""XIDs that series tell of: what changes is an event, what stands there is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gpuwarden_exporters.rules import XidSeries
from gpuwarden_exporters.xids import XidNews, XidWatch
from gpuwarden_kernel_log import xid_entry
from gpuwarden_models.frames import NodeEvent
from gpuwarden_models.recording_series import Channel, Floats, KindLayout
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

TOLD_BY = "recording"
_SLACK_S = 60.0
"""An exporter shows an XID at its own next collection, 30 s apart with dcgm-exporter; what the
kernel log told before that is the same one."""


class RecordedXids:
    """Compares each moment with the one before, node by node where something changed."""

    def __init__(
        self, layout: KindLayout, nodes: Sequence[str], channels: Sequence[Channel]
    ) -> None:
        self._layout, self._nodes = layout, nodes
        self._columns = {
            number: channel.xid
            for number, channel in enumerate(channels)
            if channel.xid is not None
        }
        self._before: dict[int, Floats] = {}
        self._heard = np.zeros(len(nodes), dtype=np.bool_)
        self._at = np.full(len(layout.keys), np.nan)
        self._watches: dict[int, XidWatch] = {}
        self._told: dict[tuple[str, int], float] = {}
        self._number = 0

    def note(self, lines: Iterable[NodeEvent]) -> None:
        """What the kernel log told: XIDs among it need not be told again."""
        for line in lines:
            told = line.event
            if told.xid is not None and told.entity_kind is EntityKind.GPU:
                self._told[(told.entity, told.xid)] = told.observed_at

    def events(
        self, at: float, xids: Mapping[int, Floats], reported: NDArray[np.bool_]
    ) -> list[NodeEvent]:
        """XIDs that are new at a moment.

        Args:
            at: Epoch seconds.
            xids: Numbers by channel, shape (GPUs,).
            reported: GPUs that anything was heard of, shape (GPUs,).
        """
        if not self._columns:
            return []
        changed = np.zeros(len(self._nodes), dtype=np.bool_)
        heard = np.zeros(len(self._nodes), dtype=np.bool_)
        heard[self._layout.node_of[reported]] = True
        for number, values in xids.items():
            before = self._before.get(number)
            other = ~np.isnan(values) if before is None else ~_same(values, before)
            changed[self._layout.node_of[other]] = True
            self._before[number] = values
        found: list[NodeEvent] = []
        for node in np.flatnonzero(changed & heard).tolist():
            found += self._look(node, at, xids, reported)
        self._heard = heard
        self._at[reported] = at
        return found

    def _look(
        self, node: int, at: float, xids: Mapping[int, Floats], reported: NDArray[np.bool_]
    ) -> list[NodeEvent]:
        own = range(*np.searchsorted(self._layout.node_of, (node, node + 1)).tolist())
        listed = [
            (XidSeries(column.form, self._layout.keys[row], column.code), float(xids[number][row]))
            for number, column in self._columns.items()
            for row in own
            if not np.isnan(xids[number][row])
        ]
        gpus = {self._layout.keys[row] for row in own if reported[row]}
        watch = self._watches.setdefault(node, XidWatch())
        news = watch.note(listed, gpus, unbroken=bool(self._heard[node]))
        # A GPU that was silent has had all that time for it.
        looked = {self._layout.keys[row]: float(self._at[row]) for row in own}
        found: list[NodeEvent] = []
        for one in news:
            since = looked[one.gpu_uuid] if looked[one.gpu_uuid] <= at else at
            if self._told.get((one.gpu_uuid, one.code), -np.inf) < since - _SLACK_S:
                found.append(NodeEvent(self._nodes[node], "", self._event(one, since, at)))
        return found

    def _event(self, news: XidNews, since: float, at: float) -> Event:
        self._number += 1
        entry = xid_entry(news.code)
        name = f" ({entry.name})" if entry is not None else ""
        exact = since - _SLACK_S <= news.seen_at <= at
        return Event(
            id=f"{EventKind.NVML_XID}:{TOLD_BY}:{news.gpu_uuid}:{self._number}",
            kind=EventKind.NVML_XID,
            observed_at=news.seen_at if exact else at,
            entity_kind=EntityKind.GPU,
            entity=news.gpu_uuid,
            count=news.count,
            xid=news.code,
            severity=str(entry.severity) if entry is not None else "warning",
            text=f"the recording tells XID {news.code}{name}, new since the scrape before",
            attributes={"told_by": TOLD_BY},
        )


def _same(values: Floats, before: Floats) -> NDArray[np.bool_]:
    return np.asarray((values == before) | (np.isnan(values) & np.isnan(before)), dtype=np.bool_)
