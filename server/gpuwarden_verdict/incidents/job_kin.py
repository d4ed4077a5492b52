"""Faults within one job: the program's own, or what one node's fault did to the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwarden_verdict.entities import (
    SEVERITY_RANK,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.incidents.behind import Blamed, place_clear, place_signal, standing_item
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import is_cause, live_items
from gpuwarden_verdict.incidents.storms import causes_of, clusters
from gpuwarden_verdict.places import PlaceKind, place_ref
from gpuwarden_wire.metrics import EntityKind

COLLECTIVE_S = 1800.0
"""The other ranks of a job notice that one is gone within their collectives' time-out: 10 minutes
in PyTorch, 30 with NCCL's watchdog."""
BEFORE_S = 30.0
"""Clocks of nodes differ, and lines are read in any order."""
PROGRAM = "program:"
"""Begin of the names under which a job's own evidence is kept."""
LEAST_ENTITIES = 2


def echoes_of(incidents: Sequence[Incident], now: float) -> dict[str, str]:
    """The cause's incident by id of the incidents that are echoes of it.

    A fault of hardware in a job, then nothing but what a program may cause on its other GPUs within
    COLLECTIVE_S: the rest of the job met the end of one rank.
    """
    causes: dict[str, list[tuple[float, Incident]]] = {}
    for incident in incidents:
        for item in incident.evidence:
            if item.job and _is_hard(item):
                causes.setdefault(item.job, []).append((item.first_at, incident))
    found: dict[str, str] = {}
    for incident in incidents if causes else ():
        told = _only_application(incident, now)
        if told is None:
            continue
        near = [
            (at, cause.id)
            for at, cause in causes.get(told.job, ())
            if cause.entity != incident.entity
            and at - BEFORE_S <= told.first_at <= at + COLLECTIVE_S
        ]
        if near:
            found[incident.id] = min(near)[1]
    return found


def blame_programs(incidents: Sequence[Incident], echoes: Iterable[str], now: float) -> Blamed:
    """The same code of a program's on several GPUs of one job at once is that job's.

    Args:
        incidents: All that are open, those of jobs among them.
        echoes: Incidents that a fault of hardware in their job explains.
        now: Epoch seconds.
    """
    blamed, left_out = Blamed(), frozenset(echoes)
    by_code: dict[tuple[str, str], list[tuple[EvidenceItem, Incident]]] = {}
    for incident in incidents:
        if incident.id in left_out or causes_of(incident):
            continue
        for item in live_items(incident.evidence, now):
            for job in item.jobs if item.application_possible else ():
                by_code.setdefault((job, item.detector), []).append((item, incident))
    told: set[tuple[str, str]] = set()
    for (job, code), members in by_code.items():
        storm = max(clusters(members), key=len)
        if len({incident.entity for _, incident in storm}) >= LEAST_ENTITIES:
            told.add((job, f"{PROGRAM}{code}"))
            _say(job, code, storm, now, blamed)
    for parent in incidents:
        kind, _, job = parent.entity.key.partition(":")
        if parent.entity.kind is not EntityKind.PLACE or kind != PlaceKind.JOB:
            continue
        for item in parent.evidence:
            if not item.detector.startswith(PROGRAM):
                continue  # a diagnosis ends by itself
            if (job, item.detector) not in told and standing_item(parent, item.detector):
                words = "no GPU of the job shows it any more"
                blamed.recoveries.append(place_clear(parent.entity, item.detector, words, now))
    return blamed


def _say(
    job: str, code: str, storm: Sequence[tuple[EvidenceItem, Incident]], now: float, blamed: Blamed
) -> None:
    place, detector = place_ref(PlaceKind.JOB, job), f"{PROGRAM}{code}"
    gpus = {incident.entity for _, incident in storm}
    nodes = {incident.entity.node_id for _, incident in storm}
    times = [item.first_at for item, _ in storm]
    within_s = max(times) - min(times)
    name = code.replace("xid:", "XID ")
    sentence = (
        f"{name} on {len(gpus)} GPUs of {len(nodes)} nodes of job {job} within {within_s:.0f} s: "
        "the program's, not the hardware's"
    )
    numbers = {"gpus": float(len(gpus)), "nodes": float(len(nodes)), "within_s": within_s}
    blamed.signals.append(
        place_signal(
            place,
            detector,
            FaultClass.APPLICATION,
            sentence,
            numbers,
            now,
            severity=Severity.WARNING,
            action=RecommendedAction.RESTART_APP,
        )
    )
    for _, incident in storm:
        blamed.members[incident.id] = (place, detector)


def _is_hard(item: EvidenceItem) -> bool:
    grave = SEVERITY_RANK[item.severity] >= SEVERITY_RANK[Severity.ERROR]
    of_hardware = not item.application_possible and not item.echo and is_cause(item.fault_class)
    return grave and of_hardware and item.max_rung >= Rung.EXCLUDE


def _only_application(incident: Incident, now: float) -> EvidenceItem | None:
    """The first of an incident's evidence where a program may have caused all of it."""
    live = live_items(incident.evidence, now)
    if not live or not all(item.application_possible for item in live):
        return None
    first = min(live, key=lambda item: item.first_at)
    return first if first.job else None
