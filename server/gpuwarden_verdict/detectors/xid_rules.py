"""Which XIDs mean more when they come again: counts and windows, as data.

Codes that only echo another fault (43, 45, 171, 172) are in no rule, and never may be: repeats of
45 made 672 fatal events on three sound nodes in three hours (NVSentinel#1710).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_kernel_log import xid_codes, xid_entry
from gpuwarden_verdict.detectors.buckets import ASKS_FOR_HARDWARE
from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S, Weight
from gpuwarden_verdict.detectors.nvlink_words import NVLINK4_XID, NVLINK5_XIDS
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity

BURST_S = 180.0
"""Lines this near belong to one occurrence: a fault is told many times over (Delta: the 95th
percentile of how long one goes on is 1 to 650 s; NVSentinel's burst is 180 s)."""


HINT_S = HOUR_S
"""How long a hint counts that a program may have caused: programs end."""


class Same(StrEnum):
    """What must be the same for an XID to have come again."""

    GPU = "gpu"
    CLUSTER = "cluster"  # GPC and TPC that the line names
    LINK = "link"  # NVLink that the line names


@dataclass(frozen=True, slots=True)
class RepeatRule:
    """When a code that comes again is evidence of its own.

    Attributes:
        name: Suffix of the evidence: "xid_repeat:CODE" for "", else "xid_repeat:CODE:NAME".
        codes: XIDs it is about.
        same: What must be the same.
        count: Occurrences from which it is told, the present one included; at least 2.
        window_s: Within this time, seconds; at most what is remembered (context.REPEAT_S).
        weight: How it weighs. Its action is the catalogue's investigatory one where it is NONE.
        says: What it means, in words.
        burst_s: Lines this near are one occurrence, seconds.
        least: Only lines at least this severe count, as the catalogue and the decode see them.
        alone: Only where no other GPU of the node tells the code within the window: what strikes
            several is a program's doing.
        application_possible: A program may cause it even so.
        fault_class: Where the fault lies; None: where the code lays it.
    """

    name: str
    codes: frozenset[int]
    same: Same
    count: int
    window_s: float
    weight: Weight
    says: str
    burst_s: float = BURST_S
    least: Severity = Severity.WARNING
    alone: bool = False
    application_possible: bool = False
    fault_class: FaultClass | None = None


def _codes(
    *, severity: Severity, application_possible: bool, buckets: frozenset[str]
) -> frozenset[int]:
    """Codes of the catalogue that are no echo, in some of NVIDIA's immediate buckets."""
    entries = [entry for code in xid_codes() if (entry := xid_entry(code)) is not None]
    return frozenset(
        entry.code
        for entry in entries
        if entry.severity.value == severity.value
        and entry.application_possible is application_possible
        and entry.action in buckets
        and not entry.echo
    )


FATAL_CODES = _codes(
    severity=Severity.CRITICAL, application_possible=False, buckets=ASKS_FOR_HARDWARE
)
CONTAINED_CODES = frozenset({94})
ENGINE_CODES = (
    _codes(severity=Severity.ERROR, application_possible=False, buckets=frozenset({"RESTART_APP"}))
    - CONTAINED_CODES
)
APPLICATION_CODES = _codes(
    severity=Severity.ERROR, application_possible=True, buckets=frozenset({"RESTART_APP"})
) - {13, 31}

_AGAIN = "again after what NVIDIA asks for should have mended it"

XID_RULES: tuple[RepeatRule, ...] = (
    RepeatRule(
        name="",
        codes=FATAL_CODES,
        same=Same.GPU,
        count=2,
        window_s=DAY_S,
        # Analyzing Xid errors, step 3: where the fault persists, the XID comes again, which asks
        # for the investigatory action: another reset is not enough.
        weight=Weight(0.93, Severity.CRITICAL, action=RecommendedAction.NONE),
        says=_AGAIN,
    ),
    RepeatRule(
        name="",
        codes=CONTAINED_CODES,
        same=Same.GPU,
        count=2,
        window_s=DAY_S,
        # one contained error costs one application; the row is replaced at the next reset, until
        # which its neighbours may fail too (GPU Memory Error Management, "Row remapping")
        weight=Weight(0.82, Severity.ERROR, action=RecommendedAction.RESET_GPU),
        says="again: its memory fails in more places, a reset makes the remaps active",
    ),
    RepeatRule(
        name="",
        codes=ENGINE_CODES,
        same=Same.GPU,
        count=2,
        window_s=DAY_S,
        weight=Weight(0.5, Severity.WARNING, action=RecommendedAction.NONE, max_rung=Rung.SUSPECT),
        says="again in the same engine",
    ),
    RepeatRule(
        name="",
        codes=frozenset(NVLINK5_XIDS),
        same=Same.GPU,
        count=2,
        window_s=DAY_S,
        least=Severity.ERROR,
        # "REPORT_ISSUE (if seen >1 per day)"; either end of a link may be at fault
        weight=Weight(
            0.7, Severity.ERROR, action=RecommendedAction.INVESTIGATE, max_rung=Rung.SUSPECT
        ),
        says="more than once a day: report it",
    ),
    RepeatRule(
        name="link",
        codes=frozenset({NVLINK4_XID}),
        same=Same.LINK,
        count=3,
        window_s=DAY_S,
        burst_s=5.0,  # a fault of a link goes on for about a second (Delta: 1.2 s)
        least=Severity.ERROR,
        # WORKFLOW_NVLINK_ERR: "if seen more than 2 times on the same link"
        weight=Weight(
            0.75, Severity.ERROR, action=RecommendedAction.CHECK_CABLE, max_rung=Rung.SUSPECT
        ),
        says="more than twice on the same link: check its connections",
    ),
    RepeatRule(
        name="cluster",
        codes=frozenset({13}),
        same=Same.CLUSTER,
        count=2,
        window_s=DAY_S,
        alone=True,
        application_possible=True,
        fault_class=FaultClass.UNKNOWN,
        # WORKFLOW_XID_13: the same TPC and GPC again is a possible hardware issue: run the
        # diagnostics; other places are the application's
        weight=Weight(
            0.45,
            Severity.WARNING,
            ttl_s=HINT_S,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        ),
        says="again in the same cluster of the chip: run NVIDIA's diagnostics",
    ),
    RepeatRule(
        name="same_gpu",
        codes=frozenset({31}),
        same=Same.GPU,
        count=3,
        window_s=DAY_S,
        alone=True,
        application_possible=True,
        fault_class=FaultClass.UNKNOWN,
        # WORKFLOW_XID_31: "multiple runs needed to establish pattern"; again on the same GPU is a
        # possible hardware issue, on different GPUs the application's
        weight=Weight(
            0.4,
            Severity.WARNING,
            ttl_s=HINT_S,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        ),
        says="again and again on this GPU alone: run NVIDIA's diagnostics",
    ),
    RepeatRule(
        name="",
        codes=APPLICATION_CODES,
        same=Same.GPU,
        count=3,
        window_s=HOUR_S,  # programs come and go: only what is near together means anything
        alone=True,
        application_possible=True,
        weight=Weight(
            0.35,
            Severity.WARNING,
            ttl_s=HINT_S,
            action=RecommendedAction.NONE,
            max_rung=Rung.SUSPECT,
        ),
        says="again and again on this GPU alone",
    ),
)
"""The first rule of a code and kind of sameness holds."""
