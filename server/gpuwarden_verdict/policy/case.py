"""What a decision rests on: values, made by the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.incidents.domain import Acquittal, Incident
from gpuwarden_verdict.policy.document import Decision, Pin
from gpuwarden_verdict.policy.guards import NO_SEAT, Seat
from gpuwarden_verdict.signals import Risk
from gpuwarden_wire.metrics import EntityKind

BY_RULE = "rule"
BY_SCORE = "score"


class Hold(StrEnum):
    """What waits because a node says that more of its events follow."""

    NONE = "none"
    CORROBORATED = "corroborated"  # all but what the catalogue lets decide alone
    ALL = "all"  # old events are told: what ended their faults may be among those that follow


@dataclass(frozen=True, slots=True)
class EntityCase:
    """All that a decision about one entity (a node or a GPU) rests on.

    Attributes:
        entity: Target; NIC and disk incidents are the node's case (`decision_target`).
        incidents: Its open incidents.
        decisions: Its live decisions: proposed, in force, held back.
        state: Its state.
        contact: Whether its node is heard of; silent or never seen decides nothing new, save on
            evidence that acts alone.
        risk: Latest risk, None where not scored.
        pins: Pins on it.
        acquittals: Acquittals on it.
        storms: Incident ids that are a program's storm, or their node's driver's (`find_storms`).
        hold: Whether its decisions are held as they are, because more events of its node wait.
        seat: Where its node stands, and what runs there.
        returned_at: When gpuwarden's own latest exclusion of it ended, epoch seconds; None for
            never.
    """

    entity: EntityRef
    incidents: tuple[Incident, ...]
    decisions: tuple[Decision, ...] = ()
    state: EntityState = EntityState.HEALTHY
    contact: Contact = Contact.LIVE
    risk: Risk | None = None
    pins: tuple[Pin, ...] = ()
    acquittals: tuple[Acquittal, ...] = ()
    storms: frozenset[str] = field(default_factory=frozenset)
    hold: Hold = Hold.NONE
    seat: Seat = NO_SEAT
    returned_at: float | None = None


def decision_target(ref: EntityRef) -> EntityRef:
    """What a decision about a fault of `ref` acts on: a GPU itself, else its node.

    A place stands for itself, and nothing is ever decided about it.
    """
    if ref.kind in (EntityKind.GPU, EntityKind.PLACE):
        return ref
    return EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)
