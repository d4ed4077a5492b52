"""The streams that people and programs follow: exclusions, incidents, entity states."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sqlalchemy import Connection

from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.decisions.hub import FeedHub
from gpuwarden_server.decisions.repository import read_feed_id
from gpuwarden_server.front import (
    EXCLUSION_STREAM,
    INCIDENT_STREAM,
    STATE_STREAM,
    RawHandler,
    RawRoute,
)
from gpuwarden_server.incidents.stream import IncidentRows
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.judging.repository import newest_state_move, state_moves_after
from gpuwarden_server.store.database import Database
from gpuwarden_server.streams.feature import FactStreams
from gpuwarden_server.streams.handler import StreamHandler
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_server.streams.tail import Row, RowSource

INCIDENTS, STATES = "incidents", "states"


class StateRows:
    """Moves of entity states; see `RowSource`."""

    event = "entity_state"

    def newest(self, connection: Connection) -> int:
        """Row of the newest move."""
        return newest_state_move(connection)

    def after(self, connection: Connection, row: int, limit: int) -> list[Row]:
        """Moves after a row."""
        found = state_moves_after(connection, row, limit)
        return [Row(form.pop("row"), form["node_id"], form) for form in found]


def make_streams(state: Database, meters: StreamMeters, stopping: asyncio.Event) -> FactStreams:
    """Streams of incidents and states; started after the judge, which makes the feed's id."""

    def feed_id() -> str:
        with state.read() as connection:
            return read_feed_id(connection)

    sources: dict[str, RowSource] = {INCIDENTS: IncidentRows(), STATES: StateRows()}
    return FactStreams(sources, state, meters, feed_id, stopping)


def stream_handlers(
    ring: KeyRing, exclusions: FeedHub, facts: FactStreams, placements: Placements
) -> Mapping[RawRoute, RawHandler]:
    """The raw handlers of all streams."""

    def pool_name(node_id: str) -> str:
        return placements.pool(node_id).name

    narrowed = {INCIDENT_STREAM: INCIDENTS, STATE_STREAM: STATES}
    handlers: dict[RawRoute, RawHandler] = {
        route: StreamHandler(route, facts.hubs[name], ring, pool_name)
        for route, name in narrowed.items()
    }
    # The exclusion set is one whole with one digest: nobody hears of half a change.
    handlers[EXCLUSION_STREAM] = StreamHandler(EXCLUSION_STREAM, exclusions.stream, ring)
    return handlers
