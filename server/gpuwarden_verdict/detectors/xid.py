"""XIDs but 154: from the catalogue and, for 144-150, the decoded words of the line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuwarden_kernel_log import KernelEvent, XidEntry, xid_entry
from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.buckets import ASKS_FOR_HARDWARE, recommended
from gpuwarden_verdict.detectors.making import (
    DAY_S,
    Weight,
    event_signal,
    parsed_line,
    times,
    where,
)
from gpuwarden_verdict.detectors.nvlink_words import AS_IT_IS, Wording, wording_of
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind

RECOVERY_XID = 154

SCORE_ALONE = 0.95
"""The catalogue says that this code decides by itself: 64, 79, 95, 140 and what 144-150 decode to
hardware of this GPU."""
SCORE_FATAL = 0.85
"""Fatal and the bucket is a reset or reboot, but a hung driver or the far end looks the same (46,
48, 62, 119, 120, 136, 143, 158): excludes after settling, unless something acquits it."""
SCORE_FATAL_OPEN_BUCKET = 0.6
"""Fatal by word, but NVIDIA leaves the action open (167, 169, 173): suspect at most alone."""
SCORE_APPLICATION_FATAL = 0.5
"""109: a reset is asked for, but a program can cause it."""
SCORE_APPLICATION = 0.2
APPLICATION_TTL_S = 600.0
"""An application's fault is over when its job is."""
SCORE_ECHO = 0.05

_ERROR_SCORES = {
    FaultClass.MEMORY: 0.5,  # 94: contained, the part goes on (bucket RESTART_APP)
    FaultClass.NVLINK: 0.6,  # 74, 144-149: either end may be at fault
    FaultClass.BUS: 0.6,
    FaultClass.POWER: 0.5,  # 54: auxiliary power is not connected
}
_ERROR_SCORE = 0.3
_WARNING_SCORES = {FaultClass.MEMORY: 0.3}  # 63, 92: wear, the driver coped
_WARNING_SCORE = 0.15
_UNCONTAINED = 95
"""Data of running work may be wrong already: going on costs more than stopping."""


@dataclass(frozen=True, slots=True)
class XidReading:
    """One XID as the server's catalogue and decode table see it."""

    code: int
    name: str
    severity: Severity
    bucket: str | None
    fault_class: FaultClass
    application_possible: bool
    echo: bool
    acts_alone: bool
    wording: Wording = AS_IT_IS


class XidDetector:
    """Signals of XIDs."""

    name = "xid"
    version = 3
    about = About(
        Plane.EVENTS,
        ("xid",),
        "an XID, weighed by NVIDIA's catalogue",
        "each line or NVML event; the codes are in kernel-log.md",
        Rung.EVICT,
        "a reboot of what is fatal, time, or a passed check",
    )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal an XID event; none for codes that are only informative."""
        if event.xid in (None, RECOVERY_XID):
            return []
        if event.kind not in (EventKind.KERNEL_LOG, EventKind.NVML_XID):
            return []
        xid = read_xid(event, node)
        if xid.severity is Severity.INFO and not xid.echo:
            return []
        signal = event_signal(
            event,
            ref,
            node,
            detector=f"xid:{xid.code}",
            version=self.version,
            fault_class=xid.fault_class,
            weight=weigh_xid(xid),
            sentence=_sentence(xid, event, ref),
            echo=xid.echo,
            application_possible=xid.application_possible,
        )
        return [signal]


def read_xid(event: Event, node: NodeContext) -> XidReading:
    """An XID event through the catalogue; `event.xid` must be set.

    A kernel line is decoded again from its text. NVML gives the code alone, so that 144-150 stay
    undecoded: no reset is concluded from them. A code outside the catalogue is a warning.
    """
    code = event.xid or 0
    entry = xid_entry(code)
    parsed = parsed_line(event, node)
    if parsed is not None and parsed.xid == code:
        return _worded(_from_line(code, parsed, entry), wording_of(event, node))
    if entry is None:
        return XidReading(
            code,
            "not in the catalogue",
            Severity.WARNING,
            None,
            FaultClass.UNKNOWN,
            application_possible=False,
            echo=False,
            acts_alone=False,
        )
    return XidReading(
        code,
        entry.name,
        _never_fatal_unknown(Severity(entry.severity.value), entry.action),
        entry.action,
        FaultClass(entry.fault_class.value),
        entry.application_possible,
        entry.echo,
        entry.acts_alone,
    )


def weigh_xid(xid: XidReading) -> Weight:
    """How an XID weighs by itself; what 48 asks for beside a 63 or 64 is `uncorrectable_remap`."""
    weight, words = _weight(xid), xid.wording
    return replace(
        weight,
        score=weight.score if words.score is None or xid.echo else words.score,
        action=words.action or weight.action,
        max_rung=weight.max_rung
        if words.max_rung is None
        else min(weight.max_rung, words.max_rung),
        acts_alone=weight.acts_alone and words.max_rung is None,
    )


def _weight(xid: XidReading) -> Weight:
    action = recommended(xid.bucket)
    if xid.echo:
        return Weight(SCORE_ECHO, Severity.INFO, ttl_s=APPLICATION_TTL_S, action=action)
    if xid.application_possible:
        fatal = xid.severity is Severity.CRITICAL
        score = SCORE_APPLICATION_FATAL if fatal else SCORE_APPLICATION
        return Weight(
            score,
            Severity.ERROR if fatal else Severity.WARNING,
            ttl_s=APPLICATION_TTL_S,
            action=action,
            max_rung=Rung.SUSPECT,
        )
    if xid.acts_alone or xid.severity is Severity.CRITICAL:
        return Weight(
            SCORE_ALONE if xid.acts_alone else SCORE_FATAL,
            Severity.CRITICAL,
            Persistence.BOOT,
            action=action,
            acts_alone=xid.acts_alone,
            max_rung=Rung.EVICT if xid.code == _UNCONTAINED else Rung.EXCLUDE,
        )
    if xid.severity is Severity.ERROR:
        return Weight(_error_score(xid), Severity.ERROR, ttl_s=DAY_S, action=action)
    score = _WARNING_SCORES.get(xid.fault_class, _WARNING_SCORE)
    return Weight(score, Severity.WARNING, ttl_s=DAY_S, action=action, max_rung=Rung.SUSPECT)


def _error_score(xid: XidReading) -> float:
    open_bucket = xid.bucket is None and xid.fault_class is not FaultClass.UNKNOWN
    if open_bucket:
        return SCORE_FATAL_OPEN_BUCKET
    return _ERROR_SCORES.get(xid.fault_class, _ERROR_SCORE)


def _from_line(code: int, parsed: KernelEvent, entry: XidEntry | None) -> XidReading:
    fault_class = FaultClass(parsed.fault_class.value) if parsed.fault_class else FaultClass.UNKNOWN
    return XidReading(
        code,
        entry.name if entry else "not in the catalogue",
        _never_fatal_unknown(Severity(parsed.severity.value), parsed.action),
        parsed.action,
        fault_class,
        parsed.application_possible,
        parsed.echo,
        parsed.acts_alone,
    )


def _worded(xid: XidReading, words: Wording) -> XidReading:
    return replace(
        xid,
        wording=words,
        severity=words.severity or xid.severity,
        fault_class=words.fault_class or xid.fault_class,
        echo=xid.echo or words.echo,
        acts_alone=xid.acts_alone and not words.echo and words.severity is None,
    )


def _never_fatal_unknown(severity: Severity, bucket: str | None) -> Severity:
    fatal = severity is Severity.CRITICAL
    return Severity.ERROR if fatal and bucket not in ASKS_FOR_HARDWARE else severity


def _sentence(xid: XidReading, event: Event, ref: EntityRef) -> str:
    told = f" in {event.process} (pid {event.pid})" if event.process and event.pid else ""
    words = f", {xid.wording.says}" if xid.wording.says else ""
    return f"XID {xid.code} ({xid.name}{words}) on {where(event, ref)}{told}{times(event)}"
