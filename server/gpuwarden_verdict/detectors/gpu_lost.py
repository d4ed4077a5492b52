"""A GPU that is gone: by the kernel without an XID, or by NVML's probes."""

from __future__ import annotations

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import Weight, event_signal, where
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

LOG_DETECTOR = "gpu_lost_log"
PROBE_DETECTOR = "gpu_lost"
ENOUGH_PROBES = 2
"""One probe may meet a reset under way."""
_BUS_XID = 79

_CONFIRMED = Weight(
    0.95,
    Severity.CRITICAL,
    Persistence.BOOT,
    action=RecommendedAction.REBOOT_NODE,
    acts_alone=True,
)
_ONE_VOICE = Weight(0.7, Severity.ERROR, Persistence.BOOT, action=RecommendedAction.INVESTIGATE)
_PROBED = Weight(
    0.95,
    Severity.CRITICAL,
    Persistence.LEVEL,
    action=RecommendedAction.REBOOT_NODE,
    acts_alone=True,
)
_PROBED_ONCE = Weight(0.5, Severity.ERROR, Persistence.LEVEL)


class GpuLostDetector:
    """Signals of lost GPUs. The kernel's word without an XID waits for a second voice."""

    name = "gpu_lost"
    version = 1
    about = About(
        Plane.STRUCTURE,
        ("gpu_lost",),
        "a GPU is gone",
        "two probes in a row, or one and the kernel's word",
        Rung.EXCLUDE,
        "the GPU answers twice, a reboot of what the kernel said, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal a line or probe event; a line that names no known GPU speaks of the node."""
        if event.kind is EventKind.GPU_LOST:
            return [self._probed(event, ref, node)]
        if event.kind is EventKind.KERNEL_LOG and event.family == Family.GPU_LOST:
            return [self._logged(event, ref, node)]
        return []

    def _probed(self, event: Event, ref: EntityRef, node: NodeContext) -> Signal:
        probes = _probes(event)
        sure = probes >= ENOUGH_PROBES or _told_by_kernel(event, ref, node)
        reason = event.attributes.get("reason", "lost")
        return event_signal(
            event,
            ref,
            node,
            detector=PROBE_DETECTOR,
            version=self.version,
            fault_class=FaultClass.BUS,
            weight=_PROBED if sure else _PROBED_ONCE,
            sentence=f"{where(event, ref)} is gone ({reason}) {_in_words(probes, sure=sure)}",
            plane=Plane.STRUCTURE,
        )

    def _logged(self, event: Event, ref: EntityRef, node: NodeContext) -> Signal:
        sure = ref.kind is EntityKind.GPU and _told_by_probe(event, ref, node)
        return event_signal(
            event,
            ref,
            node,
            detector=LOG_DETECTOR,
            version=self.version,
            fault_class=FaultClass.BUS,
            weight=_CONFIRMED if sure else _ONE_VOICE,
            sentence=f"the kernel says that {where(event, ref)} fell off the bus",
        )


def _probes(event: Event) -> int:
    probes = event.attributes.get("probes", 1)
    return probes if isinstance(probes, int) and not isinstance(probes, bool) else 1


def _in_words(probes: int, *, sure: bool) -> str:
    if probes >= ENOUGH_PROBES:
        return f"at {probes} probes in a row"
    return "at one probe, and the kernel says so too" if sure else "at one probe"


def _told_by_kernel(event: Event, ref: EntityRef, node: NodeContext) -> bool:
    return any(
        origin_proven(past) and (past.family == Family.GPU_LOST or past.xid == _BUS_XID)
        for past in node.lately(ref, event.observed_at)
    )


def _told_by_probe(event: Event, ref: EntityRef, node: NodeContext) -> bool:
    return any(past.kind is EventKind.GPU_LOST for past in node.lately(ref, event.observed_at))
