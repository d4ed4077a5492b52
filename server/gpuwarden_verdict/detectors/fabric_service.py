"""The fabric manager of a node with NVSwitches is not there, or never got its GPUs together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
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
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_verdict.windows.planes import AnyArray
from gpuwarden_wire.metrics import EntityKind

RUNNING, SWITCHES = "node_fabric_manager_running", "node_nvswitches"
STATE = "gpu_fabric_state"
COMPLETED = 3.0
"""NVML_GPU_FABRIC_STATE_COMPLETED; 1 not started, 2 in progress, 0 no fabric."""
HELD_S = 300.0
"""Registration takes seconds to a few minutes while a service starts."""
MOST_GPUS = 0.5
"""Of a node's GPUs: when more are without fabric, the node is the cause, not each of them."""

_SCORE_ALONE = 0.6
"""Its process is gone: running work goes on. Whether it was stopped on purpose nobody can see."""
_SCORE_AGREED = 0.9
"""And the GPUs are in no fabric: CUDA cannot start there (Fabric Manager user guide, "CUDA
initialisation returns cudaErrorSystemNotReady")."""


@dataclass(frozen=True, slots=True)
class _Fabric:
    """The state of nodes and GPUs.

    Attributes:
        gone: Nodes with NVSwitches and without their manager, shape (nodes,).
        apart: GPUs that are in a fabric and have not joined it, shape (GPUs,).
        together: Share of each node's GPUs that are apart, shape (nodes,).
    """

    gone: Bool
    apart: Bool
    together: AnyArray


class FabricServiceDetector:
    """Signals of nodes without a fabric manager, and of GPUs that have not joined their fabric.

    NVSentinel#883 and #889: dead for twenty days, every GPU "healthy". A node without NVSwitches
    has no use for one. That IMEX does not run says nothing: only memory shared between nodes of one
    rack needs it.
    """

    name = "fabric_manager"
    version = 1
    speaks_for = frozenset({"fabric_manager"})
    about = About(
        Plane.STRUCTURE,
        (RUNNING, SWITCHES, STATE),
        "NVSwitches without their fabric manager, or GPUs that did not join their fabric",
        f"in two readings; a GPU's state below {COMPLETED:.0f} for {HELD_S:.0f} s; not in the "
        "grace after a boot",
        Rung.EXCLUDE,
        "the process runs, the GPUs have joined; or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a node; where few of its GPUs are apart, one a GPU."""
        fabric = _fabric(state, fleet)
        if not (fabric.gone.any() or fabric.apart.any()):
            return []
        nodes, gpus = state.view(EntityKind.NODE), state.view(EntityKind.GPU)
        whole = fabric.together > MOST_GPUS
        told = (fabric.gone | whole) & ~in_boot_grace(state, nodes, fleet, now)
        single = fabric.apart & ~whole[gpus.node_rows]
        single &= ~in_boot_grace(state, gpus, fleet, now)
        signals = [
            self._of_node(ref, bool(fabric.gone[row]), float(fabric.together[row]), now)
            for row, ref in hits(nodes, told)
        ]
        states = gpus.last(STATE)
        return signals + [
            self._of_gpu(ref, float(states[row]), now) for row, ref in hits(gpus, single)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Nodes whose manager runs and whose GPUs have joined; GPUs that have."""
        nodes, gpus = state.view(EntityKind.NODE), state.view(EntityKind.GPU)
        fabric = _fabric(state, fleet)
        joined = fresh(state, gpus, STATE, fleet) & (gpus.last(STATE) >= COMPLETED)
        runs = fresh(state, nodes, RUNNING, fleet) & (nodes.last(RUNNING) >= 1)
        runs |= _none_apart(state, joined) & ~fabric.gone
        clear = runs & ~(fabric.together > MOST_GPUS)
        return clear_recoveries(
            state,
            EntityKind.NODE,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda _row: "the fabric manager runs and the GPUs have joined their fabric",
        ) + clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            joined,
            self.speaks_for,
            now,
            lambda _row: "the GPU has joined its fabric",
        )

    def _of_node(self, ref: EntityRef, gone: bool, together: float, now: float) -> Signal:
        apart = together > MOST_GPUS
        what = "has NVSwitches and no fabric manager running" if gone else "is in no NVLink fabric"
        most = f"; {together:.0%} of its GPUs have not joined their fabric" if apart else ""
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.FABRIC,
            score=_SCORE_AGREED if apart else _SCORE_ALONE,
            severity=Severity.ERROR,
            sentence=f"node {ref.key} {what}{most}",
            numbers={RUNNING: 0.0 if gone else 1.0, "gpus_apart_ratio": together},
            thresholds={RUNNING: 1.0, "gpus_apart_ratio": MOST_GPUS},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.EXCLUDE,
        )

    def _of_gpu(self, ref: EntityRef, value: float, now: float) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.NVLINK,
            score=_SCORE_AGREED,
            severity=Severity.ERROR,
            sentence=f"GPU {ref.key} has not joined its NVLink fabric, most of its node have "
            f"({STATE} = {value:.0f})",
            numbers={STATE: value},
            thresholds={STATE: COMPLETED},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.RESET_GPU,
            max_rung=Rung.EXCLUDE,
        )


def _fabric(state: FleetReading, fleet: FleetContext) -> _Fabric:
    nodes, gpus = state.view(EntityKind.NODE), state.view(EntityKind.GPU)
    gone = (nodes.last(RUNNING) == 0) & (nodes.last(SWITCHES) > 0) & twice(nodes, RUNNING)
    if gone.any():
        gone &= fresh(state, nodes, RUNNING, fleet) & fresh(state, nodes, SWITCHES, fleet)
    value = gpus.last(STATE)
    with np.errstate(invalid="ignore"):
        apart = (value >= 1) & (value < COMPLETED) & (gpus.steady_s(STATE) >= HELD_S)
    if apart.any():
        apart &= fresh(state, gpus, STATE, fleet)
    number = np.bincount(gpus.node_rows, minlength=len(nodes))
    without = np.bincount(gpus.node_rows[apart], minlength=len(nodes))
    return _Fabric(gone, apart, without / np.maximum(number, 1))


def _none_apart(state: FleetReading, joined: Bool) -> Bool:
    """Nodes all of whose GPUs have joined, shape (nodes,); none for nodes without GPUs."""
    gpus = state.view(EntityKind.GPU)
    nodes = len(state.view(EntityKind.NODE))
    number = np.bincount(gpus.node_rows, minlength=nodes)
    whole: Bool = np.bincount(gpus.node_rows[joined], minlength=nodes) == number
    return whole & (number > 0)
