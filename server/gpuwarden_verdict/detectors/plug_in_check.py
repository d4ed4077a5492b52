"""A plug-in check of the agent's says warning or critical: it advises, and never acts."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import Weight, event_signal, where
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind

_CRITICAL = Weight(0.6, Severity.ERROR, Persistence.BOOT, max_rung=Rung.SUSPECT)
_WEIGHTS = MappingProxyType(
    {
        # Below the least confidence that makes an entity suspect: on record, no advice yet.
        "warning": Weight(0.2, Severity.WARNING, Persistence.BOOT, max_rung=Rung.SUSPECT),
        "critical": _CRITICAL,
    }
)


class PlugInCheckDetector:
    """Signals of plug-in checks, alerts and events from outside: at most suspect.

    Each check is evidence of its own, "check:NAME": its pass ends its own and no other.
    """

    name = "plug_in_check"
    version = 1
    about = About(
        Plane.EVENTS,
        ("check_failed",),
        "a plug-in check, an alert or an event from outside says warning or critical",
        "each; a warning is on record and no advice",
        Rung.SUSPECT,
        "a pass of the same check, a reboot, or any other passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal a CHECK_FAILED event that says it comes from a plug-in."""
        if event.kind is not EventKind.CHECK_FAILED or not is_plug_in(event):
            return []
        named, state = event.attributes.get("fault_class"), str(event.attributes.get("state"))
        if state == "info":  # on record, no evidence
            return []
        signal = event_signal(
            event,
            ref,
            node,
            detector=detector_of(event),
            version=self.version,
            fault_class=FaultClass(named) if named in tuple(FaultClass) else FaultClass.UNKNOWN,
            weight=_WEIGHTS.get(state, _CRITICAL),
            sentence=f"{_sender(event)} {_check(event)} says {state[:20]} of {where(event, ref)}: "
            f"{event.text[:200]}",
        )
        return [signal]


def is_plug_in(event: Event) -> bool:
    """Whether an event tells the result of a plug-in check."""
    return event.attributes.get("plug_in") is True


def proves_repair(event: Event) -> bool:
    """Whether a passed check may end a repair: a plug-in's only where its definition says so."""
    return not is_plug_in(event) or event.attributes.get("proves_repair") is True


def detector_of(event: Event) -> str:
    """Under which name the evidence of this event's check is kept."""
    return f"check:{_check(event)}"


def _sender(event: Event) -> str:
    told_by = str(event.attributes.get("told_by", ""))
    return {"alertmanager": "alert", "event": "event"}.get(told_by, "plug-in")


def _check(event: Event) -> str:
    return str(event.attributes.get("check", "unnamed"))[:40]
