"""The same XID on the same GPU again: what a single line cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuwarden_kernel_log import parse_nvlink4_words, parse_sm_place
from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.buckets import investigated
from gpuwarden_verdict.detectors.making import HOUR_S, event_signal, where
from gpuwarden_verdict.detectors.xid import XidReading, read_xid
from gpuwarden_verdict.detectors.xid_rules import XID_RULES, RepeatRule, Same
from gpuwarden_verdict.entities import (
    SEVERITY_RANK,
    EntityRef,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.incidents.storms import REPEATED
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.signals import Plane, Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_TOLD_BY = (EventKind.KERNEL_LOG, EventKind.NVML_XID)


class XidRepeatDetector:
    """Signals of XIDs that come again, by a table of counts and windows.

    Occurrences count from the last passed check on. A line of unproven origin neither counts nor
    speaks.
    """

    name = "xid_repeat"
    version = 1
    about = About(
        Plane.EVENTS,
        ("xid",),
        "the same XID on the same GPU, cluster or link again",
        "counts and windows of detectors/xid_rules.py: a fatal code or 94 twice within a day; 74 "
        "three times on one link; 13 twice in one cluster, or 31 three times, on this GPU alone",
        Rung.EXCLUDE,
        "a day, or a passed check",
    )

    def __init__(self, rules: Iterable[RepeatRule] = XID_RULES) -> None:
        """Make a detector that judges by some rules."""
        self._by_code: dict[int, list[RepeatRule]] = {}
        for rule in rules:
            for code in rule.codes:
                self._by_code.setdefault(code, []).append(rule)

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal a rule, with the first line of each further occurrence."""
        rules = self._by_code.get(event.xid or 0, [])
        if not rules or ref.kind is not EntityKind.GPU or event.kind not in _TOLD_BY:
            return []
        if not origin_proven(event):
            return []
        signals = (self._judge(rule, event, ref, node) for rule in rules)
        return [signal for signal in signals if signal is not None]

    def _judge(
        self, rule: RepeatRule, event: Event, ref: EntityRef, node: NodeContext
    ) -> Signal | None:
        place = _place(rule.same, event)
        if place is None:
            return None
        past = [one for one in _past(rule, event, ref, node) if _place(rule.same, one) == place]
        if len(past) + 1 < rule.count:
            return None
        xid = read_xid(event, node)
        times = [p.observed_at for p in past if _is_grave(rule, read_xid(p, node))]
        begun = _occurrences([*times, event.observed_at], rule.burst_s)
        first_of_its_own = event.observed_at in begun and event.observed_at not in times
        if len(begun) < rule.count or not first_of_its_own or not _is_grave(rule, xid):
            return None
        if rule.alone and _told_elsewhere(rule, event, ref, node):
            return None
        return self._signal(rule, xid, event, ref, node, begun)

    def _signal(
        self,
        rule: RepeatRule,
        xid: XidReading,
        event: Event,
        ref: EntityRef,
        node: NodeContext,
        begun: Sequence[float],
    ) -> Signal:
        action = rule.weight.action
        if action is RecommendedAction.NONE:
            action = investigated(xid.code)
        suffix = f":{rule.name}" if rule.name else ""
        hours = (begun[-1] - begun[0]) / HOUR_S
        return event_signal(
            event,
            ref,
            node,
            detector=f"{REPEATED}{xid.code}{suffix}",
            version=self.version,
            fault_class=rule.fault_class or xid.fault_class,
            weight=replace(rule.weight, action=action),
            sentence=f"XID {xid.code} ({xid.name}) on {where(event, ref)}, {rule.says}: "
            f"{len(begun)} times within {max(hours, 0.1):.1f} h{_in_words(rule.same, event)}",
            application_possible=rule.application_possible,
        )


def _past(rule: RepeatRule, event: Event, ref: EntityRef, node: NodeContext) -> list[Event]:
    """Earlier lines of the same code on the same GPU within the window."""
    return [
        past.event
        for past in node.recent
        if past.ref == ref
        and past.event.xid == event.xid
        and past.event.id != event.id
        and 0.0 <= event.observed_at - past.event.observed_at <= rule.window_s
        and origin_proven(past.event)
    ]


def _told_elsewhere(rule: RepeatRule, event: Event, ref: EntityRef, node: NodeContext) -> bool:
    return any(
        past.ref != ref
        and past.ref.kind is EntityKind.GPU
        and past.event.xid == event.xid
        and abs(event.observed_at - past.event.observed_at) <= rule.window_s
        for past in node.recent
    )


def _is_grave(rule: RepeatRule, xid: XidReading) -> bool:
    grave = SEVERITY_RANK[xid.severity] >= SEVERITY_RANK[rule.least]
    return grave and not xid.echo and xid.severity is not Severity.INFO


def _occurrences(times: Sequence[float], burst_s: float) -> list[float]:
    """When occurrences began, ascending: a burst that goes on for long is several."""
    begun: list[float] = []
    for at in sorted(times):
        if not begun or at - begun[-1] > burst_s:
            begun.append(at)
    return begun


def _place(same: Same, event: Event) -> tuple[int, ...] | None:
    """What must be the same, None where the line does not say."""
    match same:
        case Same.GPU:
            return ()
        case Same.CLUSTER:
            found = parse_sm_place(event.text)
            return (found.gpc, found.tpc) if found else None
        case Same.LINK:
            words = parse_nvlink4_words(event.text)
            return (words.link,) if words else None


def _in_words(same: Same, event: Event) -> str:
    match same, _place(same, event):
        case Same.CLUSTER, (gpc, tpc):
            return f" in GPC {gpc}, TPC {tpc}"
        case Same.LINK, (link,):
            return f" on link {link}"
        case _:
            return ""
