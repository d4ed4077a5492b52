"""A batch of events on its arrival: each is resolved, flagged and kept once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

from gpuwarden_verdict.engine.clocks import (
    clock_after,
    tells_no_time,
    told_boot,
    was_turned_back,
)
from gpuwarden_verdict.engine.events import EventFlag, StoredEvent
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.batches import Batch
from gpuwarden_wire.events import Backlog, Event, EventKind
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class EventsToStore:
    """A batch of events and what is known about it.

    Attributes:
        batch: The batch.
        received_at: Server's epoch seconds.
        latest: Times after this are in the future.
        is_history: From a superseded spool.
        knows_boot: Its boot was announced before.
        clock_high: Latest time that its spool's clock has shown, epoch seconds; 0 unknown.
    """

    batch: Batch
    received_at: float
    latest: float
    is_history: bool
    knows_boot: bool
    clock_high: float = 0.0


class EventDraft(Protocol):
    """One node's records while a batch of its events is worked on."""

    def resolve(self, event: Event) -> EntityRef | None:
        """The entity that an event speaks about; None for a GPU that this node does not have."""
        ...

    def note_event(self, event: Event, boot_id: str) -> None:
        """Take an inventory or a boot over."""
        ...


Keep = Callable[[Event, EntityRef, frozenset[EventFlag]], StoredEvent | None]
"""Keeps an event; None where the node's natural id is kept already."""


def keep_events(work: EventsToStore, draft: EventDraft, keep: Keep) -> list[StoredEvent]:
    """Keep the events that are new, in order, and let inventories and boots change the draft.

    A later event of the same batch is resolved by the inventory before it.

    Returns:
        The events that were kept; duplicates are left out.
    """
    common = _flags_of_batch(work)
    kept: list[StoredEvent] = []
    clock_high = work.clock_high
    for event in work.batch.events:
        ref, flags = _place(event, work, draft, common)
        if was_turned_back(clock_high, work.batch):
            flags |= {EventFlag.CLOCK_BACK}
        clock_high = clock_after(clock_high, work.batch, event, work.received_at)
        found = keep(event, ref, flags)
        if found is None:
            continue
        if not work.is_history:
            draft.note_event(event, work.batch.boot_id)
        kept.append(found)
    return kept


def _place(
    event: Event, work: EventsToStore, draft: EventDraft, common: frozenset[EventFlag]
) -> tuple[EntityRef, frozenset[EventFlag]]:
    flags = set(common)
    match event.backlog:
        case Backlog.OLDER_BOOT:
            flags.add(EventFlag.OLDER_BOOT)
        case Backlog.FIRST_LOOK:
            flags.add(EventFlag.FIRST_LOOK)
        case Backlog.NONE:
            pass
        case _:
            assert_never(event.backlog)
    if max(event.observed_at, told_boot(event) or 0.0) > work.latest:
        flags.add(EventFlag.FUTURE)
    if tells_no_time(event):
        flags.add(EventFlag.NO_TIME)
    ref = draft.resolve(event)
    if ref is None:
        flags.add(EventFlag.UNRESOLVED)
        ref = EntityRef(EntityKind.NODE, work.batch.node_id, work.batch.node_id)
    return ref, frozenset(flags)


def _flags_of_batch(work: EventsToStore) -> frozenset[EventFlag]:
    batch = work.batch
    announced = any(event.kind is EventKind.NODE_BOOT for event in batch.events)
    found = {
        EventFlag.HISTORY: work.is_history,
        EventFlag.FUTURE: batch.sent_at > work.latest,
        EventFlag.UNKNOWN_BOOT: not (work.knows_boot or announced),
        EventFlag.MORE_EVENTS: batch.more_events,
        EventFlag.LATE: batch.late,
    }
    return frozenset(flag for flag, holds in found.items() if holds)
