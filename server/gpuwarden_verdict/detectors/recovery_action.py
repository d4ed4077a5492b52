"""The driver's own verdict, polled: nvmlDeviceGetFieldValues, GPU recovery action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpuwarden_verdict.context import CHAIN_S, FleetContext
from gpuwarden_verdict.detectors import recovery_text
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.reading import clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_wire.metrics import EntityKind

METRIC = "gpu_recovery_action"


@dataclass(frozen=True, slots=True)
class _Asked:
    words: str
    score: float
    severity: Severity
    action: RecommendedAction
    acts_alone: bool
    max_rung: Rung = Rung.EXCLUDE


# nvmlDeviceGpuRecoveryAction_t, nvml.h
_ASKED = MappingProxyType(
    {
        1: _Asked("a GPU reset", 0.95, Severity.CRITICAL, RecommendedAction.RESET_GPU, True),
        2: _Asked("a reboot", 0.95, Severity.CRITICAL, RecommendedAction.REBOOT_NODE, True),
        3: _Asked(
            "P2P work to be drained",
            0.95,
            Severity.CRITICAL,
            RecommendedAction.INVESTIGATE,
            True,
            Rung.DRAIN,
        ),
        4: _Asked(
            "a drain and a reset",
            0.95,
            Severity.CRITICAL,
            RecommendedAction.RESET_GPU,
            True,
            Rung.DRAIN,
        ),
        # 5: the IMEX domain is to be recovered: a service of the rack, not this GPU
        5: _Asked(
            "its IMEX domain to be recovered",
            0.4,
            Severity.WARNING,
            RecommendedAction.INVESTIGATE,
            False,
            Rung.SUSPECT,
        ),
        6: _Asked("a bus reset", 0.95, Severity.CRITICAL, RecommendedAction.RESET_GPU, True),
        7: _Asked("a system reboot", 0.95, Severity.CRITICAL, RecommendedAction.REBOOT_NODE, True),
    }
)
_UNKNOWN = _Asked(
    "an action that we do not know",
    0.4,
    Severity.WARNING,
    RecommendedAction.INVESTIGATE,
    False,
    Rung.SUSPECT,
)
_GROUPS = (
    (EventGroup.XID_MEMORY, FaultClass.MEMORY),
    (EventGroup.XID_BUS, FaultClass.BUS),
    (EventGroup.XID_NVLINK, FaultClass.NVLINK),
    (EventGroup.XID_DRIVER, FaultClass.DRIVER),
)


class RecoveryActionDetector:
    """Signals where the driver asks for something. Its class is that of the XID beside it."""

    name = "recovery_action"
    version = 1
    about = About(
        Plane.COUNTERS,
        (METRIC,),
        "the driver asks for a reset, a reboot or a drain",
        ">= 1",
        Rung.DRAIN,
        "the driver asks for nothing any more, or a passed check",
    )
    speaks_for = frozenset({"recovery_action", recovery_text.DETECTOR})

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU whose recovery action is not 0."""
        view = state.view(EntityKind.GPU)
        values = view.last(METRIC)
        mask = fresh(state, view, METRIC, fleet) & (values >= 1)
        return [
            self._signal(view, row, ref, int(values[row]), fleet, now)
            for row, ref in hits(view, mask)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs for which the driver asks for nothing now."""
        view = state.view(EntityKind.GPU)
        clear = fresh(state, view, METRIC, fleet) & (view.last(METRIC) == 0)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda _row: "the driver asks for nothing (recovery action 0)",
        )

    def _signal(
        self,
        view: KindView,
        row: int,
        ref: EntityRef,
        value: int,
        fleet: FleetContext,
        now: float,
    ) -> Signal:
        asked = _ASKED.get(value, _UNKNOWN)
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=_class_beside(view, row),
            score=asked.score,
            severity=asked.severity,
            sentence=f"the driver asks for {asked.words}: GPU {ref.key}, recovery action {value}",
            numbers={METRIC: float(value)},
            thresholds={METRIC: 1.0},
            action=asked.action,
            acts_alone=asked.acts_alone,
            max_rung=asked.max_rung,
            boot_id=fleet.boot_ids.get(ref.node_id, ""),
        )


def _class_beside(view: KindView, row: int) -> FaultClass:
    """Class of the earliest event within CHAIN_S of the change, UNKNOWN where there is none."""
    changed_at = view.last_change_at(METRIC)[row]
    times = [(view.last_event_at(group)[row], n) for n, (group, _) in enumerate(_GROUPS)]
    near = [(at, n) for at, n in times if not np.isnan(at) and abs(at - changed_at) <= CHAIN_S]
    return _GROUPS[min(near)[1]][1] if near else FaultClass.UNKNOWN
