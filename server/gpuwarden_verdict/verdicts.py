"""Verdicts: what people and programs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from gpuwarden_verdict.entities import (
    SEVERITY_RANK,
    Contact,
    EntityRef,
    EntityState,
    RecommendedAction,
    Rung,
)
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.policy.document import Decision, DecisionPhase
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one node or GPU stands.

    Attributes:
        entity: The entity.
        state: Its state, None where never judged.
        since: Epoch seconds of that state, None where never judged.
        decisions: Its live decisions.
        incidents: Its open incidents (a node's: its NICs' and disks' too).
        pci_bus_id: For GPUs.
        index: For GPUs.
    """

    entity: EntityRef
    state: EntityState | None = None
    since: float | None = None
    decisions: tuple[Decision, ...] = ()
    incidents: tuple[Incident, ...] = ()
    pci_bus_id: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """Position of the exclusion feed."""

    feed_id: str
    epoch: int


def entity_verdict(
    standing: Standing, contact: Contact, covering: Sequence[Decision] = ()
) -> EntityVerdict:
    """Verdict about one entity.

    `usable` is NO exactly when an exclusion in force covers the entity, whatever the contact;
    silence and "never seen" make it UNKNOWN, which warns and excludes nobody.

    Args:
        standing: Where it stands.
        contact: Whether its node is heard of.
        covering: Exclusions in force of other entities that cover it too: a node's for its GPUs,
            its GPUs' for a node.
    """
    own = [decision for decision in standing.decisions if covers(decision)]
    in_force = max(own, key=_weight, default=None) or max(covering, key=_weight, default=None)
    incident = _leading(standing.incidents)
    advised = max(standing.decisions, key=_weight, default=None)
    spoken = in_force or advised
    return EntityVerdict(
        entity_kind=standing.entity.kind.value,
        entity=standing.entity.key,
        usable=_usable(in_force, contact),
        state=_state(standing, contact),
        since=in_force.decided_at if in_force else standing.since,
        why=_why(standing, in_force, incident, contact),
        confidence=spoken.confidence if spoken else (incident.confidence if incident else None),
        action=_action(incident, in_force),
        decided_by=spoken.decided_by if spoken else "",
        decision_id=in_force.id if in_force else None,
        would=_would(standing.decisions) if in_force is None else "",
        pci_bus_id=standing.pci_bus_id,
        index=standing.index,
    )


def node_verdict(
    node: Standing, gpus: Sequence[Standing], contact: Contact, feed: FeedPosition, now: float
) -> NodeVerdict:
    """Verdict about a node and its GPUs.

    The node is NO when itself or any of its GPUs is excluded; a GPU when itself or its node is.

    Args:
        node: The node's own standing.
        gpus: Its GPUs, in display order.
        contact: Whether it is heard of.
        feed: Position of the feed that this reflects.
        now: Server's UTC, epoch seconds.
    """
    on_node = [decision for decision in node.decisions if covers(decision)]
    on_gpus = [decision for gpu in gpus for decision in gpu.decisions if covers(decision)]
    return NodeVerdict(
        node_id=node.entity.key,
        node=entity_verdict(node, contact, on_gpus),
        gpus=tuple(entity_verdict(gpu, contact, on_node) for gpu in gpus),
        feed_id=feed.feed_id,
        epoch=feed.epoch,
        issued_at=now,
    )


def _state(standing: Standing, contact: Contact) -> str:
    """A retired node's GPUs are shown as the node is: they went with it."""
    if contact is Contact.RETIRED:
        return EntityState.RETIRED.value
    return standing.state.value if standing.state else "unknown"


def _usable(in_force: Decision | None, contact: Contact) -> Usable:
    if in_force is not None:
        return Usable.NO
    match contact:
        case Contact.LIVE:
            return Usable.YES
        case Contact.SILENT | Contact.NEVER | Contact.RETIRED:
            return Usable.UNKNOWN
        case _:
            assert_never(contact)


def _why(
    standing: Standing, in_force: Decision | None, incident: Incident | None, contact: Contact
) -> str:
    if in_force is not None:
        reason = in_force.reasons[0] if in_force.reasons else f"decided by {in_force.decided_by}"
        if in_force.entity == standing.entity:
            return reason
        return f"{_named(in_force.entity)} is excluded: {reason}"
    if incident is not None:
        return incident.why
    if contact is Contact.NEVER:
        return "never seen"
    if contact is Contact.SILENT:
        return "the agent of this node is silent"
    if contact is Contact.RETIRED:
        return "the node was retired; it comes back when its agent sends again"
    return ""


def _named(entity: EntityRef) -> str:
    return f"GPU {entity.key}" if entity.kind is EntityKind.GPU else f"node {entity.key}"


def _action(incident: Incident | None, in_force: Decision | None) -> str:
    if incident is not None and incident.action is not RecommendedAction.NONE:
        return incident.action.value
    return in_force.rung.name.lower() if in_force is not None else RecommendedAction.NONE.value


def _would(decisions: Sequence[Decision]) -> str:
    waiting = {DecisionPhase.PROPOSED, DecisionPhase.HELD_BACK}
    rungs = [d.rung for d in decisions if d.phase in waiting and d.rung >= Rung.EXCLUDE]
    return max(rungs).name.lower() if rungs else ""


def _leading(incidents: Sequence[Incident]) -> Incident | None:
    return max(
        incidents,
        key=lambda one: (SEVERITY_RANK[one.severity], one.confidence, -one.opened_at),
        default=None,
    )


def _weight(decision: Decision) -> tuple[int, float, str]:
    return decision.rung, -decision.decided_at, decision.id
