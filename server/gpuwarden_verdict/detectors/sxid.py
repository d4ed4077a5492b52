"""SXids: the NVSwitch driver's faults."""

from __future__ import annotations

from gpuwarden_kernel_log import KernelEvent
from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import (
    Weight,
    event_signal,
    parsed_line,
    severity_of,
    times,
    where,
)
from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind

_FATAL = Weight(
    0.95,
    Severity.CRITICAL,
    Persistence.BOOT,
    action=RecommendedAction.REBOOT_NODE,
    acts_alone=True,
)
"""Fatal SXids need a reset of the switch and all GPUs on it: Fabric Manager user guide, app. D."""
_FATAL_NOT_ALONE = Weight(
    0.75, Severity.CRITICAL, Persistence.BOOT, action=RecommendedAction.REBOOT_NODE
)
_NONFATAL = Weight(0.2, Severity.WARNING, max_rung=Rung.SUSPECT)
"""Non-fatal ones are corrected or end with the job; peers that cordoned on them were wrong."""


class SxidDetector:
    """Signals of SXids, on the node: a switch serves all of its GPUs."""

    name = "sxid"
    version = 1
    about = About(
        Plane.EVENTS,
        ("sxid",),
        "an NVSwitch reports a fault",
        "each line; Fatal by the driver's own word acts alone",
        Rung.EXCLUDE,
        "a reboot of what is fatal, time, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal an SXid line."""
        if event.sxid is None or event.kind is not EventKind.KERNEL_LOG:
            return []
        parsed = parsed_line(event, node)
        fatal = severity_of(event, parsed) is Severity.CRITICAL
        alone = parsed is not None and parsed.acts_alone
        weight = (_FATAL if alone else _FATAL_NOT_ALONE) if fatal else _NONFATAL
        kind = "fatal" if fatal else "non-fatal"
        signal = event_signal(
            event,
            ref,
            node,
            detector=f"sxid:{event.sxid}",
            version=self.version,
            fault_class=_fault_class(parsed),
            weight=weight,
            sentence=f"{kind} SXid {event.sxid} on {where(event, ref)}{times(event)}",
            echo=parsed is not None and parsed.echo,
        )
        return [signal]


def _fault_class(parsed: KernelEvent | None) -> FaultClass:
    if parsed is None or parsed.fault_class is None:
        return FaultClass.NVLINK
    return FaultClass(parsed.fault_class.value)
