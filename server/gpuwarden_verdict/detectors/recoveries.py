"""What events say about recovery."""

from __future__ import annotations

from functools import cache

from gpuwarden_kernel_log import RecoveryAction, xid_codes, xid_entry
from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors import (
    driver_stuck,
    gpu_lost,
    plug_in_check,
    recovery_text,
    uncorrectable_remap,
)
from gpuwarden_verdict.detectors.xid import RECOVERY_XID
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.signals import Recovery, RecoveryKind
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_RESET_BUCKETS = frozenset({"RESET_GPU", "WORKFLOW_XID_48"})
_BUS_XID = "xid:79"


def detect_recovery(
    event: Event, ref: EntityRef, node: NodeContext, *, in_repair: bool
) -> list[Recovery]:
    """Recoveries that one event speaks for.

    Args:
        event: The event.
        ref: The entity it was joined to; a node's check or boot speaks for all that sits in it.
        node: What is known of its node.
        in_repair: Whether the entity, or one of the node's that it covers, is in repair: then a
            passed check speaks for the part itself.
    """
    match event.kind:
        case EventKind.NODE_BOOT:
            return [_boot(event, node)]
        case EventKind.CHECK_PASSED:
            check = _check(event, ref, in_repair=in_repair)
            return [] if check is None else [check]
        case EventKind.GPU_BACK:
            return [_reading(event, ref, gpu_lost.PROBE_DETECTOR, "the GPU answers again")]
        case EventKind.DRIVER_RESPONDS:
            return [_reading(event, ref, driver_stuck.DETECTOR, "the driver answers again")]
        case EventKind.KERNEL_LOG if event.xid == RECOVERY_XID:
            stated = recovery_text.stated_action(event)
            if stated is not RecoveryAction.NONE or not origin_proven(event):
                return []
            return [_reading(event, ref, recovery_text.DETECTOR, "the driver asks for nothing")]
        case _:
            return []


def _boot(event: Event, node: NodeContext) -> Recovery:
    return Recovery(
        entity=EntityRef(EntityKind.NODE, node.node_id, node.node_id),
        kind=RecoveryKind.NEW_BOOT,
        at=event.observed_at,
        reason="the node was booted anew",
        boot_id=node.boot_id,
    )


def _check(event: Event, ref: EntityRef, *, in_repair: bool) -> Recovery | None:
    """A check that names what it followed (the agent's own, passive one) clears that only.

    A plug-in's pass clears what the same plug-in said; a repair it ends where it may.
    """
    if plug_in_check.is_plug_in(event):
        return _plug_in(event, ref, ends_repair=in_repair and plug_in_check.proves_repair(event))
    after = event.attributes.get("after")
    names = [str(trouble) for trouble in after] if isinstance(after, list) else []
    cleared = frozenset(names).union(*(_cleared_by_clean_reading(name) for name in names))
    if isinstance(after, list) and not cleared and not in_repair:
        return None
    return Recovery(
        entity=ref,
        kind=RecoveryKind.CHECK_AFTER_REPAIR if in_repair else RecoveryKind.CHECK_PASSED,
        at=event.observed_at,
        reason=f"check passed: {event.text[:200]}" if event.text else "check passed",
        detectors=frozenset() if in_repair else cleared,
    )


def _plug_in(event: Event, ref: EntityRef, *, ends_repair: bool) -> Recovery:
    own = frozenset({plug_in_check.detector_of(event)})
    return Recovery(
        entity=ref,
        kind=RecoveryKind.CHECK_AFTER_REPAIR if ends_repair else RecoveryKind.CHECK_PASSED,
        at=event.observed_at,
        reason=f"plug-in check passed: {event.text[:200]}",
        detectors=frozenset() if ends_repair else own,
    )


def _reading(event: Event, ref: EntityRef, detector: str, reason: str) -> Recovery:
    return Recovery(
        entity=ref,
        kind=RecoveryKind.READING_CLEAR,
        at=event.observed_at,
        reason=reason,
        detectors=frozenset({detector}),
    )


def _cleared_by_clean_reading(trouble: str) -> frozenset[str]:
    """Detectors whose evidence ends with a trouble that the GPU itself no longer shows."""
    match trouble:
        case "gpu_lost":
            return frozenset({gpu_lost.PROBE_DETECTOR, gpu_lost.LOG_DETECTOR, _BUS_XID})
        case "recovery_action":
            return _reset_detectors()
        case "row_remap_pending":
            after_48 = {"xid:48", "xid:63", uncorrectable_remap.DETECTOR}
            return frozenset({"row_remap_pending", "ecc_uncorrected"} | after_48)
        case _:
            return frozenset()


@cache
def _reset_detectors() -> frozenset[str]:
    """Codes whose bucket is a reset: done, once the driver asks for nothing any more."""
    codes = {f"xid:{code}" for code in xid_codes() if _asks_for_reset(code)}
    by_name = {"recovery_action", recovery_text.DETECTOR, uncorrectable_remap.DETECTOR}
    return frozenset(by_name | codes)


def _asks_for_reset(code: int) -> bool:
    entry = xid_entry(code)
    return entry is not None and entry.action in _RESET_BUCKETS
