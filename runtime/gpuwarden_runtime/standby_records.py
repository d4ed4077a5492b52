"""What the routes of spares answer, as typed values."""

from __future__ import annotations

import msgspec


class Spare(msgspec.Struct, frozen=True, kw_only=True):
    """A node that stands by, or works for one that left.

    Attributes:
        pool: Pool of the policy whose nodes it may replace.
        state: cold, warming, warm or leased.
        proof_at: Newest passed check, epoch seconds, None for never.
        lemon: Weight in the list of lemons, 0 where it is not in it.
        obstacles: Why it may not be taken; empty where it may.
    """

    node_id: str
    pool: str = ""
    state: str = ""
    added_at: float | None = None
    added_by: str = ""
    proven_at: float | None = None
    reason: str = ""
    rack: str = ""
    leaf: str = ""
    proof_at: float | None = None
    lemon: float = 0.0
    obstacles: tuple[str, ...] = ()


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A spare works, or worked, for a node that left.

    Attributes:
        epoch: Rises with each lease: a word about an older one is stale.
        joiner: The spare.
        leaver: The node that left.
        expires_at: Epoch seconds, None: until it is released.
        ended_at: Epoch seconds, None while it holds.
    """

    epoch: int
    joiner: str
    leaver: str
    pool: str = ""
    decision_id: str = ""
    reason: str = ""
    author: str = ""
    begun_at: float | None = None
    expires_at: float | None = None
    ended_at: float | None = None
    ended_by: str = ""
    ended_why: str = ""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A node without a replacement, and who would be taken for it.

    Attributes:
        waiting: Its exclusion is not in force.
        automatic: It is carried out by itself once the exclusion is in force.
        joiner: None where no spare may be taken; `why` says why.
    """

    leaver: str
    pool: str = ""
    decision_id: str = ""
    waiting: bool = False
    automatic: bool = False
    joiner: str | None = None
    why: str = ""


class Standby(msgspec.Struct, frozen=True, kw_only=True):
    """The book: its spares, the leases that hold, and nodes that nobody replaces yet."""

    spares: tuple[Spare, ...] = ()
    leases: tuple[Lease, ...] = ()
    proposals: tuple[Proposal, ...] = ()
