"""The exclusion set: what is in force, its digest, its differences and its plain forms."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase, Pin
from gpuwarden_wire.metrics import EntityKind

_ENDED = frozenset({DecisionPhase.LIFTED, DecisionPhase.EXPIRED})
_WOULD = frozenset({DecisionPhase.PROPOSED, DecisionPhase.HELD_BACK})


class Scope(StrEnum):
    """ANY: nodes with any excluded GPU. NODE: nodes excluded as a whole."""

    ANY = "any"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """Where a GPU sits, for display beside its name."""

    pci_bus_id: str
    index: int | None


PlaceOf = Callable[[str], GpuPlace | None]
"""Where a GPU sits, by gpu_uuid; None where nobody knows."""

JoinerOf = Callable[[str], str | None]
"""The spare that works for a node that left; None where none does."""


def nobody(node_id: str) -> str | None:
    """Where no spare is leased."""
    return None


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One entity that may not be used, as in the exclusions' JSON form.

    Attributes:
        entity_kind: node or gpu.
        entity: Node id or gpu_uuid.
        node_id: Its node.
        gpu_uuid: For GPUs.
        pci_bus_id: For GPUs whose place is known.
        gpu_index: For GPUs whose place is known.
        rung: exclude, drain or evict.
        since: Epoch seconds of the decision.
        reason: Its leading reason.
        decision_id: The decision.
        decided_by: "rule", "score", "operator:NAME" or "pin".
        expires_at: Epoch seconds, None for never.
        joiner: Spare that works for its node, None where none does.
    """

    entity_kind: EntityKind
    entity: str
    node_id: str
    gpu_uuid: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    rung: Rung
    since: float
    reason: str
    decision_id: str
    decided_by: str
    expires_at: float | None
    joiner: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedLeave:
    """A node that will be excluded at a time, told ahead of it.

    Attributes:
        id: "pin-" and 12 hex digits.
        node_id: The node.
        at: Epoch seconds from which it may not be used.
        until: Epoch seconds of its end, None where nobody has said.
        reason: In a person's words.
        by: Who planned it.
    """

    id: str
    node_id: str
    at: float
    until: float | None
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class ExclusionChange:
    """Difference of two sets, each sorted by kind and entity."""

    added: tuple[Exclusion, ...]
    removed: tuple[Exclusion, ...]


def covers(decision: Decision) -> bool:
    """Whether a decision is an exclusion in force."""
    return decision.phase is DecisionPhase.IN_FORCE and decision.rung >= Rung.EXCLUDE


def ends_own_exclusion(move: DecisionMove) -> bool:
    """Whether an exclusion that gpuwarden decided ends, by evidence or at its expiry.

    A person's revoke is none of these, and neither is the end of a pin or planned leave.
    """
    decision = move.decision
    own = decision.incident_id is not None and decision.rung >= Rung.EXCLUDE
    return own and move.before is DecisionPhase.IN_FORCE and decision.phase in _ENDED


def exclusion_set(
    decisions: Iterable[Decision], place_of: PlaceOf, joiner_of: JoinerOf = nobody
) -> tuple[Exclusion, ...]:
    """Exclusions in force, sorted by kind and entity; one an entity: the highest, then oldest.

    Args:
        decisions: Any decisions; those not in force are left out.
        place_of: Place of a GPU by gpu_uuid; one without is listed all the same.
        joiner_of: Spare that works for a node.
    """
    return _listed((decision for decision in decisions if covers(decision)), place_of, joiner_of)


def would_exclude(decisions: Iterable[Decision], place_of: PlaceOf) -> tuple[Exclusion, ...]:
    """What observe mode, unapproved advice and guards keep in, in the same form."""
    wanted = (d for d in decisions if d.phase in _WOULD and d.rung >= Rung.EXCLUDE)
    return _listed(wanted, place_of)


def planned_leaves(pins: Iterable[Pin], decisions: Iterable[Decision]) -> tuple[PlannedLeave, ...]:
    """Leaves that have not become exclusions yet, in order of time.

    Args:
        pins: Any pins; those that are no leaves are left out.
        decisions: Any decisions: a leave that made one is planned no more.
    """
    begun = {d.entity for d in decisions if d.decided_by == "pin" and covers(d)}
    found = [
        PlannedLeave(pin.id, pin.entity.node_id, pin.starts_at, pin.expires_at, pin.reason, pin.by)
        for pin in pins
        if pin.leave and pin.starts_at is not None and pin.entity not in begun
    ]
    return tuple(sorted(found, key=lambda one: (one.at, one.node_id, one.id)))


def digest(exclusions: Iterable[Exclusion]) -> str:
    """SHA-256 hex over the sorted "entity_kind:entity" lines, joined by newlines."""
    lines = sorted(f"{one.entity_kind}:{one.entity}" for one in exclusions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def difference(before: Iterable[Exclusion], after: Iterable[Exclusion]) -> ExclusionChange:
    """What was added and removed, by entity; an exclusion whose terms changed is both."""
    old = {_key(one): one for one in before}
    new = {_key(one): one for one in after}
    added = [new[key] for key in sorted(new) if new[key] != old.get(key)]
    removed = [old[key] for key in sorted(old) if old[key] != new.get(key)]
    return ExclusionChange(tuple(added), tuple(removed))


def host_lines(exclusions: Iterable[Exclusion], scope: Scope = Scope.ANY) -> str:
    """One node a line, sorted, each line ended by a newline; "" for none."""
    return "".join(f"{node}\n" for node in _nodes(exclusions, scope))


def slurm_line(exclusions: Iterable[Exclusion], scope: Scope = Scope.ANY) -> str:
    """Comma-separated nodes for Slurm's --exclude and a newline; an empty line for none."""
    return ",".join(_nodes(exclusions, scope)) + "\n"


def _nodes(exclusions: Iterable[Exclusion], scope: Scope) -> list[str]:
    wanted = (
        one.node_id
        for one in exclusions
        if scope is Scope.ANY or one.entity_kind is EntityKind.NODE
    )
    return sorted(set(wanted))


def _key(exclusion: Exclusion) -> tuple[str, str]:
    return exclusion.entity_kind.value, exclusion.entity


def _listed(
    decisions: Iterable[Decision], place_of: PlaceOf, joiner_of: JoinerOf = nobody
) -> tuple[Exclusion, ...]:
    leading: dict[tuple[str, str], Decision] = {}
    for decision in decisions:
        key = decision.entity.kind.value, decision.entity.key
        if key not in leading or _weight(decision) > _weight(leading[key]):
            leading[key] = decision
    return tuple(_exclusion(leading[key], place_of, joiner_of) for key in sorted(leading))


def _weight(decision: Decision) -> tuple[int, float, str]:
    return decision.rung, -decision.decided_at, decision.id


def _exclusion(decision: Decision, place_of: PlaceOf, joiner_of: JoinerOf) -> Exclusion:
    entity = decision.entity
    gpu = entity.key if entity.kind is EntityKind.GPU else None
    place = place_of(gpu) if gpu is not None else None
    return Exclusion(
        entity_kind=entity.kind,
        entity=entity.key,
        node_id=entity.node_id,
        gpu_uuid=gpu,
        pci_bus_id=place.pci_bus_id if place else None,
        gpu_index=place.index if place else None,
        rung=decision.rung,
        since=decision.decided_at,
        reason=decision.reasons[0] if decision.reasons else "",
        decision_id=decision.id,
        decided_by=decision.decided_by,
        expires_at=decision.expires_at,
        joiner=joiner_of(entity.node_id),
    )
