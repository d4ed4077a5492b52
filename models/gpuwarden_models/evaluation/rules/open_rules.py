"""A published open rule set, written from a summary of its groups, not from its code.

Groups: XIDs with their action; ECC and remaps; temperatures and clock events; a node against the
cluster's median; targets that fall silent. Its rules are evaluated every 30 s there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.evaluation.rules.contract import (
    Fired,
    Growth,
    Lasting,
    column,
    event_name,
    names_where,
    table_of,
)
from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_wire.metrics import EntityKind

_APPLICATION = frozenset({13, 31, 43, 45, 94})
_MINUTE_S = 60.0
_LEAST_NODES = 3
_RESET_AND_ABOVE = 8.0  # of the clock event reasons: hardware slowdown and what lies above
_LASTING = (
    "pending", "warm", "hot", "hbm", "clock", "interrupts", "runnable", "gpu_quiet", "node_quiet",
)  # fmt: skip

_Rule = tuple[str, NDArray[np.bool_]]


class OpenRules:
    """All groups that bear on GPUs, nodes and exporters."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._long = {name: Lasting() for name in _LASTING}
        self._remaps, self._corrected = Growth(10 * _MINUTE_S), Growth(24 * 60 * _MINUTE_S)
        self._uncorrected = Growth(5 * _MINUTE_S)
        self._interrupts, self._pages = Growth(10 * _MINUTE_S), Growth(10 * _MINUTE_S)

    def look(self, frame: Frame) -> list[Fired]:
        """What fires at a frame."""
        fired = list(self._xids(frame))
        gpus, nodes = table_of(frame, EntityKind.GPU), table_of(frame, EntityKind.NODE)
        if gpus is not None:
            rules = [*self._ecc(gpus, frame.at), *self._health(gpus, frame.at)]
            quiet = self._long["gpu_quiet"].held(~gpus.reported, frame.at, 5 * _MINUTE_S)
            if nodes is not None:
                up = np.zeros(len(frame.nodes), np.bool_)
                up[nodes.node_of[nodes.reported]] = True
                rules.append(("DCGM silent, target up", quiet & up[gpus.node_of]))
            fired += _told(frame, gpus, rules)
        if nodes is not None:
            rules = list(self._precursors(nodes, frame.at))
            down = self._long["node_quiet"].held(~nodes.reported, frame.at, 5 * _MINUTE_S)
            fired += _told(frame, nodes, [*rules, ("exporter down", down)])
        return fired

    def _xids(self, frame: Frame) -> Iterator[Fired]:
        for told in frame.events:
            code = told.event.xid
            if code:
                group = "restarts the application" if code in _APPLICATION else f"{code}"
                at = min(told.event.observed_at, frame.at)
                yield Fired(event_name(told), at, f"XID {group}")

    def _ecc(self, gpus: FrameTable, at: float) -> Iterator[_Rule]:
        remaps = column(gpus, "gpu_rows_remapped_uncorrectable_total")
        yield "uncorrectable remap", self._remaps.within(remaps, at) > 0
        yield "remap failure", column(gpus, "gpu_row_remap_failure") > 0
        pending = column(gpus, "gpu_row_remap_pending") > 0
        yield "remap pending", self._long["pending"].held(pending, at, 5 * _MINUTE_S)
        corrected = column(gpus, "gpu_ecc_corrected_volatile_total")
        yield "correctable growth", self._corrected.within(corrected, at) > 8
        uncorrected = column(gpus, "gpu_ecc_uncorrected_volatile_total")
        yield "double-bit error", self._uncorrected.within(uncorrected, at) > 0

    def _health(self, gpus: FrameTable, at: float) -> Iterator[_Rule]:
        die = column(gpus, "gpu_temperature_celsius")
        yield "die above 85 C", self._long["warm"].held(die > 85, at, 5 * _MINUTE_S)
        yield "die above 92 C", self._long["hot"].held(die > 92, at, 2 * _MINUTE_S)
        memory = column(gpus, "gpu_memory_temperature_celsius") > 95
        yield "HBM above 95 C", self._long["hbm"].held(memory, at, 5 * _MINUTE_S)
        clock = column(gpus, "gpu_clock_event_reasons") >= _RESET_AND_ABOVE
        yield "clock event", self._long["clock"].held(clock, at, 10 * _MINUTE_S)

    def _precursors(self, nodes: FrameTable, at: float) -> Iterator[_Rule]:
        if int(nodes.reported.sum()) < _LEAST_NODES:
            return
        interrupts = self._interrupts.within(column(nodes, "node_interrupts_total"), at)
        pages = self._pages.within(column(nodes, "node_pages_out_bytes_total"), at)
        running = column(nodes, "node_processes_running")
        few = interrupts < 0.5 * _middle(interrupts)
        yield "few interrupts", self._long["interrupts"].held(few, at, 10 * _MINUTE_S)
        stalled = (running < 2) & (_middle(running) > 10)
        yield "few runnable", self._long["runnable"].held(stalled, at, 10 * _MINUTE_S)
        yield "pages out", pages > 4 * _middle(pages) + 1


def _told(frame: Frame, table: FrameTable, rules: list[_Rule]) -> list[Fired]:
    return [
        Fired(name, frame.at, rule)
        for rule, rows in rules
        if rows.any()
        for name in names_where(frame, table, rows)
    ]


def _middle(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")
