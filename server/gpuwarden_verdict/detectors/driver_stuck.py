"""The driver does not answer: at most suspect until a second kind of evidence agrees."""

from __future__ import annotations

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import Weight, event_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind

DETECTOR = "driver_stuck"
_WEIGHT = Weight(0.5, Severity.ERROR, Persistence.LEVEL, max_rung=Rung.SUSPECT)


class DriverStuckDetector:
    """Signals of an NVML call in flight for more than 30 s while its child lives.

    A child that is stopped or gone is our own trouble (COLLECTOR_TROUBLE) and no signal at all.
    """

    name = DETECTOR
    version = 1
    about = About(
        Plane.STRUCTURE,
        ("driver_stuck",),
        "the NVIDIA driver does not answer",
        "an NVML call in flight for more than 30 s",
        Rung.SUSPECT,
        "the driver answers, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal a DRIVER_STUCK event."""
        if event.kind is not EventKind.DRIVER_STUCK:
            return []
        signal = event_signal(
            event,
            ref,
            node,
            detector=DETECTOR,
            version=self.version,
            fault_class=FaultClass.DRIVER,
            weight=_WEIGHT,
            sentence=f"the NVIDIA driver of node {ref.node_id} does not answer: {event.text[:200]}",
            plane=Plane.STRUCTURE,
        )
        return [signal]
