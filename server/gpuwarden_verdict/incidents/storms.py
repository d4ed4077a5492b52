"""Storms: the same code on many GPUs at once is one program's doing, not many faults."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import is_cause

STORM_S = 60.0
"""Occurrences this near belong together: the ranks of a job fail within one collective's timeout.
NVSentinel#1629: 77 sound nodes were flagged by the XID 45 of one job's crash."""

_Member = tuple[EvidenceItem, Incident]


def find_storms(incidents: Sequence[Incident]) -> frozenset[str]:
    """Ids of open incidents that are one application's storm.

    A storm is the same application-possible code on at least two GPUs within STORM_S. An incident
    with other evidence of a fault beside it is not acquitted by the storm.
    """
    by_code: dict[str, list[_Member]] = {}
    for incident in incidents:
        for item in incident.evidence:
            if item.application_possible and not item.echo:
                by_code.setdefault(item.detector, []).append((item, incident))
    stormy = {id_ for members in by_code.values() for id_ in _clustered(members)}
    return frozenset(i.id for i in incidents if i.id in stormy and not _stands_alone(i))


def _clustered(members: list[_Member]) -> set[str]:
    """Ids in clusters of near occurrences that hold several entities."""
    ids: set[str] = set()
    cluster: list[_Member] = []
    until = float("-inf")
    for item, incident in sorted(members, key=lambda member: member[0].first_at):
        if item.first_at > until + STORM_S:
            ids |= _storm_ids(cluster)
            cluster = []
        cluster.append((item, incident))
        until = max(until, item.last_at)
    return ids | _storm_ids(cluster)


def _storm_ids(cluster: Sequence[_Member]) -> set[str]:
    entities = {incident.entity for _, incident in cluster}
    return {incident.id for _, incident in cluster} if len(entities) > 1 else set()


def _stands_alone(incident: Incident) -> bool:
    return any(
        not item.application_possible and not item.echo and is_cause(item.fault_class)
        for item in incident.evidence
    )
