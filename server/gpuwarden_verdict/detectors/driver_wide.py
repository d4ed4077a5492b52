"""The same driver fault on most GPUs of a node at once: the node's driver, not its GPUs."""

from __future__ import annotations

from gpuwarden_verdict.context import CHAIN_S, NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import Weight, event_signal
from gpuwarden_verdict.detectors.xid import RECOVERY_XID, XidReading, read_xid
from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.incidents.storms import DRIVER_WIDE
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_WEIGHT = Weight(
    # A reset of a single GPU mends no driver: INVESTIGATE_SW is what the catalogue has beside
    # RESET_GPU for 119 and 120. What the GPUs themselves say (79, 154, a lost device) still acts.
    0.6,
    Severity.ERROR,
    Persistence.BOOT,
    action=RecommendedAction.REBOOT_NODE,
    max_rung=Rung.SUSPECT,
)


class DriverWideDetector:
    """Signals about a node when more than half of its GPUs tell one driver code within CHAIN_S.

    More than half, and at least two: single GPUs fail hours apart (Delta: one XID 119 in 9.6 h over
    448 GPUs), and one that is idle or lost already has nothing to tell.
    """

    name = "driver_wide"
    version = 1
    about = About(
        Plane.EVENTS,
        ("xid",),
        "the driver of a node is at fault, not its GPUs",
        "one fatal driver code on more than half of a node's GPUs within 30 s",
        Rung.SUSPECT,
        "a reboot, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal with each occurrence from then on; of unproven lines none, they acquit."""
        if ref.kind is not EntityKind.GPU or not _is_drivers(event, node):
            return []
        told = {ref.key} | {
            past.ref.key
            for past in node.recent
            if past.ref.kind is EntityKind.GPU
            and past.event.xid == event.xid
            and abs(past.event.observed_at - event.observed_at) <= CHAIN_S
            and origin_proven(past.event)
        }
        gpus = {gpu.gpu_uuid for gpu in node.gpus.values()}
        if len(told) < 2 or 2 * len(told) <= len(gpus):
            return []
        signal = event_signal(
            event,
            EntityRef(EntityKind.NODE, node.node_id, node.node_id),
            node,
            detector=f"{DRIVER_WIDE}xid:{event.xid}",
            version=self.version,
            fault_class=FaultClass.DRIVER,
            weight=_WEIGHT,
            sentence=f"XID {event.xid} ({read_xid(event, node).name}) on {len(told)} of "
            f"{len(gpus)} GPUs of node {node.node_id} at once: its driver or firmware, "
            "not single GPUs",
        )
        return [signal]


def _is_drivers(event: Event, node: NodeContext) -> bool:
    """Whether an event is a fatal code of the driver that does not decide alone."""
    if event.kind not in (EventKind.KERNEL_LOG, EventKind.NVML_XID):
        return False
    if event.xid in (None, RECOVERY_XID) or not origin_proven(event):
        return False
    return _may_be_shared(read_xid(event, node))


def _may_be_shared(xid: XidReading) -> bool:
    fatal = xid.severity is Severity.CRITICAL and xid.fault_class is FaultClass.DRIVER
    return fatal and not (xid.acts_alone or xid.echo or xid.application_possible)
