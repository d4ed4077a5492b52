"""A node shows fewer GPUs than it should have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
    twice,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetState, KindView
from gpuwarden_verdict.windows.planes import AnyArray
from gpuwarden_wire.metrics import EntityKind

VISIBLE, ON_PCI, EXPECTED = "node_gpus_visible", "node_gpus_on_pci", "node_gpus_expected"
_SCORE_BOTH, _SCORE_DRIVER = 0.9, 0.82


class DeviceMissingDetector:
    """Signals of nodes whose count of GPUs is below what is expected in two readings.

    A count that could not be read is no count: our own trouble never makes a GPU missing. GPUs that
    are known to be lost have incidents of their own; for them the node is suspect at most, so that
    the others can still be used.
    """

    name = "device_missing"
    version = 1
    speaks_for = frozenset({"device_missing"})

    def detect(self, state: FleetState, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a node with fewer GPUs than expected, outside boot grace."""
        view = state.view(EntityKind.NODE)
        visible, on_pci = view.last(VISIBLE), view.last(ON_PCI)
        expected = _expected(state, view, fleet)
        with np.errstate(invalid="ignore"):
            short = (visible < expected) & twice(view, VISIBLE)
            off_bus = (on_pci < expected) & fresh(state, view, ON_PCI, fleet)
            unexplained = expected - visible > _known_lost(state)
        mask = short & fresh(state, view, VISIBLE, fleet)
        mask &= ~in_boot_grace(state, view, fleet, now)
        return [
            self._signal(
                ref,
                now,
                visible=float(visible[row]),
                on_pci=float(on_pci[row]),
                expected=float(expected[row]),
                off_bus=bool(off_bus[row]),
                max_rung=Rung.EXCLUDE if unexplained[row] else Rung.SUSPECT,
            )
            for row, ref in hits(view, mask)
        ]

    def clears(
        self, state: FleetState, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Nodes that show all their GPUs now."""
        view = state.view(EntityKind.NODE)
        clear = _complete(state, view, fleet)
        visible = view.last(VISIBLE)
        return clear_recoveries(
            state,
            EntityKind.NODE,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda row: f"all {visible[row]:.0f} GPUs are visible",
        )

    def _signal(
        self,
        ref: EntityRef,
        now: float,
        *,
        visible: float,
        on_pci: float,
        expected: float,
        off_bus: bool,
        max_rung: Rung,
    ) -> Signal:
        place = "off the PCIe bus" if off_bus else "not started by the driver"
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.BUS if off_bus else FaultClass.DRIVER,
            score=_SCORE_BOTH if off_bus else _SCORE_DRIVER,
            severity=Severity.ERROR,
            sentence=(
                f"node {ref.key} shows {visible:.0f} of {expected:.0f} GPUs, the rest is {place}"
            ),
            numbers={VISIBLE: visible, ON_PCI: on_pci},
            thresholds={VISIBLE: expected, ON_PCI: expected},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.REBOOT_NODE,
            max_rung=max_rung,
        )


def _expected(state: FleetState, view: KindView, fleet: FleetContext) -> AnyArray:
    """What the node says it expects, else what the inventory says; NaN where neither does."""
    expected = np.where(fresh(state, view, EXPECTED, fleet), view.last(EXPECTED), np.nan)
    if not fleet.gpus_expected:
        return expected
    keys = list(fleet.gpus_expected)
    rows = state.rows_of(EntityKind.NODE, keys)
    known = rows >= 0
    told = np.full(len(view), np.nan)
    told[rows[known]] = np.array([fleet.gpus_expected[key] for key in keys])[known]
    return np.where(np.isnan(expected), told, expected)


def _complete(state: FleetState, view: KindView, fleet: FleetContext) -> Bool:
    with np.errstate(invalid="ignore"):
        enough = view.last(VISIBLE) >= _expected(state, view, fleet)
    return enough & fresh(state, view, VISIBLE, fleet)


def _known_lost(state: FleetState) -> AnyArray:
    """GPUs of each node that are known to be lost (gpu_present reads 0), shape (nodes,)."""
    gpus = state.view(EntityKind.GPU)
    lost = gpus.last("gpu_present") == 0
    return np.bincount(gpus.node_rows[lost], minlength=len(state.view(EntityKind.NODE)))
