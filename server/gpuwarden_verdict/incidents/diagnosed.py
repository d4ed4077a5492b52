"""Incidents that a diagnosed fault of storage, fabric or a job explains: its members wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.incidents.behind import ParentKey, goes_beyond
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import is_cause, live_items
from gpuwarden_verdict.signals import Persistence
from gpuwarden_wire.metrics import EntityKind

DIAGNOSIS = "diagnosis:"
"""Begin of the names under which a diagnosis that nobody asked for is evidence; a job's follows."""
BEFORE_S = 1800.0
"""A diagnosis comes some time after what it explains."""
EXPLAINS: Mapping[FaultClass, frozenset[FaultClass]] = {
    FaultClass.STORAGE: frozenset({FaultClass.STORAGE, FaultClass.HOST}),
    FaultClass.FABRIC: frozenset(
        {FaultClass.FABRIC, FaultClass.NIC, FaultClass.STORAGE, FaultClass.HOST}
    ),
    FaultClass.APPLICATION: frozenset({FaultClass.APPLICATION}),
}
"""By class of the fault, what follows from it on the nodes that it hits."""


def members_of_diagnosed(
    incidents: Sequence[Incident],
    hit: Mapping[str, frozenset[str]],
    taken: Collection[str],
    now: float,
) -> dict[str, ParentKey]:
    """The place's evidence by id of each incident that follows from a diagnosed fault.

    What only deviates (class unknown) follows too: a GPU that waits is slower than it was.

    Args:
        incidents: All that are open.
        hit: Nodes by key of the place that is diagnosed.
        taken: Incidents that have another cause.
        now: Epoch seconds.
    """
    found: dict[str, ParentKey] = {}
    for parent in incidents:
        item = _diagnosed(parent)
        nodes = hit.get(parent.entity.key, frozenset())
        if item is None or not nodes:
            continue
        for incident in incidents:
            if incident.id in taken or incident.id in found:
                continue
            if incident.entity.node_id in nodes and _follows(incident, parent, now):
                found[incident.id] = (parent.entity, item.detector)
    return found


def _diagnosed(parent: Incident) -> EvidenceItem | None:
    """A place's standing evidence by a diagnosis."""
    if parent.entity.kind is not EntityKind.PLACE:
        return None
    standing = (i for i in parent.evidence if i.cleared_at is None)
    return next((i for i in standing if i.detector.startswith(DIAGNOSIS)), None)


def _follows(incident: Incident, parent: Incident, now: float) -> bool:
    live = live_items(incident.evidence, now)
    if not live or goes_beyond(incident, now) or any(_stands_by_itself(item) for item in live):
        return False
    if max(item.received_at for item in live) < parent.opened_at - BEFORE_S:
        return False
    causes = {item.fault_class for item in live if is_cause(item.fault_class)}
    return causes <= EXPLAINS.get(parent.fault_class, frozenset())


def _stands_by_itself(item: EvidenceItem) -> bool:
    """A standing reading that may exclude follows from nothing."""
    return item.persistence is Persistence.LEVEL and item.max_rung >= Rung.EXCLUDE
