"""What the words of an NVLink line (XID 74, 144-150) say beyond its bucket: whose fault it may be.

Sources: Xid-Catalog.xlsx, guidance classes WORKFLOW_NVLINK_ERR, CHECK_NVLINK_FAILURE_FLOW,
SYMPATHETIC_REPORT_SOLO, INVESTIGATE_PEER_DEVICE, INVESTIGATE_SW_USER, INVESTIGATE_LINK_SI; sheet
"Xid 144-150 Decode", investigatory bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from gpuwarden_kernel_log import (
    NvLinkFault,
    nvlink4_fault,
    nvlink5_decode,
    parse_nvlink4_words,
    parse_nvlink5_words,
    xid_entry,
)
from gpuwarden_verdict.context import CHAIN_S, NodeContext
from gpuwarden_verdict.detectors.making import driver_version
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_wire.events import Event

NVLINK4_XID = 74
NVLINK5_XIDS = range(144, 151)
_LINK_DOWN_XID = 149
_LINK_DOWN = frozenset({"NETIR_LINK_EVT", "NETIR_LINK_DOWN"})  # before R575, and since
_RECOVERY_XID = 154


@dataclass(frozen=True, slots=True)
class Wording:
    """What words add to an XID; None and False leave it as it is.

    Attributes:
        says: In words, "" for nothing.
        severity: Instead of the line's.
        score: Instead of the weight's, 0..1.
        fault_class: Instead of the line's.
        action: Instead of the bucket's.
        max_rung: At most this rung.
        echo: It follows from something else that is told beside it.
    """

    says: str = ""
    severity: Severity | None = None
    score: float | None = None
    fault_class: FaultClass | None = None
    action: RecommendedAction | None = None
    max_rung: Rung | None = None
    echo: bool = False


AS_IT_IS = Wording()
_INJECTED = Wording(
    "injected for a test",
    severity=Severity.WARNING,
    score=0.1,
    fault_class=FaultClass.OPERATOR,
    action=RecommendedAction.NONE,
    max_rung=Rung.SUSPECT,
)
_CABLE = Wording(
    "cable, connector, transceiver or cooling of the link",
    score=0.35,
    action=RecommendedAction.CHECK_CABLE,
    max_rung=Rung.SUSPECT,
)
_BY_INVESTIGATION = MappingProxyType(
    {
        "INVESTIGATE_PEER_DEVICE": Wording(
            "the device at the far end took the link down: look there",
            score=0.4,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        ),
        "INVESTIGATE_SW_USER": Wording(
            "software or a person took the link down",
            score=0.4,
            fault_class=FaultClass.OPERATOR,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        ),
        "INVESTIGATE_SW_USER_LINK_SI": Wording(
            "software or a person took the link down, or its signal is marginal",
            score=0.4,
            action=RecommendedAction.CHECK_CABLE,
            max_rung=Rung.SUSPECT,
        ),
        "INVESTIGATE_HOST": Wording(
            "follows from something on the host: look at its other logs",
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        ),
    }
)
"""By investigatory bucket of the decoded row; the driver states by XID 154 what this end needs."""

_BY_FAULT = MappingProxyType(
    {
        NvLinkFault.IGNORED: Wording(
            "its registers can be ignored",
            severity=Severity.WARNING,
            score=0.1,
            action=RecommendedAction.NONE,
            max_rung=Rung.SUSPECT,
        ),
        NvLinkFault.ECC_THRESHOLD: Wording(
            "corrected errors of the link beyond a threshold",
            severity=Severity.WARNING,
            score=0.2,
            action=RecommendedAction.NONE,
            max_rung=Rung.SUSPECT,
        ),
        NvLinkFault.SYMPATHETIC: Wording(
            "secondary by its registers, and nothing else is told: report it",
            score=0.4,
            max_rung=Rung.SUSPECT,
        ),
        NvLinkFault.SYMPATHETIC_FABRIC: Wording(
            "secondary by its registers; the fabric needs a reset",
            score=0.4,
            action=RecommendedAction.REBOOT_NODE,
            max_rung=Rung.SUSPECT,
        ),
        NvLinkFault.REPORT: Wording("registers that are to be reported", score=0.4),
        NvLinkFault.SIGNAL: Wording(
            "the link's signal is marginal: check its connections",
            action=RecommendedAction.CHECK_CABLE,
        ),
        NvLinkFault.MECHANICAL: Wording(
            "possibly hardware: check the link's connections, re-seat",
            action=RecommendedAction.CHECK_CABLE,
        ),
        NvLinkFault.ECC_PARITY: Wording(
            "likely this GPU's hardware (ECC or parity)", action=RecommendedAction.RESET_GPU
        ),
    }
)
_SECONDARY = frozenset({NvLinkFault.SYMPATHETIC, NvLinkFault.SYMPATHETIC_FABRIC})


def wording_of(event: Event, node: NodeContext) -> Wording:
    """What the words of an XID's line add; AS_IT_IS for other codes and for lines without words."""
    if not event.text:
        return AS_IT_IS
    if event.xid == NVLINK4_XID:
        return _of_registers(event, node)
    if event.xid in NVLINK5_XIDS:
        return _of_row(event, node)
    return AS_IT_IS


def _of_registers(event: Event, node: NodeContext) -> Wording:
    words = parse_nvlink4_words(event.text)
    fault = nvlink4_fault(words) if words else None
    if words is None or fault is None:
        return AS_IT_IS
    if fault in _SECONDARY and _told_beside(event, node):
        return Wording("secondary by its registers: it follows the other errors", echo=True)
    return _BY_FAULT[fault]


def _of_row(event: Event, node: NodeContext) -> Wording:
    words = parse_nvlink5_words(event.text)
    if words is None:
        return AS_IT_IS
    if words.injected:
        return _INJECTED
    version = driver_version(node)
    code = event.xid or 0
    row = nvlink5_decode(code, words.unit, words.intr_info, words.error_bits, version)
    if row is None:
        return AS_IT_IS
    match row.investigation:
        case "CHECK_NVLINK_FAILURE_FLOW" if _link_fell(event, node):
            return Wording(
                "an NVLink of the node fell within 30 s: it follows from that", echo=True
            )
        case "CHECK_NVLINK_FAILURE_FLOW":
            return Wording("no NVLink of the node fell beside it: report it")
        case "SYMPATHETIC_REPORT_SOLO" if _told_beside(event, node):
            return Wording("usual beside other errors: mend those first", max_rung=Rung.SUSPECT)
        case "INVESTIGATE_LINK_SI" | "INVESTIGATE_LINK_SI_AND_CABLES" if row.action == "IGNORE":
            return _CABLE
        case "INVESTIGATE_LINK_SI" | "INVESTIGATE_LINK_SI_AND_CABLES":
            return Wording(_CABLE.says)
        case investigation:
            return _BY_INVESTIGATION.get(investigation, AS_IT_IS)


def _link_fell(event: Event, node: NodeContext) -> bool:
    """Whether any NVLink of the node is told to have fallen within CHAIN_S before or after."""
    for past in _beside(event, node):
        words = parse_nvlink5_words(past.text) if past.xid == _LINK_DOWN_XID else None
        if past.xid == NVLINK4_XID or (words is not None and _LINK_DOWN & {*words.unit.split("/")}):
            return True
    return False


def _told_beside(event: Event, node: NodeContext) -> bool:
    """Whether another fault of the node is told within CHAIN_S, that is no echo itself."""
    for past in _beside(event, node):
        if past.sxid is not None:
            return True
        entry = xid_entry(past.xid) if past.xid not in (None, event.xid, _RECOVERY_XID) else None
        if entry is not None and not entry.echo and not entry.application_possible:
            return True
    return False


def _beside(event: Event, node: NodeContext) -> list[Event]:
    return [
        past.event
        for past in node.recent
        if abs(past.event.observed_at - event.observed_at) <= CHAIN_S and origin_proven(past.event)
    ]
