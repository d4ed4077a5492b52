"""An active check of the user's failed."""

from __future__ import annotations

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors import plug_in_check
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import Weight, event_signal, where
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind

DETECTOR = "check_failed"
_WEIGHT = Weight(0.85, Severity.ERROR, Persistence.BOOT)
"""A check that the operator chose to run is strong evidence, but settles like any other."""


class CheckFailedDetector:
    """Signals of failed checks; a passed one ends them."""

    name = DETECTOR
    version = 1
    about = About(
        Plane.EVENTS,
        ("check_failed",),
        "an active check failed",
        "each failure",
        Rung.EXCLUDE,
        "a reboot, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal a CHECK_FAILED event; attributes may name the check and a fault_class."""
        if event.kind is not EventKind.CHECK_FAILED or plug_in_check.is_plug_in(event):
            return []
        named = event.attributes.get("fault_class")
        check = event.attributes.get("check", "an active check")
        signal = event_signal(
            event,
            ref,
            node,
            detector=DETECTOR,
            version=self.version,
            fault_class=FaultClass(named) if named in tuple(FaultClass) else FaultClass.UNKNOWN,
            weight=_WEIGHT,
            sentence=f"{check} failed on {where(event, ref)}: {event.text[:200]}",
        )
        return [signal]
