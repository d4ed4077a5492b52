"""Spares and leases as values, and how the book changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class SpareState(StrEnum):
    """How far a spare is from taking work over; what is said by whoever warms it up."""

    COLD = "cold"  # nothing runs on it
    WARMING = "warming"
    WARM = "warm"  # the program is loaded and has rehearsed a step
    LEASED = "leased"  # it works for a node that left
    RETURNING = "returning"  # its lease has expired; nobody said yet that its work is over


_IDLE = frozenset({SpareState.COLD, SpareState.WARMING, SpareState.WARM})


@dataclass(frozen=True, slots=True)
class Spare:
    """A node that stands by.

    Attributes:
        node_id: The node.
        pool: Pool of the policy whose nodes it may replace.
        state: How far it is.
        added_at: Epoch seconds.
        added_by: Name of the key that added it.
        proven_at: When a person vouched for its health, epoch seconds, None for never.
        reason: In the words of who said it last.
    """

    node_id: str
    pool: str
    state: SpareState
    added_at: float
    added_by: str
    proven_at: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A spare works for a node that left.

    Attributes:
        epoch: Rises by one with each lease of the database, so that a late word about an older
            lease is known as such.
        joiner: The spare.
        leaver: The node that left.
        pool: The leaver's pool.
        decision_id: The exclusion that it was leased for.
        reason: Why this spare.
        author: "gpuwarden", or name of the key of a person.
        begun_at: Epoch seconds.
        expires_at: Epoch seconds, None: until it is released.
        ended_at: Epoch seconds, None while it holds.
        ended_by: Who ended it, "" while it holds.
        ended_why: Why, "" while it holds.
    """

    epoch: int
    joiner: str
    leaver: str
    pool: str
    decision_id: str
    reason: str
    author: str
    begun_at: float
    expires_at: float | None = None
    ended_at: float | None = None
    ended_by: str = ""
    ended_why: str = ""

    def ended(self, by: str, why: str, at: float) -> Lease:
        """The lease after its end."""
        return replace(self, ended_at=at, ended_by=by, ended_why=why)


@dataclass(frozen=True, slots=True)
class BookChange:
    """What changes of the book; of one spare or lease the last value counts.

    Attributes:
        spares: New, or as they are from now on.
        removed: Nodes that stand by no more.
        leases: Begun or ended.
        renames: Nodes that are called something else from now on, before all else: (old, new).
    """

    spares: tuple[Spare, ...] = ()
    removed: tuple[str, ...] = ()
    leases: tuple[Lease, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    def joined(self, other: BookChange) -> BookChange:
        """This and what comes after it."""
        return BookChange(
            (*self.spares, *other.spares),
            (*self.removed, *other.removed),
            (*self.leases, *other.leases),
            (*self.renames, *other.renames),
        )


NO_CHANGE = BookChange()


@dataclass(frozen=True, slots=True)
class Shelf:
    """The book at one moment; any thread may read it.

    Attributes:
        spares: By node.
        leases: Those that hold, by joiner.
        last_epoch: Of the newest lease ever, 0 before the first.
    """

    spares: Mapping[str, Spare] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    last_epoch: int = 0

    def lease_for(self, leaver: str) -> Lease | None:
        """Who works for a node that left."""
        return next((one for one in self.leases.values() if one.leaver == leaver), None)

    def joiner_of(self, leaver: str) -> str | None:
        """The spare that works for a node that left."""
        lease = self.lease_for(leaver) if self.leases else None
        return None if lease is None else lease.joiner

    def stands_by(self, node_id: str) -> bool:
        """Whether a node is a spare that does no work now."""
        spare = self.spares.get(node_id)
        return spare is not None and spare.state in _IDLE

    def after(self, change: BookChange) -> Shelf:
        """The book after a change."""
        if change == NO_CHANGE:
            return self
        if change.renames:
            named = self._renamed(*change.renames[0])
            return named.after(replace(change, renames=change.renames[1:]))
        spares = {**self.spares, **{spare.node_id: spare for spare in change.spares}}
        for node_id in change.removed:
            spares.pop(node_id, None)
        leases = dict(self.leases)
        for lease in change.leases:
            if lease.ended_at is None:
                leases[lease.joiner] = lease
            else:
                leases.pop(lease.joiner, None)
        epochs = (lease.epoch for lease in change.leases)
        return Shelf(spares, leases, max((self.last_epoch, *epochs)))

    def _renamed(self, old: str, new: str) -> Shelf:
        def name(node_id: str) -> str:
            return new if node_id == old else node_id

        spares = (replace(one, node_id=name(one.node_id)) for one in self.spares.values())
        leases = (
            replace(one, joiner=name(one.joiner), leaver=name(one.leaver))
            for one in self.leases.values()
        )
        return Shelf(
            {one.node_id: one for one in spares},
            {one.joiner: one for one in leases},
            self.last_epoch,
        )

    def sentence(self, node_id: str) -> str:
        """What the book says of a node, "" for nothing."""
        told: list[str] = []
        spare, own, other = (
            self.spares.get(node_id),
            self.leases.get(node_id),
            self.lease_for(node_id),
        )
        if own is not None:
            told.append(f"works for {own.leaver} (lease {own.epoch}: {own.reason})")
        elif spare is not None:
            told.append(f"stands by for pool {spare.pool}, {spare.state.value}")
        if other is not None:
            told.append(f"replaced by {other.joiner} (lease {other.epoch}: {other.reason})")
        return "; ".join(told)
