"""What the routes of spares need from the layers above; the judge plugs it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gpuwarden_server.access.principals import Principal
from gpuwarden_verdict.standby import Lease, Look, Obstacle, Shelf, Spare, SpareState


@dataclass(frozen=True, slots=True)
class SeenSpare:
    """A spare, and why it may not be taken; empty where it may."""

    look: Look
    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A node without a replacement, and who would be taken for it.

    Attributes:
        leaver: The node.
        pool: Its pool.
        decision_id: What excludes it, or would.
        waiting: It is not in force: a guard, an approval, or observe mode stands before it.
        automatic: It is carried out by itself once the exclusion comes into force.
        joiner: The spare, None where none may be taken.
        why: Why this one, or why none, in words.
    """

    leaver: str
    pool: str
    decision_id: str
    waiting: bool
    automatic: bool
    joiner: str | None
    why: str


class Keeps(StrEnum):
    """Who goes on in service when a lease ends."""

    LEAVER = "leaver"  # it returns, and the joiner stands by again
    JOINER = "joiner"  # it stays for good, and the leaver stands by from now on


class StandbySource(Protocol):
    """Knows the book and how its spares do; any thread may ask."""

    def shelf(self) -> Shelf:
        """The book; no I/O."""
        ...

    def seen(self) -> Sequence[SeenSpare]:
        """Every spare, by name."""
        ...

    def proposals(self, seen: Sequence[SeenSpare]) -> Sequence[Proposal]:
        """Nodes that are out, or should be, without a replacement."""
        ...

    def members(self) -> Mapping[str, list[str]]:
        """Nodes with GPUs of each pool, spares that stand by left out."""
        ...


@dataclass(frozen=True, slots=True)
class AddOrder:
    """A node is to stand by.

    Attributes:
        node_id: The node.
        pool: Pool that it may replace nodes of, None for its own.
        state: How far it is.
        proven: The caller vouches for its health.
        reason: Why.
    """

    node_id: str
    pool: str | None
    state: SpareState
    proven: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PromoteOrder:
    """A spare is to work for a node.

    Attributes:
        leaver: The node.
        joiner: The spare, None for the best.
        lease_s: How long, None as the policy says, 0 until it is released.
        reason: Why.
    """

    leaver: str
    joiner: str | None
    lease_s: float | None
    reason: str


class StandbyDesk(Protocol):
    """Takes people's words about spares; each returns after its commit, and may be repeated."""

    def add(self, order: AddOrder, caller: Principal) -> Spare:
        """Let a node stand by, or say how far a spare is.

        Raises:
            ProblemError: 409 where it is leased; 404 for a pool that the policy has not.
        """
        ...

    def remove(self, node_id: str, reason: str, caller: Principal) -> Spare:
        """Let a node stand by no more.

        Raises:
            ProblemError: 404; 409 where it is leased.
        """
        ...

    def promote(self, order: PromoteOrder, caller: Principal) -> Lease:
        """Exclude a node where advice waits, and lease a spare for it, in one transaction.

        Raises:
            ProblemError: 404; 409 where nothing excludes it, or no spare may be taken.
        """
        ...

    def release(self, node_id: str, keep: Keeps, reason: str, caller: Principal) -> Lease:
        """End the lease of a spare.

        Raises:
            ProblemError: 404; 409 where it is not leased.
        """
        ...
