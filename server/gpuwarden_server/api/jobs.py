"""/v1/jobs/{job}/why: was it the program or the hardware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter
from pydantic import BaseModel

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.incidents import repository as incident_rows
from gpuwarden_server.incidents.schemas import IncidentView, incident_view
from gpuwarden_server.jobs import repository
from gpuwarden_server.jobs.domain import JobRun, ToldEnd, possible_names
from gpuwarden_verdict.entities import Contact
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.job_story import (
    AFTER_S,
    BEFORE_S,
    Finding,
    JobCause,
    JobSight,
    JobVerdict,
    explain_job,
)
from gpuwarden_verdict.places import PlaceKind, place_ref
from gpuwarden_verdict.policy.judgement import gated
from gpuwarden_wire.metrics import EntityKind

SAME_RUN_S = 3600.0
"""Runs of one id that are further apart are two: it was put back into the queue."""


class JobRunView(BaseModel):
    """A job on one node."""

    node_id: str
    gpu_uuids: list[str]
    since: float
    until: float | None


class JobEndView(BaseModel):
    """How a job ended, as somebody told."""

    state: str
    exit_code: int | None
    user: str
    ended_at: float


class JobFindingView(BaseModel):
    """An incident that bears upon the job."""

    cause: JobCause
    sentence: str
    first_at: float
    incident: IncidentView


class JobWhyView(BaseModel):
    """Was it the program or the hardware."""

    job: str
    cause: JobCause
    line: str
    confidence: float
    incident_id: str | None
    node_id: str | None
    entity: str | None
    action: str
    running: bool
    since: float
    until: float | None
    nodes: int
    gpus: int
    blind: list[str]
    ends: list[JobEndView]
    runs: list[JobRunView]
    findings: list[JobFindingView]


def jobs_router(sources: ReadSources) -> APIRouter:
    """Routes of jobs."""
    router = APIRouter(prefix="/v1/jobs", tags=["why"])

    @router.get("/{job}/why", summary="Was it the program or the hardware: one job, in one line")
    def why_job(job: str) -> JobWhyView:
        names = possible_names(job)
        with sources.state.read() as connection:
            runs = repository.read_runs(connection, names)
            ends = repository.read_ends(connection, names)
        name = _name(job, runs, ends)
        runs = _latest([run for run in runs if run.job == name])
        ends = [told for told in ends if told.end.job == name]
        sight = _sight(sources, name, runs, ends)
        return _view(sight, explain_job(sight), runs, ends)

    return router


def _name(text: str, runs: Sequence[JobRun], ends: Sequence[ToldEnd]) -> str:
    seen = sorted({run.job for run in runs} | {told.end.job for told in ends})
    if len(seen) == 1:
        return seen[0]
    if seen:
        raise ProblemError(
            409, "ambiguous_job", f"{text!r} may be {' or '.join(seen)}", "Say which: KIND:ID."
        )
    raise ProblemError(
        404,
        "not_found",
        f"no job {text!r} is known",
        "Name it as KIND:ID (slurm:4711); agents see jobs by the processes of GPUs.",
    )


def _latest(runs: Sequence[JobRun]) -> list[JobRun]:
    """The newest run of an id that was used again."""
    kept: list[JobRun] = []
    for run in sorted(runs, key=lambda run: run.since, reverse=True):
        if kept and run.until is not None and run.until < min(k.since for k in kept) - SAME_RUN_S:
            break
        kept.append(run)
    return kept[::-1]


def _sight(
    sources: ReadSources, job: str, runs: Sequence[JobRun], ends: Sequence[ToldEnd]
) -> JobSight:
    end = ends[-1] if ends else None
    now = sources.clock.now()
    nodes = frozenset(run.node_id for run in runs) or frozenset(end.nodes if end else ())
    since = min((run.since for run in runs), default=end.end.at if end else now)
    if end is not None and end.end.at < since:
        end = None  # of an earlier run
    running = end is None and any(run.until is None for run in runs)
    until = None if running else _ended_at(runs, end, now)
    gpus = {uuid for run in runs for uuid in run.gpu_uuids} or _gpus_in(sources, nodes)
    records = [gpu for uuid in gpus if (gpu := sources.directory.gpu(uuid)) is not None]
    incidents = _incidents(sources, job, nodes, since - BEFORE_S, (until or now) + AFTER_S)
    return JobSight(
        job=job,
        nodes=nodes,
        gpu_uuids=frozenset(gpus),
        gpu_names={g.gpu_uuid: f"GPU {g.gpu_index}" for g in records if g.gpu_index is not None},
        since=since,
        until=until,
        end=end.end if end else None,
        incidents=incidents,
        blind=_blind(sources, sorted(nodes)),
    )


def _ended_at(runs: Sequence[JobRun], end: ToldEnd | None, now: float) -> float:
    if end is not None:
        return end.end.at
    return max((run.until for run in runs if run.until is not None), default=now)


def _gpus_in(sources: ReadSources, nodes: Iterable[str]) -> set[str]:
    return {gpu.gpu_uuid for node in nodes for gpu in sources.directory.gpus_of(node)}


def _incidents(
    sources: ReadSources, job: str, nodes: frozenset[str], begin: float, end: float
) -> list[Incident]:
    """Incidents of the job's time, about its nodes and what they stand behind."""
    places = {place_ref(PlaceKind.JOB, job).key, *_places(sources, nodes)}
    with sources.state.read() as connection:
        found = incident_rows.read_between(connection, nodes, begin, end)
    return [
        _as_judged(sources, one)
        for one in found
        if one.entity.kind is not EntityKind.PLACE or one.entity.key in places
    ]


def _as_judged(sources: ReadSources, incident: Incident) -> Incident:
    """A score weighs what its gate allows now, as for the judge."""
    kind, pool = incident.entity.kind, sources.placements.pool(incident.entity.node_id)
    return gated(incident, lambda version: sources.scorer.may_exclude(kind, version, pool))


def _places(sources: ReadSources, nodes: Iterable[str]) -> Iterable[str]:
    for node in nodes:
        placement = sources.placements.placement(node)
        named = {
            PlaceKind.RACK: placement.entry.rack,
            PlaceKind.LEAF: placement.entry.leaf,
            PlaceKind.POWER: placement.words.get(PlaceKind.POWER, ""),
        }
        yield from (place_ref(kind, name).key for kind, name in named.items() if name)
        yield from (place_ref(PlaceKind.MOUNT, name).key for name in placement.entry.mounts)


def _blind(sources: ReadSources, nodes: Sequence[str]) -> list[str]:
    """What could not be seen of the job's nodes, as it is now."""
    found: list[str] = []
    for node in nodes:
        contact = sources.facts.contact_of(node)
        if contact is not Contact.LIVE:
            found.append(f"{node} is {'not known' if contact is Contact.NEVER else contact.value}")
            continue
        found += [f"{node}: {one.source}: {one.reason}" for one in sources.troubles.of(node)]
        record = sources.directory.node(node)
        if record is not None and record.agent_version in ("", "remote-write"):
            found.append(f"{node} has no agent: its kernel log is not read")
    return found or (["nobody knows where it ran"] if not nodes else [])


def _view(
    sight: JobSight, verdict: JobVerdict, runs: Sequence[JobRun], ends: Sequence[ToldEnd]
) -> JobWhyView:
    decisive = verdict.finding.incident if verdict.finding else None
    return JobWhyView(
        job=sight.job,
        cause=verdict.cause,
        line=verdict.line,
        confidence=verdict.confidence,
        incident_id=decisive.id if decisive else None,
        node_id=(decisive.entity.node_id or None) if decisive else None,
        entity=decisive.entity.key if decisive else None,
        action=decisive.action.value if decisive else "none",
        running=sight.until is None,
        since=sight.since,
        until=sight.until,
        nodes=len(sight.nodes),
        gpus=len(sight.gpu_uuids),
        blind=list(sight.blind),
        ends=[
            JobEndView(
                state=told.end.state,
                exit_code=told.end.exit_code,
                user=told.end.user,
                ended_at=told.end.at,
            )
            for told in ends
        ],
        runs=[
            JobRunView(
                node_id=run.node_id,
                gpu_uuids=list(run.gpu_uuids),
                since=run.since,
                until=run.until,
            )
            for run in runs
        ],
        findings=[_finding_view(one) for one in verdict.findings],
    )


def _finding_view(finding: Finding) -> JobFindingView:
    return JobFindingView(
        cause=finding.cause,
        sentence=finding.item.sentence,
        first_at=finding.item.first_at,
        incident=incident_view(finding.incident),
    )
