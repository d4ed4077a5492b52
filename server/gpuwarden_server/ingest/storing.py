"""One transaction of events: each resolved, flagged and stored once."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwarden_server.ingest.ports import NodeDraft
from gpuwarden_server.ingest.repository import Arrived, insert_event
from gpuwarden_verdict.engine.arrivals import EventsToStore, keep_events
from gpuwarden_verdict.engine.events import EventFlag, StoredEvent
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.events import Event


def store_events(
    connection: Connection, work: EventsToStore, draft: NodeDraft
) -> list[StoredEvent]:
    """Store the events that are new, and let inventories and boots change the draft.

    Returns:
        The events that were stored; duplicates are left out.
    """

    def keep(event: Event, ref: EntityRef, flags: frozenset[EventFlag]) -> StoredEvent | None:
        arrived = Arrived(event, ref, work.batch, work.received_at, flags)
        return insert_event(connection, arrived)

    return keep_events(work, draft, keep)
