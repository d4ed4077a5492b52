"""What an incident turned out to be, from what is known of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import EntityState
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase
from gpuwarden_verdict.job_ends import JOB_STATES, JobOutcome
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR

REPAIR_WITHIN_S = 7 * 86_400.0
"""A repair that begins so long after the end of an incident still speaks of it."""
JOB_MARGIN_S = 600.0
"""A job that fails so near to an incident speaks of it."""
_CHECKS = ("check_failed", "check:")
"""Detectors that tell of failed checks begin so."""


class Truth(StrEnum):
    """What an incident turned out to be."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    OPERATOR = "operator"  # a person's doing: maintenance, an upgrade, a test
    FALSE_ALARM = "false_alarm"
    UNKNOWN = "unknown"
    UNCERTAIN = "uncertain"  # what we did ourselves hid, or merely confirmed, what it was


class Verdict(StrEnum):
    """What a person may say of an incident."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    OPERATOR = "operator"
    FALSE_ALARM = "false_alarm"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Where a label comes from, strongest first."""

    VERDICT = "verdict"
    REPAIR = "repair"
    CHECK = "check"
    EVIDENCE = "evidence"  # a fault that needs no second opinion
    JOB_END = "job_end"
    NONE = "none"


_NEEDED = {
    Truth.HARDWARE: True,
    Truth.APPLICATION: False,
    Truth.OPERATOR: False,
    Truth.FALSE_ALARM: False,
}


def hardware_by(verdict: Verdict) -> bool | None:
    """Whether a verdict says that the hardware was at fault; None where it does not know."""
    return _NEEDED.get(Truth(verdict.value))


@dataclass(frozen=True, slots=True)
class GivenVerdict:
    """A person's verdict as it stands.

    Attributes:
        verdict: It.
        note: Why, "" for no word.
        author: Name of the key.
        at: Epoch seconds.
    """

    verdict: Verdict
    note: str
    author: str
    at: float


@dataclass(frozen=True, slots=True)
class Step:
    """The entity changed its state.

    Attributes:
        before: State before.
        after: State after.
        at: Epoch seconds.
    """

    before: EntityState
    after: EntityState
    at: float


@dataclass(frozen=True, slots=True)
class End:
    """A job ended on the entity's node.

    Attributes:
        state: In the scheduler's words.
        since: Epoch seconds from which it is known to have run there, None unknown.
        at: Epoch seconds of its end.
    """

    state: str
    since: float | None
    at: float


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of an incident.

    Attributes:
        incident: It.
        given: A person's verdict, None for none.
        steps: Changes of the entity's state since it opened, in order.
        passed_at: When active checks of the very entity passed in its time, epoch seconds.
        restarted_at: When its node was booted anew, or it was reset, in its time; epoch seconds.
        ends: Ends of jobs that were there in its time.
        excluded_at: When the first exclusion that was in force in its time came into force, epoch
            seconds; None for none.
    """

    incident: Incident
    given: GivenVerdict | None = None
    steps: Sequence[Step] = ()
    passed_at: Sequence[float] = ()
    restarted_at: Sequence[float] = ()
    ends: Sequence[End] = ()
    excluded_at: float | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """What an incident turned out to be.

    Attributes:
        truth: It.
        source: Where that comes from.
        why: In words.
        author: Who said it, "gpuwarden" where it was derived.
        at: Epoch seconds from which it is known.
    """

    truth: Truth
    source: Source
    why: str
    author: str
    at: float

    @property
    def needed(self) -> bool | None:
        """Whether action was needed; None where nobody can tell, so that nothing is learnt."""
        return _NEEDED.get(self.truth)


def label_of(case: Case) -> Label:
    """The label of an incident: the strongest word about it, and only that.

    A person's verdict goes before all else. Where nothing settles it and an exclusion of ours was
    in force, what would have come is hidden: UNCERTAIN. So is what was repaired on the score's word
    alone, which must not confirm itself.
    """
    if case.given is not None:
        given = case.given
        why = given.note or f"{given.author} says so"
        return Label(Truth(given.verdict.value), Source.VERDICT, why, given.author, given.at)
    for derive in _DERIVATIONS:
        found = derive(case)
        if found is not None:
            return found
    at = case.incident.updated_at
    if case.excluded_at is not None:
        why = "it was excluded: what it would have done is hidden"
        return _label(Truth.UNCERTAIN, Source.NONE, why, at)
    live = case.incident.phase is not IncidentPhase.RESOLVED
    why = "it is still open" if live else "nothing settles it; a person's verdict would"
    return _label(Truth.UNKNOWN, Source.NONE, why, at)


def _by_parent(case: Case) -> Label | None:
    if case.incident.parent_id is None:
        return None
    why = f"part of {case.incident.parent_id}: the place is the cause"
    return _label(Truth.UNKNOWN, Source.EVIDENCE, why, case.incident.updated_at)


def _by_repair(case: Case) -> Label | None:
    last = case.incident.resolved_at
    begun = [
        step
        for step in case.steps
        if step.after is EntityState.IN_REPAIR
        and (last is None or step.at <= last + REPAIR_WITHIN_S)
    ]
    if not begun:
        return None
    ended = (s for s in case.steps if s.before is EntityState.IN_REPAIR and s.at >= begun[0].at)
    end = next(ended, None)
    if end is None:
        return _label(Truth.UNKNOWN, Source.REPAIR, "it is in repair", begun[0].at)
    if end.after is EntityState.PROBATION and not _stands_beside_score(case.incident):
        why = "it was repaired on the score's word alone: a sound part passes its check too"
        return _label(Truth.UNCERTAIN, Source.REPAIR, why, end.at)
    if end.after is EntityState.PROBATION:
        why = "it was repaired, and a check passed afterwards"
        return _label(Truth.HARDWARE, Source.REPAIR, why, end.at)
    return None  # a person revoked what the repair was for


def _by_failed_check(case: Case) -> Label | None:
    failed = _first(case.incident, lambda item: item.detector.startswith(_CHECKS))
    if failed is None:
        return None
    return _label(Truth.HARDWARE, Source.CHECK, failed.sentence, failed.first_at)


def _by_evidence(case: Case) -> Label | None:
    sure = _first(
        case.incident, lambda i: i.acts_alone and not i.echo and not i.application_possible
    )
    if sure is None:
        return None
    return _label(Truth.HARDWARE, Source.EVIDENCE, sure.sentence, sure.first_at)


def _by_passed_check(case: Case) -> Label | None:
    """A boot or a reset cures much that was real: a check that passes after one tells nothing."""
    restarted = min(case.restarted_at, default=math.inf)
    passed = min(case.passed_at, default=math.inf)
    if passed >= restarted:
        return None
    why = "a check of it passed without any repair, boot or reset"
    return _label(Truth.FALSE_ALARM, Source.CHECK, why, passed)


def _by_job_end(case: Case) -> Label | None:
    """A job that began before and ended well after it lived through the whole incident."""
    opened, resolved = case.incident.opened_at, case.incident.resolved_at
    bad = [end for end in case.ends if _outcome(end) is JobOutcome.BAD]
    near = [end for end in bad if end.at >= opened - JOB_MARGIN_S]
    if near:
        return None  # it may have been the program
    for end in case.ends:
        through = resolved is not None and end.at >= resolved
        began = end.since is not None and end.since <= opened
        if _outcome(end) is JobOutcome.GOOD and through and began:
            why = "a job ran through it and ended well"
            return _label(Truth.FALSE_ALARM, Source.JOB_END, why, end.at)
    return None


_DERIVATIONS: tuple[Callable[[Case], Label | None], ...] = (
    _by_parent,
    _by_repair,
    _by_failed_check,
    _by_evidence,
    _by_passed_check,
    _by_job_end,
)


def _stands_beside_score(incident: Incident) -> bool:
    """Whether anything but the score, and what follows from faults, speaks for it."""
    return any(item.detector != LEARNED_DETECTOR and not item.echo for item in incident.evidence)


def _outcome(end: End) -> JobOutcome:
    return JOB_STATES.get(end.state.upper(), JobOutcome.NEUTRAL)


def _first(incident: Incident, wanted: Callable[[EvidenceItem], bool]) -> EvidenceItem | None:
    found = [item for item in incident.evidence if wanted(item)]
    return min(found, key=lambda item: item.first_at, default=None)


def _label(truth: Truth, source: Source, why: str, at: float) -> Label:
    return Label(truth, source, why, "gpuwarden", at)
