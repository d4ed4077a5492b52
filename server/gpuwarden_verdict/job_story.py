"""Was it my code or the hardware: what is known of one job, in one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from gpuwarden_verdict.entities import SEVERITY_RANK, EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import is_cause
from gpuwarden_verdict.job_ends import JobEnd, JobOutcome
from gpuwarden_verdict.places import place_words
from gpuwarden_wire.metrics import EntityKind

BEFORE_S = 60.0
"""Inventories tell of a job some seconds after its begin."""
AFTER_S = 120.0
"""What ended a job may be read after its processes are gone."""
_BLIND_TOLD = 3


class JobCause(StrEnum):
    """What a job's trouble was."""

    HARDWARE = "hardware"
    STORAGE = "storage"
    NETWORK = "network"
    PLACE = "place"  # power or cooling of a place
    APPLICATION = "application"
    UNKNOWN = "unknown"  # something could not be seen
    NONE = "none"  # nothing was found wrong, and it did not end badly


_PLACE_CAUSES: Mapping[FaultClass, JobCause] = {
    FaultClass.STORAGE: JobCause.STORAGE,
    FaultClass.FABRIC: JobCause.NETWORK,
    FaultClass.NIC: JobCause.NETWORK,
}


@dataclass(frozen=True, slots=True)
class JobSight:
    """What is known of a job.

    Attributes:
        job: "KIND:ID".
        nodes: Where it ran.
        gpu_uuids: On which GPUs.
        gpu_names: How people call them ("GPU 3"), by uuid.
        since: Epoch seconds.
        until: Epoch seconds, None while it runs.
        end: How it ended, None where nobody said.
        incidents: All about its nodes, what sits in them and what they stand behind, of its time.
        blind: What could not be seen, in words.
    """

    job: str
    nodes: frozenset[str]
    gpu_uuids: frozenset[str]
    gpu_names: Mapping[str, str]
    since: float
    until: float | None
    end: JobEnd | None
    incidents: Sequence[Incident]
    blind: Sequence[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One incident as it bears upon the job.

    Attributes:
        incident: The incident.
        item: The evidence of the job's time that weighs most.
        cause: What it speaks for.
        weight: Order of what decides: the higher.
    """

    incident: Incident
    item: EvidenceItem
    cause: JobCause
    weight: tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The answer.

    Attributes:
        cause: What it was.
        line: In one line, fit for a job's log.
        confidence: 0..1.
        finding: What decided, None where nothing did.
        findings: All that bears upon the job, the gravest first.
    """

    cause: JobCause
    line: str
    confidence: float
    finding: Finding | None
    findings: tuple[Finding, ...]


def explain_job(sight: JobSight) -> JobVerdict:
    """What ended a job, or troubles it while it runs.

    A fault that decides by itself goes before a place's, that before a fault that needs company,
    and all of them before what a program can cause. Where nothing speaks, the end was the program's
    if all could be seen, and unknown else.
    """
    found = (_finding(incident, sight) for incident in sight.incidents)
    findings = tuple(sorted((f for f in found if f), key=lambda f: f.weight, reverse=True))
    first = findings[0] if findings else None
    if first is not None and (first.cause is not JobCause.APPLICATION or not sight.blind):
        return JobVerdict(first.cause, _line(sight, first), _confidence(first), first, findings)
    went_badly = sight.end is not None and sight.end.outcome is JobOutcome.BAD
    if sight.blind and (went_badly or sight.end is None or first is not None):
        return _unknown(sight, first, findings)
    if first is not None:
        return JobVerdict(first.cause, _line(sight, first), _confidence(first), first, findings)
    where = f"on its {_count(sight.nodes, 'node')} and {_count(sight.gpu_uuids, 'GPU')}"
    if went_badly:
        well = f"nothing was found wrong {where}"
        line = f"{_head(sight)}: application: {well}; see the job's own log"
        return JobVerdict(JobCause.APPLICATION, line, 0.6, None, ())
    so_far = " so far" if sight.until is None and sight.end is None else ""
    line = f"{_head(sight)}: nothing was found wrong {where}{so_far}"
    return JobVerdict(JobCause.NONE, line, 0.6, None, ())


def moment(at: float) -> str:
    """A time as logs write it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _unknown(sight: JobSight, first: Finding | None, findings: tuple[Finding, ...]) -> JobVerdict:
    more = len(sight.blind) - _BLIND_TOLD
    blind = "; ".join(sight.blind[:_BLIND_TOLD]) + (f"; and {more} more" if more > 0 else "")
    seen = f", of what was seen the program looks at fault ({first.item.sentence})" if first else ""
    line = f"{_head(sight)}: unknown{seen}: {blind}"
    return JobVerdict(JobCause.UNKNOWN, " ".join(line.split()), 0.3, first, findings)


def _finding(incident: Incident, sight: JobSight) -> Finding | None:
    """What an incident says about the job; None where it says nothing."""
    if not _concerns(incident, sight):
        return None
    until = sight.until if sight.until is not None else float("inf")
    begin, end = sight.since - BEFORE_S, until + AFTER_S
    told = [i for i in incident.evidence if i.first_at <= end and _last(i) >= begin]
    own = [item for item in told if not item.echo]
    if not own:
        return None
    if incident.entity.kind is EntityKind.PLACE:
        return _of_place(incident, own)
    if incident.parent_id is not None:
        return None  # its cause is among the incidents, or of no concern to this job
    hard = [i for i in own if not i.application_possible and is_cause(i.fault_class)]
    grave = [i for i in hard if SEVERITY_RANK[i.severity] >= SEVERITY_RANK[Severity.ERROR]]
    if grave:
        item = max(grave, key=lambda one: (one.acts_alone, one.score))
        rank = 5 if item.acts_alone else 3 if item.max_rung >= Rung.EXCLUDE else 2
        return Finding(incident, item, _cause_of(incident), (rank, *_order(item)))
    mine = [i for i in own if i.fault_class is FaultClass.APPLICATION or i.application_possible]
    if mine:
        item = max(mine, key=lambda one: one.score)
        return Finding(incident, item, JobCause.APPLICATION, (1, *_order(item)))
    return None


def _of_place(incident: Incident, own: Sequence[EvidenceItem]) -> Finding:
    item = max(own, key=lambda one: one.score)
    if incident.fault_class is FaultClass.APPLICATION:
        return Finding(incident, item, JobCause.APPLICATION, (2, *_order(item)))
    cause = _PLACE_CAUSES.get(incident.fault_class, JobCause.PLACE)
    return Finding(incident, item, cause, (4, *_order(item)))


def _order(item: EvidenceItem) -> tuple[int, float]:
    return SEVERITY_RANK[item.severity], item.score


def _last(item: EvidenceItem) -> float:
    """Until when it stood."""
    return item.cleared_at if item.cleared_at is not None else max(item.last_at, item.expires_at)


def _concerns(incident: Incident, sight: JobSight) -> bool:
    entity = incident.entity
    if entity.kind is EntityKind.GPU:
        return entity.key in sight.gpu_uuids
    return entity.kind is EntityKind.PLACE or entity.node_id in sight.nodes


def _cause_of(incident: Incident) -> JobCause:
    """A node's own disk and port are hardware; a network mount is not the node's."""
    if incident.entity.kind is EntityKind.MOUNT:
        return JobCause.STORAGE
    return JobCause.HARDWARE


def _confidence(finding: Finding) -> float:
    return max(0.3, finding.incident.confidence, finding.item.score)


def _line(sight: JobSight, finding: Finding) -> str:
    incident, item = finding.incident, finding.item
    action = incident.action.value
    do = "" if action == "none" else f"; {action.replace('_', ' ')}"
    what = _subject(incident.entity, sight)
    text = (
        f"{_head(sight)}: {finding.cause.value}: {what}: {item.sentence}, "
        f"{moment(item.first_at)}{do} ({incident.id})"
    )
    return " ".join(text.split())


def _subject(entity: EntityRef, sight: JobSight) -> str:
    if entity.kind is EntityKind.PLACE:
        return place_words(entity.key)
    if entity.kind is EntityKind.GPU:
        name = sight.gpu_names.get(entity.key, "")
        return f"{entity.node_id} {name} {entity.key}".replace("  ", " ")
    if entity.kind is EntityKind.NODE:
        return f"node {entity.node_id}"
    return f"{entity.node_id} {entity.key.removeprefix(f'{entity.node_id}/')}"


def _count(things: frozenset[str], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _head(sight: JobSight) -> str:
    if sight.end is None:
        return sight.job if sight.until is not None else f"{sight.job} (running)"
    return sight.end.words
