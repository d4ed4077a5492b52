"""/v1/events: stored events in order of arrival."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.core.pages import LARGEST_PAGE, LARGEST_ROW
from gpuwarden_server.ingest.repository import events_after
from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_wire.events import EventKind


class EventView(BaseModel, extra="allow"):
    """One stored event: its row and what the server knows, with the fields that the agent sent."""

    row: int
    id: str
    kind: str
    node_id: str
    entity_kind: str
    entity: str
    boot_id: str
    observed_at: float
    received_at: float
    flags: list[str]


class EventPage(BaseModel):
    """A page of events; pass `next_after` as `after` for the next, also when it is the last."""

    items: list[EventView]
    next_after: int


def events_router(sources: ReadSources) -> APIRouter:
    """Routes of events."""
    router = APIRouter(prefix="/v1", tags=["events"])

    @router.get("/events", summary="Stored events in order of arrival")
    def list_events(
        node: Annotated[str | None, Query(description="only from this node")] = None,
        kind: EventKind | None = None,
        entity: Annotated[str | None, Query(description="only about this entity")] = None,
        after: Annotated[int, Query(ge=0, le=LARGEST_ROW, description="rows above this one")] = 0,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> EventPage:
        with sources.state.read() as connection:
            found = events_after(connection, after, limit, node, kind=kind, entity=entity)
        last = found[-1].row if found else after
        return EventPage(items=[_view(stored) for stored in found], next_after=last)

    return router


def _view(stored: StoredEvent) -> EventView:
    sent: dict[str, Any] = msgspec.to_builtins(stored.event)
    known = {
        "row": stored.row,
        "node_id": stored.node_id,
        "entity_kind": stored.ref.kind.value,
        "entity": stored.ref.key,
        "boot_id": stored.boot_id,
        "received_at": stored.received_at,
        "flags": sorted(flag.value for flag in stored.flags),
    }
    return EventView(**{**sent, **known})
