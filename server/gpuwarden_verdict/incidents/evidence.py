"""Evidence of an incident: how signals join it, when it counts, how sure it makes us."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gpuwarden_verdict.context import PAIRING_S
from gpuwarden_verdict.entities import SEVERITY_RANK, FaultClass, Rung, Severity
from gpuwarden_verdict.incidents.domain import EvidenceItem
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, RecoveryKind, Signal

_EVENT_IDS_KEPT = 20
_SCORE_STEP = 0.1  # smaller changes of a level's score are not worth a stored fact
_REFRESH_S = 3600.0  # numbers of a standing level are stored anew this often
_PLACES_KEPT = 64  # more devices than a node has GPUs, NICs and disks
_JOBS_KEPT = 8
_MOST_FLAPS = 6  # the dwell doubles with each flap, up to 64 times


class Standing(StrEnum):
    """Whether a piece of evidence still counts."""

    LIVE = "live"
    CLEARED = "cleared"  # evidence of recovery holds, the dwell is running
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Joined:
    """An item after a signal joined it; `news` is what is worth storing, "" for nothing."""

    item: EvidenceItem
    news: str


def new_item(signal: Signal, now: float) -> EvidenceItem:
    """A signal as evidence."""
    return EvidenceItem(
        detector=signal.detector,
        sentence=signal.sentence,
        score=signal.score,
        severity=signal.severity,
        persistence=signal.persistence,
        acts_alone=signal.acts_alone,
        first_at=signal.observed_at,
        last_at=signal.observed_at,
        expires_at=signal.expires_at,
        count=signal.count,
        numbers=signal.numbers,
        event_ids=signal.event_ids[-_EVENT_IDS_KEPT:],
        plane=signal.plane,
        action=signal.action,
        fault_class=signal.fault_class,
        max_rung=signal.max_rung,
        echo=signal.echo,
        application_possible=signal.application_possible,
        boot_id=signal.boot_id,
        received_at=now,
        sources=(signal.source,) if signal.source else (),
        thresholds=signal.thresholds,
        places=(signal.place,) if signal.place else (),
        job=signal.job,
        model=signal.model,
    )


def join_signal(item: EvidenceItem, signal: Signal, now: float) -> Joined:
    """A further signal of the same detector.

    A replayed event changes nothing. The same code from another source within PAIRING_S is the same
    occurrence. A standing level is not an occurrence each time it is read.
    """
    if signal.event_ids and set(signal.event_ids) <= set(item.event_ids):
        return Joined(item, "")
    told_before = signal.observed_at <= item.last_at
    if told_before and not signal.event_ids and signal.persistence is not Persistence.LEVEL:
        return Joined(item, "")
    fresh = _occurrences(item, signal)
    back = item.cleared_at is not None
    joined = _merged(item, signal, fresh)
    if back:
        joined = _come_back(joined, signal, now)
    return Joined(joined, _news(item, joined, signal, fresh, back))


def standing_of(item: EvidenceItem, now: float, dwell_s: float) -> Standing:
    """Whether it still counts; each flap doubles the dwell."""
    if item.cleared_at is not None:
        needed = dwell_s * 2 ** min(item.flaps, _MOST_FLAPS)
        return Standing.OVER if now - item.cleared_at >= needed else Standing.CLEARED
    if item.persistence is Persistence.EVENT and now >= item.expires_at:
        return Standing.OVER
    return Standing.LIVE


def cleared_by(item: EvidenceItem, recovery: Recovery, now: float) -> EvidenceItem:
    """The item after a recovery; the same object where it does not touch it."""
    if item.cleared_at is not None or not _speaks_to(item, recovery):
        return item
    return replace(item, cleared_at=now)


def live_items(evidence: Iterable[EvidenceItem], now: float) -> list[EvidenceItem]:
    """Evidence that counts now; echoes never do by themselves."""
    return [
        item for item in evidence if not item.echo and standing_of(item, now, 0.0) is Standing.LIVE
    ]


def confidence_of(items: Sequence[EvidenceItem], rung: Rung = Rung.SUSPECT) -> float:
    """How sure live evidence makes us that `rung` is right, 0..1.

    Kinds of evidence are taken as independent, pieces of one kind are not: 1 - product over planes
    of (1 - highest score). Evidence whose `max_rung` is below `rung` only adds to evidence of
    another plane that may support it.
    """
    able = {item.plane for item in items if item.max_rung >= rung}
    if not able:
        return 0.0
    best: dict[Plane, float] = {}
    for item in items:
        supports = item.max_rung >= rung or item.plane not in able
        if supports:
            best[item.plane] = max(best.get(item.plane, 0.0), item.score)
    return 1.0 - math.prod(1.0 - score for score in best.values())


def weight_of(item: EvidenceItem) -> tuple[bool, int, float]:
    """Order of causes: what decides alone, then severity, then score."""
    return item.acts_alone, SEVERITY_RANK[item.severity], item.score


def first_sign(decisive: EvidenceItem, evidence: Iterable[EvidenceItem]) -> EvidenceItem | None:
    """What was seen first of the same fault, None where that is the decisive evidence itself."""
    told = [item for item in evidence if not item.echo and item.first_at < decisive.first_at]
    return min(told, key=lambda item: item.first_at, default=None)


def statement_of(decisive: EvidenceItem, evidence: Iterable[EvidenceItem]) -> str:
    """What decided, in words, then the first sign before it.

    XID 63 may open an incident that a failed remapping decides: whoever reads "63" alone, which
    NVIDIA says to ignore, distrusts a right decision.
    """
    sign = first_sign(decisive, evidence)
    return f"{decisive.sentence}; first sign: {sign.sentence}" if sign else decisive.sentence


def highest_severity(items: Sequence[EvidenceItem], otherwise: Severity) -> Severity:
    """The gravest severity among items, `otherwise` where there is none."""
    return max((i.severity for i in items), key=SEVERITY_RANK.__getitem__, default=otherwise)


def is_cause(fault_class: FaultClass) -> bool:
    """Whether a class names a part at fault, so that it can label a chain."""
    return fault_class not in (FaultClass.UNKNOWN, FaultClass.APPLICATION, FaultClass.OPERATOR)


def _occurrences(item: EvidenceItem, signal: Signal) -> int:
    if signal.persistence is not Persistence.EVENT and not signal.event_ids:
        return 0
    other_source = bool(signal.source) and signal.source not in item.sources
    if other_source and abs(signal.observed_at - item.last_at) <= PAIRING_S:
        return 0
    return signal.count


def _merged(item: EvidenceItem, signal: Signal, fresh: int) -> EvidenceItem:
    told = (signal.source,) if signal.source else ()
    same_occurrence = fresh == 0 and signal.source not in item.sources
    renewed = signal.observed_at >= item.last_at
    return replace(
        item,
        sentence=_told_by(item, signal, fresh=fresh > 0),
        score=signal.score if not signal.event_ids else max(item.score, signal.score),
        severity=signal.severity if not signal.event_ids else _graver(item, signal),
        persistence=signal.persistence,
        acts_alone=signal.acts_alone or (item.acts_alone and bool(signal.event_ids)),
        first_at=min(item.first_at, signal.observed_at),
        last_at=max(item.last_at, signal.observed_at),
        expires_at=max(item.expires_at, signal.expires_at),
        count=item.count + fresh,
        numbers=signal.numbers if renewed else item.numbers,
        thresholds=signal.thresholds if renewed else item.thresholds,
        event_ids=(*item.event_ids, *signal.event_ids)[-_EVENT_IDS_KEPT:],
        action=signal.action if renewed else item.action,
        fault_class=signal.fault_class,
        max_rung=max(item.max_rung, signal.max_rung) if signal.event_ids else signal.max_rung,
        boot_id=signal.boot_id or item.boot_id,
        sources=(*item.sources, *told) if same_occurrence else (told or item.sources),
        places=_places(item, signal),
        model=signal.model,
        **_jobs(item, signal, renewed=renewed),
    )


def _places(item: EvidenceItem, signal: Signal) -> tuple[str, ...]:
    known = not signal.place or signal.place in item.places
    return item.places if known else (*item.places, signal.place)[:_PLACES_KEPT]


def _jobs(item: EvidenceItem, signal: Signal, *, renewed: bool) -> Mapping[str, Any]:
    """A GPU that had its part in one job's storm has had it when its next job meets another."""
    if not (renewed and signal.job) or signal.job == item.job:
        return {}
    former = (*item.former_jobs, item.job)[-_JOBS_KEPT:] if item.job else item.former_jobs
    return {"job": signal.job, "former_jobs": former}


def _come_back(joined: EvidenceItem, signal: Signal, now: float) -> EvidenceItem:
    """What is back weighs what it weighs now: the strength of what had cleared is gone."""
    return replace(
        joined,
        cleared_at=None,
        flaps=joined.flaps + 1,
        received_at=now,
        sentence=signal.sentence,
        score=signal.score,
        severity=signal.severity,
        acts_alone=signal.acts_alone,
        max_rung=signal.max_rung,
    )


def _told_by(item: EvidenceItem, signal: Signal, *, fresh: bool) -> str:
    """The sentence: of the latest, but never of one that weighs less than what stands.

    A probe that fails once after two in a row had decided does not speak for them.
    """
    new = (signal.max_rung, *weight_of(new_item(signal, 0.0)))
    old = (item.max_rung, *weight_of(item))
    if not signal.event_ids or new > old:
        return signal.sentence
    newer = fresh and signal.observed_at >= item.last_at and new == old
    return signal.sentence if newer else item.sentence


def _graver(item: EvidenceItem, signal: Signal) -> Severity:
    return max(item.severity, signal.severity, key=SEVERITY_RANK.__getitem__)


def _news(before: EvidenceItem, after: EvidenceItem, signal: Signal, fresh: int, back: bool) -> str:
    if back:
        return f"{signal.detector} came back ({after.flaps} times): {signal.sentence}"
    if fresh or signal.event_ids:
        return f"{signal.detector} again ({after.count} in all)"
    changed = (
        before.severity is not after.severity
        or before.acts_alone is not after.acts_alone
        or before.max_rung is not after.max_rung
        or before.model != after.model
        or abs(before.score - after.score) >= _SCORE_STEP
    )
    refresh = signal.observed_at - before.last_at >= _REFRESH_S
    return f"{signal.detector} now: {signal.sentence}" if changed or refresh else ""


def _speaks_to(item: EvidenceItem, recovery: Recovery) -> bool:
    if recovery.detectors and item.detector not in recovery.detectors:
        return False
    match recovery.kind:
        case RecoveryKind.READING_CLEAR:
            return item.persistence is Persistence.LEVEL and bool(recovery.detectors)
        case RecoveryKind.NEW_BOOT:
            return item.persistence is Persistence.BOOT and item.boot_id != recovery.boot_id
        case RecoveryKind.CHECK_PASSED:
            return item.persistence is not Persistence.PART and recovery.at >= item.last_at
        case RecoveryKind.CHECK_AFTER_REPAIR:
            return recovery.at >= item.last_at
