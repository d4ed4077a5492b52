"""What people ordered, as the server tells it: pins, leaves, holds."""

from __future__ import annotations

from collections.abc import Sequence

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


def read_plans(raw: msgspec.Raw) -> tuple[tuple[PlannedLeave, ...], str]:
    """Planned leaves of a message, and why some are left out, "" where none is.

    An entry that cannot be read costs that entry: the exclusions beside it hold all the same.
    """
    try:
        items = msgspec.json.decode(raw, type=tuple[msgspec.Raw, ...])
    except msgspec.DecodeError as error:
        return (), str(error)
    found, trouble = list[PlannedLeave](), ""
    for item in items:
        try:
            found.append(msgspec.json.decode(item, type=PlannedLeave))
        except msgspec.DecodeError as error:
            trouble = str(error)
    return tuple(found), trouble


def write_plans(leaves: Sequence[PlannedLeave]) -> msgspec.Raw:
    """Planned leaves as they stand in a message."""
    return msgspec.Raw(msgspec.json.encode(leaves))
