"""XID 154: the driver itself says what the GPU now needs."""

from __future__ import annotations

from gpuwarden_kernel_log import RecoveryAction, stated_recovery_action
from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.buckets import recommended
from gpuwarden_verdict.detectors.making import DAY_S, Weight, event_signal, parsed_line, where
from gpuwarden_verdict.detectors.xid import RECOVERY_XID, read_xid
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.incidents.evidence import is_cause
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind

DETECTOR = f"xid:{RECOVERY_XID}"

SCORE = 0.95
"""Since R565 the driver computes this from all it knows: the best single ground truth there is."""
_UNREADABLE = Weight(0.2, Severity.WARNING, ttl_s=DAY_S, max_rung=Rung.SUSPECT)
_DRAINS = frozenset({RecoveryAction.DRAIN_P2P, RecoveryAction.DRAIN_AND_RESET})


class RecoveryTextDetector:
    """Signals of XID 154 by the action that its text states."""

    name = "recovery_text"
    version = 1
    about = About(
        Plane.EVENTS,
        ("xid",),
        "XID 154: the driver states what the GPU needs",
        "any action but none",
        Rung.DRAIN,
        "the driver asks for nothing any more, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal where an action is asked for; NONE gives none (it is a recovery).

        The class is that of the first cause within CHAIN_S before; one that comes after re-labels
        the incident. NVML gives the code without the text: it asks for nothing by itself.
        """
        if event.xid != RECOVERY_XID or event.kind is not EventKind.KERNEL_LOG:
            return []
        stated = stated_action(event)
        if stated is RecoveryAction.NONE:
            return []
        parsed = parsed_line(event, node)
        written = parsed is None or parsed.acts_alone
        said = stated.value if stated else "an action that was cut off"
        signal = event_signal(
            event,
            ref,
            node,
            detector=DETECTOR,
            version=self.version,
            fault_class=first_cause(event, ref, node),
            weight=_weight(stated, alone=written),
            sentence=f"the driver asks for {said} (XID 154) on {where(event, ref)}",
        )
        return [signal]


def stated_action(event: Event) -> RecoveryAction | None:
    """What the text of a 154 asks for; None where it was cut short."""
    return stated_recovery_action(event.text)


def first_cause(event: Event, ref: EntityRef, node: NodeContext) -> FaultClass:
    """Class of the first cause on this entity within CHAIN_S before, UNKNOWN for none."""
    for past in node.lately(ref, event.observed_at):
        if past.xid in (None, RECOVERY_XID):
            continue
        xid = read_xid(past, node)
        if not xid.echo and is_cause(xid.fault_class):
            return xid.fault_class
    return FaultClass.UNKNOWN


def _weight(stated: RecoveryAction | None, *, alone: bool) -> Weight:
    if stated is None:
        return _UNREADABLE
    return Weight(
        SCORE,
        Severity.CRITICAL,
        Persistence.LEVEL,
        action=recommended(stated.value),
        acts_alone=alone,
        max_rung=Rung.DRAIN if stated in _DRAINS else Rung.EXCLUDE,
    )
