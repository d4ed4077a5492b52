"""What people ordered, as the server tells it: pins, leaves, holds."""

from __future__ import annotations

import msgspec


class StayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a decision, why and until when (epoch seconds)."""

    by: str
    reason: str
    until: float


class PinRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A person's standing word: exclude or allow, or a planned leave."""

    id: str
    entity: str
    kind: str
    by: str
    reason: str
    leave: bool = False
    starts_at: float | None = None
    expires_at: float | None = None
    check: bool = False


class PlannedLeave(msgspec.Struct, frozen=True, kw_only=True):
    """A node that will be excluded at a time.

    Attributes:
        id: Its pin.
        node_id: The node.
        at: Epoch seconds from which it may not be used.
        until: Epoch seconds of its end, None where nobody has said.
        reason: In a person's words.
        by: Who planned it.
    """

    id: str
    node_id: str
    at: float
    until: float | None = None
    reason: str = ""
    by: str = ""
