"""What the engine asks of its surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.policy.document import PolicyDocument, PoolPolicy
from gpuwarden_verdict.windows import Columns, FleetSnapshot
from gpuwarden_wire.events import Event


class Time(Protocol):
    """Where time is read."""

    def now(self) -> float:
        """UTC, epoch seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards; for silence."""
        ...


class Presences(Protocol):
    """Who was heard of."""

    def presence(self, node_id: str) -> Presence | None:
        """When the node was last heard of; None where it never was since the start."""
        ...


class Placing(Protocol):
    """The rules, and which pool has a node."""

    @property
    def policy(self) -> PolicyDocument:
        """The rules."""
        ...

    @property
    def version(self) -> int:
        """Rises when nodes are elsewhere than before."""
        ...

    def pool(self, node_id: str) -> PoolPolicy:
        """The policy's pool of a node."""
        ...

    def words(self, node_id: str) -> Mapping[str, str]:
        """Labels of a node, by which a policy may name it."""
        ...


class Counting(Protocol):
    """Where events are counted, beside the readings."""

    def note_event(self, ref: EntityRef, group: EventGroup, at: float, count: int) -> None:
        """Count events of a group on an entity at `at` (epoch seconds)."""
        ...

    def note_repair(self, ref: EntityRef) -> None:
        """A check passed after a repair: what was counted before it is no evidence after it."""
        ...


class Windows(Protocol):
    """What a sweep reads."""

    def snapshot(self, columns: Columns) -> FleetSnapshot:
        """The fleet as it is now; `columns` are those that the last sweep read."""
        ...


class Troubles(Protocol):
    """Is told events of agents' own trouble."""

    def note(self, node_id: str, event: Event) -> None:
        """Take an event over; most are of no concern."""
        ...
