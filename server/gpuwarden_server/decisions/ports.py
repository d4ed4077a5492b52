"""What the decision routes need from the layers above; the judge and the app plug them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from gpuwarden_server.decisions.feed import FeedHead
from gpuwarden_verdict.entities import EntityRef, EntityState, FaultClass, Rung
from gpuwarden_verdict.exclusions import Exclusion, PlannedLeave
from gpuwarden_verdict.policy.document import Decision, Pin
from gpuwarden_verdict.policy.words import approvable


@dataclass(frozen=True, slots=True)
class PublishedFeed:
    """The feed as everybody reads it: one immutable value, replaced whole.

    Attributes:
        head: Where it stands.
        exclusions: In force.
        would_exclude: What observe mode, unapproved advice and guards keep from being excluded.
        planned: Leaves that will become exclusions.
    """

    head: FeedHead
    exclusions: tuple[Exclusion, ...]
    would_exclude: tuple[Exclusion, ...]
    planned: tuple[PlannedLeave, ...] = ()


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks for a write, and why, as it goes into the audit.

    Attributes:
        name: Of the key, or of who was sent a link.
        key_id: The key, None for none.
        reason: In their words.
        role: Of the key, "" where it does not matter.
    """

    name: str
    key_id: str | None
    reason: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """What somebody saw of a decision when they approved it; None where it is not said.

    Attributes:
        rung: That the approval puts in force.
        fault_class: Why.
        guard: That held it back, "" for none.
    """

    rung: Rung
    fault_class: FaultClass | None = None
    guard: str | None = None

    def differs(self, decision: Decision) -> bool:
        """Whether the decision asks for something else by now."""
        now = shown_of(decision)
        return (
            self.rung is not now.rung
            or self.fault_class not in (None, now.fault_class)
            or self.guard not in (None, now.guard)
        )


def shown_of(decision: Decision) -> Shown:
    """What a decision asks for now."""
    return Shown(approvable(decision) or decision.rung, decision.fault_class, decision.guard)


class FeedSource(Protocol):
    """Knows the feed."""

    def published(self) -> PublishedFeed:
        """The feed as it is now; no I/O."""
        ...


class Windows(Protocol):
    """Maintenance windows that go with planned leaves."""

    def begin(self, connection: Connection, pin: Pin, now: float) -> None:
        """Write the window of a leave, in a transaction."""
        ...

    def end(self, connection: Connection, window_id: str, at: float, by: str) -> None:
        """End a window, in a transaction; "" and what has ended are let be."""
        ...

    def forget(self) -> None:
        """Windows changed: look at them anew."""
        ...


class PinBoard(Protocol):
    """Knows the pins."""

    def pins(self) -> list[Pin]:
        """Those that hold or will, the newest first; no I/O."""
        ...


class PinDesk(Protocol):
    """Takes people's pins; each returns after its commit."""

    def set_pins(
        self, made: Sequence[Pin], author: Author, *, checks_by_policy: bool = False
    ) -> list[Pin]:
        """Set pins; each takes the place of what its entity had of its sort.

        Args:
            made: In order.
            author: Who sets them; where the policy names approvers, one of them or an admin.
            checks_by_policy: Whether the policy says if what leaves returns over a check.

        Raises:
            ProblemError: 403: not an approver; 409: a node is retired.
        """
        ...

    def end_pin(self, pin_id: str, author: Author) -> Pin:
        """End one; one that asks for a check stays until it was passed.

        Raises:
            ProblemError: 409 where it has ended.
        """
        ...


class DecisionDesk(Protocol):
    """Takes people's decisions; each returns after its commit."""

    def revoke(self, decision_id: str, author: Author) -> Decision:
        """End a decision and acquit what it stood on.

        Raises:
            ProblemError: 404 or 409.
        """
        ...

    def approve(self, decision_id: str, author: Author, shown: Shown | None = None) -> Decision:
        """Bring waiting advice into force.

        Raises:
            ProblemError: 403 where the policy names others who may; 404; 409 where it does not
                wait, is only observed, or asks for something else than was shown.
        """
        ...

    def hold(self, decision_id: str, until: float, author: Author) -> Decision:
        """Let a decision neither come into force nor rise before a time, epoch seconds.

        Raises:
            ProblemError: 409 where it has ended, or is a pin's.
        """
        ...

    def let_go(self, decision_id: str, author: Author) -> Decision:
        """End a hold.

        Raises:
            ProblemError: 409 where nobody holds it.
        """
        ...

    def begin_repair(self, target: EntityRef, author: Author) -> EntityState:
        """Move an excluded entity into repair; a node takes its excluded GPUs along.

        Raises:
            ProblemError: 409 where nothing is excluded.
        """
        ...

    def retire_node(self, node_id: str, author: Author) -> EntityState:
        """Take a silent node out of the fleet: what stands against it and its GPUs ends.

        Raises:
            ProblemError: 409 where it is heard of, or retired already.
        """
        ...
