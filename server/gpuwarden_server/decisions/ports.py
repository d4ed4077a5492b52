"""What the decision routes need from the layers above; the judge and the app plug them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpuwarden_server.decisions.feed import FeedHead
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_verdict.policy.document import Decision


@dataclass(frozen=True, slots=True)
class PublishedFeed:
    """The feed as everybody reads it: one immutable value, replaced whole.

    Attributes:
        head: Where it stands.
        exclusions: In force.
        would_exclude: What observe mode, unapproved advice and guards keep from being excluded.
    """

    head: FeedHead
    exclusions: tuple[Exclusion, ...]
    would_exclude: tuple[Exclusion, ...]


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


class FeedSource(Protocol):
    """Knows the feed."""

    def published(self) -> PublishedFeed:
        """The feed as it is now; no I/O."""
        ...


class DecisionDesk(Protocol):
    """Takes people's decisions; each returns after its commit."""

    def revoke(self, decision_id: str, author: Author) -> Decision:
        """End a decision and acquit what it stood on.

        Raises:
            ProblemError: 404 or 409.
        """
        ...

    def approve(self, decision_id: str, author: Author) -> Decision:
        """Bring waiting advice into force.

        Raises:
            ProblemError: 403 where the policy names others who may; 404; 409 where it does not
                wait, or is only observed.
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
