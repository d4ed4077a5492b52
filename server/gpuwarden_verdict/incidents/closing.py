"""Closed for action: members of a common cause, and what stands under maintenance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwarden_verdict.incidents.behind import ParentKey, goes_beyond
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.kin import Kin
from gpuwarden_verdict.places import place_words
from gpuwarden_verdict.signals import Persistence

PENDING = "pending"
"""Parent of a member whose place has been found and whose incident is not stored yet."""


@dataclass(frozen=True, slots=True)
class Family:
    """Whom an incident may belong to.

    Attributes:
        kin: What the latest sweep found.
        find: A live incident by id.
        parent: The live incident of a place that holds such evidence.
    """

    kin: Kin
    find: Callable[[str], Incident | None]
    parent: Callable[[ParentKey], Incident | None]


def relate(
    incident: Incident, family: Family, maintenance: str, now: float
) -> tuple[Incident, str] | None:
    """The incident with its present parent and maintenance, and why; None where both are as before.

    Args:
        incident: A live incident of a node or of what sits in it.
        family: Whom it may belong to.
        maintenance: Under which its node is, in words, "" for none.
        now: Epoch seconds.
    """
    reasons: list[str] = []
    changed = _with_parent(incident, family, now, reasons)
    changed = _with_maintenance(changed, maintenance, now, reasons)
    return (changed, "; ".join(reasons)) if reasons else None


def is_pending(incident: Incident, family: Family, now: float) -> bool:
    """Whether a common cause was found for it that is not stored yet."""
    kin = family.kin
    known = incident.id in kin.members or incident.id in kin.echoes
    return known and incident.parent_id is None and not goes_beyond(incident, now)


def _with_parent(incident: Incident, family: Family, now: float, reasons: list[str]) -> Incident:
    before = incident.parent_id
    if before is None and not (family.kin.members or family.kin.echoes):
        return incident
    beyond = goes_beyond(incident, now)
    parent = None if beyond else _parent_of(incident, family)
    if parent is not None:
        if parent.id == before:
            return incident
        reasons.append(f"its cause is {_named(parent)}: {parent.why}")
        return replace(incident, parent_id=parent.id, updated_at=now)
    if before is None:
        return incident
    if beyond:
        reasons.append(f"has evidence of its own, which {before} does not explain")
        return replace(incident, parent_id=None, updated_at=now)
    reasons.append(f"{before} has ended: what still stands is judged anew")
    return replace(_judged_anew(incident, now), parent_id=None)


def _parent_of(incident: Incident, family: Family) -> Incident | None:
    """What the latest sweep says; where it is silent, its present parent while that lives."""
    cause = family.kin.echoes.get(incident.id)
    if cause is not None:
        return family.find(cause)
    behind = family.kin.members.get(incident.id)
    if behind is not None and (parent := family.parent(behind)) is not None:
        return parent
    return None if incident.parent_id is None else family.find(incident.parent_id)


def _with_maintenance(
    incident: Incident, maintenance: str, now: float, reasons: list[str]
) -> Incident:
    if maintenance == incident.held:
        return incident
    if maintenance:
        reasons.append(f"held: {maintenance}")
        return replace(incident, held=maintenance, updated_at=now)
    reasons.append("maintenance has ended: what still stands is judged anew")
    return replace(_judged_anew(incident, now), held="")


def _judged_anew(incident: Incident, now: float) -> Incident:
    """What happened in that time was of that cause; what is still so must settle once more."""
    evidence = tuple(_anew(item, now) for item in incident.evidence)
    return replace(incident, evidence=evidence, updated_at=now)


def _anew(item: EvidenceItem, now: float) -> EvidenceItem:
    if item.cleared_at is not None:
        return item
    if item.persistence is Persistence.EVENT:
        return replace(item, cleared_at=now)
    return replace(item, received_at=now)


def _named(parent: Incident) -> str:
    entity = parent.entity
    return place_words(entity.key) if not entity.node_id else f"{entity.key} on {entity.node_id}"
