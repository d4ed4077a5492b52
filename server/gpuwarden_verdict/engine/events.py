"""What the front door hands down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.events import Event


class EventFlag(StrEnum):
    """What is unusual about a stored event. The event is kept and judged accordingly."""

    OLDER_BOOT = "older_boot"  # the agent says that it happened before the present boot: history
    FIRST_LOOK = "first_look"  # stood in a log before the agent first looked: advises, never acts
    HISTORY = "history"  # from a superseded spool: opens and closes as history, never acts
    FUTURE = "future"  # observed_at, or the batch's sent_at, is ahead of the server's clock
    CLOCK_BACK = "clock_back"  # the agent's clock was turned back: its times order nothing
    NO_TIME = "no_time"  # says that the node booted at what is no time: left out
    UNKNOWN_BOOT = "unknown_boot"  # the batch's boot was never announced
    MORE_EVENTS = "more_events"  # further batches wait behind: hold the node's decisions
    LATE = "late"  # waited in the spool: what ended it may be among those batches
    UNRESOLVED = "unresolved"  # names a GPU that the node is not known to have: kept on the node


HISTORY_FLAGS = frozenset({EventFlag.OLDER_BOOT, EventFlag.HISTORY})
"""What is flagged so is on record and speaks neither for nor against anything now."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event that is durable.

    Attributes:
        row: Order of arrival over the fleet; rises, never reused.
        event: As the agent sent it.
        ref: Entity it speaks about, after the join of pci_bus_id to the GPU; the node itself where
            flagged UNRESOLVED.
        node_id: Node that sent it.
        boot_id: Boot that its batch was sealed in.
        received_at: Server's UTC, epoch seconds.
        flags: What is unusual about it.
    """

    row: int
    event: Event
    ref: EntityRef
    node_id: str
    boot_id: str
    received_at: float
    flags: frozenset[EventFlag] = frozenset()
