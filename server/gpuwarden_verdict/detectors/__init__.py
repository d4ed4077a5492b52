"""Detectors: from an event, or from the fleet's windows, to signals.

The two tuples are all there is: a detector that is not in them does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from gpuwarden_verdict.context import FleetContext, NodeContext
from gpuwarden_verdict.detectors.aer import AER
from gpuwarden_verdict.detectors.bus_counters import BUS_COUNTERS
from gpuwarden_verdict.detectors.check_failed import CheckFailedDetector
from gpuwarden_verdict.detectors.contract import (
    EventDetector,
    Failed,
    SweepDetector,
    raise_error,
)
from gpuwarden_verdict.detectors.cooling import COOLING_LOST
from gpuwarden_verdict.detectors.device_missing import DeviceMissingDetector
from gpuwarden_verdict.detectors.drift import DRIFT_DETECTORS
from gpuwarden_verdict.detectors.driver_stuck import DriverStuckDetector
from gpuwarden_verdict.detectors.driver_wide import DriverWideDetector
from gpuwarden_verdict.detectors.ecc_corrected import EccCorrectedDetector
from gpuwarden_verdict.detectors.ecc_uncorrected import EccUncorrectedDetector
from gpuwarden_verdict.detectors.fabric_service import FabricServiceDetector
from gpuwarden_verdict.detectors.fabric_states import FABRIC_STATES
from gpuwarden_verdict.detectors.failed_jobs import FailedJobsDetector
from gpuwarden_verdict.detectors.gpu_answers import ANSWERS, detect_answers
from gpuwarden_verdict.detectors.gpu_lost import GpuLostDetector
from gpuwarden_verdict.detectors.gpu_unread import GpuUnreadDetector
from gpuwarden_verdict.detectors.host_memory import HOST_MEMORY
from gpuwarden_verdict.detectors.host_planes import HOST_PLANES
from gpuwarden_verdict.detectors.host_stall import HUNG_TASK, LOCKUP, OOM
from gpuwarden_verdict.detectors.hung_kernel import HungKernelDetector
from gpuwarden_verdict.detectors.job_loss import LOSS_NOT_FINITE, JobLossDetector
from gpuwarden_verdict.detectors.learned import (
    detect_model_gone,
    detect_risk,
    detect_risk_clear,
)
from gpuwarden_verdict.detectors.limited import Limited, scoped_rule
from gpuwarden_verdict.detectors.link_down import CARRIER_DOWN, PORT_DOWN
from gpuwarden_verdict.detectors.link_flapping import PORT_FLAPPING
from gpuwarden_verdict.detectors.memory_states import MEMORY_STATES
from gpuwarden_verdict.detectors.nic_error import NIC_ERROR, NIC_LINK_LOG
from gpuwarden_verdict.detectors.nic_planes import NIC_PLANES
from gpuwarden_verdict.detectors.nvlink_counters import NVLINK_COUNTERS
from gpuwarden_verdict.detectors.nvlink_down import NvlinkDownDetector
from gpuwarden_verdict.detectors.nvlink_log import NVLINK_LOG
from gpuwarden_verdict.detectors.pcie_downtrained import PCIE_GENERATION, PCIE_WIDTH
from gpuwarden_verdict.detectors.peer_deviation import PEER_DETECTORS
from gpuwarden_verdict.detectors.plug_in_check import PlugInCheckDetector
from gpuwarden_verdict.detectors.power_brake import BOARD_SLOWDOWN, PowerBrakeDetector
from gpuwarden_verdict.detectors.probe_slow import POLL_SLOW, PROBE_SLOW
from gpuwarden_verdict.detectors.recoveries import detect_recovery
from gpuwarden_verdict.detectors.recovery_action import RecoveryActionDetector
from gpuwarden_verdict.detectors.recovery_text import RecoveryTextDetector
from gpuwarden_verdict.detectors.remap_trend import RemapTrendDetector
from gpuwarden_verdict.detectors.retired_pages import RetiredPagesDetector
from gpuwarden_verdict.detectors.rm_init_failed import RM_INIT_FAILED
from gpuwarden_verdict.detectors.row_remap import ROW_REMAP_FAILURE, ROW_REMAP_PENDING
from gpuwarden_verdict.detectors.storage import DISK_ERROR, FS_READONLY, NFS_TIMEOUT
from gpuwarden_verdict.detectors.storage_planes import DISK_PLANES, MOUNT_PLANES
from gpuwarden_verdict.detectors.sxid import SxidDetector
from gpuwarden_verdict.detectors.thermal import THERMAL
from gpuwarden_verdict.detectors.uncorrectable_remap import UncorrectableRemapDetector
from gpuwarden_verdict.detectors.xid import XidDetector
from gpuwarden_verdict.detectors.xid_repeat import XidRepeatDetector
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.signals import Persistence, Recovery, Signal
from gpuwarden_verdict.tuning.limits import ScopedRule
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.events import Event

__all__ = [
    "DETECTOR_SETTINGS",
    "EVENT_DETECTORS",
    "SWEEP_DETECTORS",
    "EventDetector",
    "Failed",
    "SweepDetector",
    "detect_clears",
    "detect_event",
    "detect_model_gone",
    "detect_recovery",
    "detect_risk",
    "detect_risk_clear",
    "detect_sweep",
    "scoped_rules",
]

T = TypeVar("T")

EVENT_DETECTORS: tuple[EventDetector, ...] = (
    XidDetector(),
    XidRepeatDetector(),
    UncorrectableRemapDetector(),
    DriverWideDetector(),
    RecoveryTextDetector(),
    SxidDetector(),
    GpuLostDetector(),
    RM_INIT_FAILED,
    AER,
    HOST_MEMORY,
    NIC_ERROR,
    NIC_LINK_LOG,
    NVLINK_LOG,
    FS_READONLY,
    DISK_ERROR,
    NFS_TIMEOUT,
    LOCKUP,
    HUNG_TASK,
    OOM,
    DriverStuckDetector(),
    CheckFailedDetector(),
    PlugInCheckDetector(),
    JobLossDetector(),
)
SWEEP_DETECTORS: tuple[SweepDetector, ...] = (
    LOSS_NOT_FINITE,
    ROW_REMAP_FAILURE,
    ROW_REMAP_PENDING,
    *MEMORY_STATES,
    RemapTrendDetector(),
    RetiredPagesDetector(),
    RecoveryActionDetector(),
    EccUncorrectedDetector(),
    EccCorrectedDetector(),
    DeviceMissingDetector(),
    GpuUnreadDetector(),
    *BUS_COUNTERS,
    PCIE_WIDTH,
    PCIE_GENERATION,
    PORT_DOWN,
    CARRIER_DOWN,
    PORT_FLAPPING,
    NvlinkDownDetector(),
    *NVLINK_COUNTERS,
    *FABRIC_STATES,
    FabricServiceDetector(),
    *THERMAL,
    PowerBrakeDetector(),
    BOARD_SLOWDOWN,
    HungKernelDetector(),
    PROBE_SLOW,
    POLL_SLOW,
    FailedJobsDetector(),
    *PEER_DETECTORS,
    COOLING_LOST,
    *DRIFT_DETECTORS,
    *NIC_PLANES,
    *DISK_PLANES,
    *MOUNT_PLANES,
    *HOST_PLANES,
)

_LIMITED = tuple(one for one in SWEEP_DETECTORS if isinstance(one, Limited))
"""Those with a limit that can be seen and set; found once, since to ask is dear."""

_SETTINGS_OF_ALL = frozenset({"enabled", "pools"})


def _settings(detector: EventDetector | SweepDetector) -> frozenset[str]:
    if not isinstance(detector, Limited):
        return _SETTINGS_OF_ALL
    learns = detector.limits.budget is not None
    return _SETTINGS_OF_ALL | {"limit"} | ({"budget"} if learns else set())


DETECTOR_SETTINGS: Mapping[str, frozenset[str]] = MappingProxyType(
    {one.name: _settings(one) for one in EVENT_DETECTORS}
    | {one.name: _settings(one) for one in SWEEP_DETECTORS}
)
"""What a policy may say under [detectors.NAME], by name."""


def detect_event(event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
    """Signals of all event detectors for one event.

    Args:
        event: The event as stored.
        ref: The entity it was joined to (`context.entity_of`).
        node: What is known of its node.
    """
    return [
        signal
        for detector in EVENT_DETECTORS
        for signal in detector.detect_event(event, ref, node)
        if not node.tuning.is_off(signal.detector, node.pool)
    ]


def detect_sweep(
    state: FleetReading, fleet: FleetContext, now: float, failed: Failed = raise_error
) -> list[Signal]:
    """Signals of all sweep detectors that are not off in the pool.

    Args:
        state: The windows.
        fleet: What is known besides.
        now: Epoch seconds.
        failed: Told of a detector that raised; it says nothing then, the others do.
    """
    pools, tuning = fleet.pools, fleet.tuning
    return [
        signal
        for detector in SWEEP_DETECTORS
        if not tuning.is_off_everywhere(detector.name)
        for signal in _tried(
            detector.name, partial(detector.detect, state, fleet, now), list[Signal](), failed
        )
        if not tuning.is_off(signal.detector, pools.get(signal.entity.node_id, ""))
    ]


def detect_clears(
    state: FleetReading,
    fleet: FleetContext,
    open_incidents: Sequence[Incident],
    now: float,
    failed: Failed = raise_error,
) -> list[Recovery]:
    """Recoveries by fresh readings for the level evidence of open incidents.

    Only evidence that stands and that a reading can end is asked about.

    Args:
        state: The windows.
        fleet: What is known besides.
        open_incidents: All that are open.
        now: Epoch seconds.
        failed: Told of a detector that raised; it clears nothing then, the others do.
    """
    asked: dict[str, set[EntityRef]] = {}
    for incident in open_incidents:
        for item in incident.evidence:
            if item.persistence is Persistence.LEVEL and item.cleared_at is None:
                asked.setdefault(item.detector, set()).add(incident.entity)
    answers = partial(detect_answers, state, fleet, open_incidents, now)
    recoveries = list(_tried(ANSWERS, answers, list[Recovery](), failed))
    for detector in SWEEP_DETECTORS if asked else ():
        entities = set().union(*(asked.get(name, set()) for name in detector.speaks_for))
        ordered = sorted(entities, key=lambda ref: (ref.kind, ref.key))
        if ordered:
            clears = partial(detector.clears, state, fleet, ordered, now)
            recoveries += _tried(detector.name, clears, list[Recovery](), failed)
    return recoveries


def scoped_rules(
    state: FleetReading, fleet: FleetContext, now: float, failed: Failed = raise_error
) -> list[ScopedRule]:
    """Limits of all detectors that hold a statistic against one, where there is anything to see.

    Args:
        state: The windows.
        fleet: What is known besides.
        now: Epoch seconds.
        failed: Told of a detector that raised; its limit is left out then.
    """
    rules = (
        _tried(one.name, partial(scoped_rule, one, state, fleet, now), None, failed)
        for one in _LIMITED
    )
    return [rule for rule in rules if rule is not None]


def _tried(name: str, work: Callable[[], T], otherwise: T, failed: Failed) -> T:
    try:
        return work()
    except Exception as error:  # one detector's: the sweep of all others goes on
        failed(name, error)
        return otherwise
