"""From incidents to decisions, within the user's limits. Pure: values in, moves out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.incidents.domain import Acquittal, Incident
from gpuwarden_verdict.policy.document import (
    Decision,
    DecisionMove,
    Pin,
    PolicyDocument,
    PoolPolicy,
)
from gpuwarden_verdict.signals import Risk


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
        storms: Incident ids that are an application's storm (`find_storms`).
        more_events: The node says that more events wait: nothing new is decided.
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
    more_events: bool = False


def decision_target(ref: EntityRef) -> EntityRef:
    """What a decision about a fault of `ref` acts on: a GPU itself, else its node."""
    raise NotImplementedError


def decide(
    case: EntityCase,
    pool: PoolPolicy,
    policy_version: str,
    load: PoolLoad,
    now: float,
    new_id: Callable[[], str],
) -> list[DecisionMove]:
    """Moves of one entity's decisions. After each call fold the moves into the load with `load_after`."""
    raise NotImplementedError


def load_after(
    load: PoolLoad, live_decisions: Iterable[Decision], moves: Sequence[DecisionMove]
) -> PoolLoad:
    """The load after `moves`; `live_decisions` are the pool's decisions in force before them."""
    raise NotImplementedError


def pool_loads(
    document: PolicyDocument,
    decisions: Iterable[Decision],
    gpu_nodes: Iterable[str],
    silent_nodes: frozenset[str],
) -> Mapping[str, PoolLoad]:
    """Load by pool name from the decisions in force and the nodes that have GPUs."""
    raise NotImplementedError


def approve(decision: Decision, by: str, reason: str, now: float) -> DecisionMove:
    """A person approves advice (or takes a held-back decision over): it comes into force."""
    raise NotImplementedError


def revoke(decision: Decision, by: str, reason: str, now: float) -> DecisionMove:
    """A person revokes; acquit its incident in the same transaction."""
    raise NotImplementedError
