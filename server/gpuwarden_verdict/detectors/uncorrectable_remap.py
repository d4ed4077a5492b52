"""An uncorrectable memory error with the remapping of its row: NVIDIA's XID 48 workflow."""

from __future__ import annotations

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import Weight, event_signal, where
from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind

DETECTOR = "xid:48+remap"

_UNCORRECTABLE = frozenset({48})
_REMAP = frozenset({63, 64})
_WEIGHT = Weight(
    # WORKFLOW_XID_48: 48 alone asks for a reset, with 63 or 64 for "drain and reset". Two reports
    # of the driver agree on the fault and its place, which is what the drain rung asks for.
    0.92,
    Severity.CRITICAL,
    Persistence.BOOT,
    action=RecommendedAction.RESET_GPU,
    max_rung=Rung.DRAIN,
)


class UncorrectableRemapDetector:
    """A signal when the second of both is told, whichever came first."""

    name = "uncorrectable_remap"
    version = 1
    about = About(
        Plane.EVENTS,
        ("xid",),
        "an uncorrectable memory error and the remapping of its row",
        "XID 48 and 63 or 64 on one GPU within 30 s",
        Rung.DRAIN,
        "a reboot, a reset that a check saw, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal where XID 48 and XID 63 or 64 lie within CHAIN_S on one GPU."""
        beside = _partners(event.xid)
        if ref.kind is not EntityKind.GPU or not beside or not origin_proven(event):
            return []
        partner = next(
            (
                past
                for past in node.lately(ref, event.observed_at)
                if past.xid in beside and origin_proven(past)
            ),
            None,
        )
        if partner is None:
            return []
        remap = event.xid if event.xid in _REMAP else partner.xid
        signal = event_signal(
            event,
            ref,
            node,
            detector=DETECTOR,
            version=self.version,
            fault_class=FaultClass.MEMORY,
            weight=_WEIGHT,
            sentence=f"XID 48 (uncorrectable ECC error) with XID {remap} (row remapping) beside it "
            f"on {where(event, ref)}: drain, then reset",
        )
        return [signal]


def _partners(code: int | None) -> frozenset[int]:
    if code in _UNCORRECTABLE:
        return _REMAP
    return _UNCORRECTABLE if code in _REMAP else frozenset()
