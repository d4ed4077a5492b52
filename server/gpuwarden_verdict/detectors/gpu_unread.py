"""GPUs whose readings stop while others of their node go on, where nobody counts GPUs for us."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.device_missing import PRESENT, VISIBLE
from gpuwarden_verdict.detectors.reading import (
    FRESH_S,
    Bool,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
    of_nodes,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, RecoveryKind, Signal
from gpuwarden_verdict.windows import NEVER, FleetReading
from gpuwarden_verdict.windows.planes import F64, I64
from gpuwarden_wire.metrics import EntityKind

LONG_S = 300.0
"""So long a count must be short: a scrape that broke off is whole again at the next."""
_SCORE = 0.5


@dataclass(frozen=True, slots=True)
class _Count:
    """GPUs of every node, by row of the nodes.

    Attributes:
        read: How many are read now, int64, shape (nodes,).
        expected: How many there should be, NaN unknown, shape (nodes,).
        short: Where fewer are read, outside boot grace, shape (nodes,).
        whole: Nodes that are heard of and of which nothing is unread, or whose agent counts the
            GPUs now, shape (nodes,).
        now_read: GPUs that are read now, shape (gpus,).
    """

    read: I64
    expected: F64
    short: Bool
    whole: Bool
    now_read: Bool


class GpuUnreadDetector:
    """Signals of GPUs that exporters name no more, and of nodes that never showed all of theirs.

    An agent counts the GPUs of its node and probes each; exporters just leave one out, be it lost
    or only dropped by the exporter until it is restarted. So this is advice, never more.
    """

    name = "gpu_unread"
    version = 1
    speaks_for = frozenset({"gpu_unread"})
    about = About(
        Plane.STRUCTURE,
        ("gpu_temperature_celsius",),
        "an exporter reads fewer GPUs of a node than it should have",
        f"fewer series of GPUs than known or expected GPUs for {LONG_S:.0f} s, on nodes without an "
        "agent; any metric of a GPU counts",
        Rung.SUSPECT,
        "the GPU is read again, its node is whole or counted by an agent, or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """Signals of what is unread for long."""
        nodes = state.view(EntityKind.NODE)
        count = _count(state, fleet, now)
        since = fleet.memory.plane(nodes, self.name, "short_since", np.nan, np.float64)
        since[~count.short] = np.nan
        since[count.short & np.isnan(since)] = now
        long = count.short & (now - since >= LONG_S)
        return [
            signal
            for row, ref in hits(nodes, long)
            for signal in self._signals(state, row, ref, count, now)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs that are read again, and nodes whose count is whole, with all of their GPUs.

        A board may have been replaced: the former one is read no more and no longer expected. An
        agent that counts the GPUs itself tells of what is missing in its own words.
        """
        count = _count(state, fleet, now)
        again = count.now_read | count.whole[state.view(EntityKind.GPU).node_rows]
        clear = {EntityKind.GPU: again, EntityKind.NODE: count.whole}
        why = "its node's GPUs are read again"
        return [
            Recovery(ref, RecoveryKind.READING_CLEAR, now, why, self.speaks_for)
            for kind, where in clear.items()
            for ref in entities
            if ref.kind is kind
            and (row := int(state.rows_of(kind, [ref.key])[0])) >= 0
            and where[row]
        ]

    def _signals(
        self, state: FleetReading, row: int, ref: EntityRef, count: _Count, now: float
    ) -> Iterator[Signal]:
        gpus = state.view(EntityKind.GPU)
        lack = int(count.expected[row]) - int(count.read[row])
        gone = np.flatnonzero((gpus.node_rows == row) & ~count.now_read)
        latest = gone[np.argsort(-gpus.last_seen_at()[gone], kind="stable")][:lack]
        shows = f"exporters read {count.read[row]} of {count.expected[row]:.0f} GPUs"
        for gpu in latest.tolist():
            named = gpus.refs[gpu]
            sentence = f"GPU {named.key} is read no more: of node {ref.key} {shows}"
            yield self._signal(named, row, count, now, sentence)
        if lack > latest.size:
            yield self._signal(ref, row, count, now, f"of node {ref.key} {shows}")

    def _signal(self, ref: EntityRef, row: int, count: _Count, now: float, sentence: str) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.BUS,
            score=_SCORE,
            severity=Severity.WARNING,
            sentence=sentence,
            numbers={"gpus_read": float(count.read[row])},
            thresholds={"gpus_read": float(count.expected[row])},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        )


def _count(state: FleetReading, fleet: FleetContext, now: float) -> _Count:
    nodes, gpus = state.view(EntityKind.NODE), state.view(EntityKind.GPU)
    seen, node_rows = np.nan_to_num(gpus.last_seen_at(), nan=-np.inf), gpus.node_rows
    newest = np.full(len(nodes), -np.inf)
    np.maximum.at(newest, node_rows, seen)
    with np.errstate(invalid="ignore"):
        now_read: Bool = (newest[node_rows] - seen <= FRESH_S) & np.isfinite(seen)
    counted: Bool = (nodes.missing_code(VISIBLE) == NEVER) & np.isfinite(newest)
    probed = node_rows[gpus.missing_code(PRESENT) != NEVER]
    counted[probed] = False
    counted &= ~of_nodes(state, nodes, fleet.silent_nodes)
    read = np.bincount(node_rows[now_read], minlength=len(nodes))
    expected = np.full(len(nodes), np.nan)
    if fleet.gpus_expected and counted.any():
        keys = list(fleet.gpus_expected)
        rows = state.rows_of(EntityKind.NODE, keys)
        told = np.array([fleet.gpus_expected[key] for key in keys], np.float64)
        expected[rows[rows >= 0]] = told[rows >= 0]
    with np.errstate(invalid="ignore"):
        lacking: Bool = counted & (read < expected)
    short = lacking & ~in_boot_grace(state, nodes, fleet, now)
    whole = (counted & ~lacking) | _counted_by_agent(state, fleet)
    return _Count(read, expected, short, whole, now_read)


def _counted_by_agent(state: FleetReading, fleet: FleetContext) -> Bool:
    """Nodes whose agent counts GPUs, or probes one, now, shape (nodes,)."""
    nodes, gpus = state.view(EntityKind.NODE), state.view(EntityKind.GPU)
    counted = fresh(state, nodes, VISIBLE, fleet).copy()
    counted[gpus.node_rows[fresh(state, gpus, PRESENT, fleet)]] = True
    return counted
