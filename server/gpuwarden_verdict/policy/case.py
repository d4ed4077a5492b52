"""What a decision rests on: values, made by the caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gpuwarden_verdict.entities import Contact, EntityRef, EntityState, Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import Acquittal, Incident
from gpuwarden_verdict.policy.document import (
    Cap,
    Decision,
    DecisionMove,
    Pin,
    PolicyDocument,
)
from gpuwarden_verdict.policy.parse import pool_of
from gpuwarden_verdict.signals import Risk
from gpuwarden_wire.metrics import EntityKind

SILENT_SHARE = 0.5
"""More silent nodes in a pool than this share: the trouble is ours, nothing new is excluded."""

BY_PIN = "pin"
BY_RULE = "rule"
BY_SCORE = "score"


class Hold(StrEnum):
    """What waits because a node says that more of its events follow."""

    NONE = "none"
    CORROBORATED = "corroborated"  # all but what the catalogue lets decide alone
    ALL = "all"  # old events are told: what ended their faults may be among those that follow


class Breaker(StrEnum):
    """OPEN stops new exclusions; returns always pass."""

    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """What is out in a pool.

    Attributes:
        gpu_nodes: Nodes of the pool that have GPUs.
        excluded_nodes: Nodes of the pool with any exclusion in force (pins left out).
        breaker: See Breaker.
    """

    gpu_nodes: int
    excluded_nodes: frozenset[str] = frozenset()
    breaker: Breaker = Breaker.CLOSED


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


def decision_target(ref: EntityRef) -> EntityRef:
    """What a decision about a fault of `ref` acts on: a GPU itself, else its node.

    A place stands for itself, and nothing is ever decided about it.
    """
    if ref.kind in (EntityKind.GPU, EntityKind.PLACE):
        return ref
    return EntityRef(EntityKind.NODE, ref.node_id, ref.node_id)


def cap_nodes(cap: Cap, gpu_nodes: int) -> int:
    """How many nodes may be out at once: both limits hold.

    The percentage is rounded down, but allows one node where it is above 0 (else a small pool could
    never be helped); max_nodes = 0 or max_percent = 0 allow none.
    """
    by_percent = math.floor(gpu_nodes * cap.max_percent / 100.0 + 1e-9)
    if cap.max_percent > 0:
        by_percent = max(1, by_percent)
    return min(cap.max_nodes, by_percent)


def guard_of(cap: Cap, load: PoolLoad, node_id: str) -> str:
    """Which guard forbids one more exclusion on `node_id`, "" for none.

    A node that is out already costs nothing more.
    """
    if load.breaker is Breaker.OPEN:
        return "breaker"
    if node_id in load.excluded_nodes:
        return ""
    out = len(load.excluded_nodes)
    if out >= cap.max_nodes:
        return "cap_nodes"
    return "cap_percent" if out >= cap_nodes(cap, load.gpu_nodes) else ""


def load_after(
    load: PoolLoad, live_decisions: Iterable[Decision], moves: Sequence[DecisionMove]
) -> PoolLoad:
    """The load after `moves`.

    Args:
        load: Before them.
        live_decisions: The pool's decisions in force before them (of the nodes moved, at least).
        moves: What `decide`, `approve` or `revoke` gave.
    """
    moved = {move.decision.id: move.decision for move in moves}
    nodes = {decision.entity.node_id for decision in moved.values()}
    after = {d.id: d for d in live_decisions if d.entity.node_id in nodes} | moved
    out = {d.entity.node_id for d in after.values() if _counts(d)}
    return replace(load, excluded_nodes=(load.excluded_nodes - nodes) | out)


def pool_loads(
    document: PolicyDocument,
    decisions: Iterable[Decision],
    gpu_nodes: Iterable[str],
    silent_nodes: frozenset[str],
    pool_name: Callable[[str], str] | None = None,
) -> Mapping[str, PoolLoad]:
    """Load by pool name.

    Args:
        document: Policy.
        decisions: All decisions in force (others are left out).
        gpu_nodes: Nodes that have GPUs and belong to the fleet; others never count, excluded or
            silent.
        silent_nodes: Nodes not heard of; many of them open the breaker.
        pool_name: Pool of a node, where labels count; None: by its name alone.
    """
    name_of = pool_name or (lambda node: pool_of(document, node).name)
    members: dict[str, set[str]] = {pool.name: set() for pool in document.pools}
    for node in gpu_nodes:
        members[name_of(node)].add(node)
    out = {decision.entity.node_id for decision in decisions if _counts(decision)}
    return {
        name: PoolLoad(len(nodes), frozenset(out & nodes), _breaker(nodes, silent_nodes))
        for name, nodes in members.items()
    }


def _breaker(nodes: set[str], silent_nodes: frozenset[str]) -> Breaker:
    silent = len(nodes & silent_nodes)
    tripped = len(nodes) > 1 and silent > SILENT_SHARE * len(nodes)
    return Breaker.OPEN if tripped else Breaker.CLOSED


def _counts(decision: Decision) -> bool:
    return covers(decision) and decision.decided_by != BY_PIN and decision.rung >= Rung.EXCLUDE
