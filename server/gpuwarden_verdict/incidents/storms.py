"""Storms: the same code on many GPUs at once has one cause, a program or the node's driver."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_verdict.context import CHAIN_S
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import is_cause
from gpuwarden_wire.metrics import EntityKind

STORM_S = 60.0
"""Occurrences this near belong together: the ranks of a job fail within one collective's timeout.
NVSentinel#1629: 77 sound nodes were flagged by the XID 45 of one job's crash."""

DRIVER_WIDE = "driver_wide:"
"""Detectors of a node whose driver tells one code of most GPUs, before the code's own detector."""

REPEATED = "xid_repeat:"
"""Detectors of a code that came again, before the code: of one chain with the code's own."""

_Member = tuple[EvidenceItem, Incident]


def may_be_storm(incident: Incident) -> bool:
    """Whether `find_storms` must see an incident."""
    return any(
        item.application_possible or item.fault_class is FaultClass.DRIVER
        for item in incident.evidence
    )


def find_storms(incidents: Sequence[Incident]) -> frozenset[str]:
    """Ids of open incidents of GPUs that are a program's storm, or their node's driver's.

    A program's storm is the same application-possible code on at least two GPUs within STORM_S, of
    one job where jobs are known; a driver's is a code that its node has an incident of its own for.
    An incident with other evidence of a fault beside it is not acquitted by the storm.
    """
    return _of_programs(incidents) | _of_drivers(incidents)


def _of_drivers(incidents: Sequence[Incident]) -> frozenset[str]:
    wide = {
        (incident.entity.node_id, item.detector.removeprefix(DRIVER_WIDE)): item
        for incident in incidents
        for item in incident.evidence
        if item.detector.startswith(DRIVER_WIDE)
    }
    return frozenset(
        incident.id
        for incident in incidents
        if incident.entity.kind is EntityKind.GPU
        and any(_within(item, wide.get(_code(incident, item))) for item in incident.evidence)
        and not any(_code(incident, item) not in wide for item in causes_of(incident))
    )


def _code(incident: Incident, item: EvidenceItem) -> tuple[str, str]:
    code = item.detector
    if code.startswith(REPEATED):
        code = f"xid:{code.removeprefix(REPEATED).partition(':')[0]}"
    return incident.entity.node_id, code


def _within(item: EvidenceItem, wide: EvidenceItem | None) -> bool:
    """Whether a GPU's code belongs to its node's; both times are of one agent's clock."""
    if wide is None:
        return False
    begun, ended = wide.first_at - CHAIN_S, wide.last_at + CHAIN_S
    return item.last_at >= begun and item.first_at <= ended


def _of_programs(incidents: Sequence[Incident]) -> frozenset[str]:
    by_code: dict[str, list[_Member]] = {}
    for incident in incidents:
        for item in incident.evidence:
            if item.application_possible and not item.echo:
                by_code.setdefault(item.detector, []).append((item, incident))
    stormy = {id_ for members in by_code.values() for id_ in _stormy(members)}
    return frozenset(i.id for i in incidents if i.id in stormy and not _stands_alone(i))


def _stormy(members: list[_Member]) -> set[str]:
    """Where the job is known, only the same job makes a storm; elsewhere nearness in time does."""
    by_job: dict[str, list[_Member]] = {}
    for member in members:
        for job in member[0].jobs:
            by_job.setdefault(job, []).append(member)
    without = {incident.id for item, incident in members if not item.jobs}
    ids = {id_ for group in by_job.values() for id_ in _clustered(group)}
    return ids | (_clustered(members) & without if without else set())


def _clustered(members: list[_Member]) -> set[str]:
    """Ids in clusters of near occurrences that hold several entities."""
    return {
        incident.id
        for cluster in clusters(members)
        if len({incident.entity for _, incident in cluster}) > 1
        for _, incident in cluster
    }


def clusters(members: Sequence[_Member]) -> list[list[_Member]]:
    """Occurrences by nearness in time, in order."""
    found: list[list[_Member]] = []
    until = float("-inf")
    for item, incident in sorted(members, key=lambda member: member[0].first_at):
        if item.first_at > until + STORM_S:
            found.append([])
        found[-1].append((item, incident))
        until = max(until, item.last_at)
    return found


def _stands_alone(incident: Incident) -> bool:
    return bool(causes_of(incident))


def causes_of(incident: Incident) -> list[EvidenceItem]:
    """Evidence of a fault that no program can cause."""
    return [
        item
        for item in incident.evidence
        if not item.application_possible and not item.echo and is_cause(item.fault_class)
    ]
