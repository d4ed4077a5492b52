"""/v1/inventory, and nodes that are known before they are heard of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.domain import audit_by
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.inventory.domain import Entry, Source
from gpuwarden_server.inventory.schemas import (
    ChangesView,
    InventoryBody,
    InventoryPage,
    NodeBody,
    PlacementView,
)
from gpuwarden_server.store.database import Database


@dataclass(frozen=True, slots=True)
class InventoryParts:
    """What the routes work with.

    Attributes:
        placements: The inventory.
        directory: Nodes and GPUs.
        state: state.db.
        clock: Time.
    """

    placements: Placements
    directory: FleetDirectory
    state: Database
    clock: Clock

    def view(self, node_id: str) -> PlacementView:
        """The JSON form of a node."""
        return PlacementView.at(
            self.placements.placement(node_id),
            self.placements.sources_of(node_id),
            known=self.directory.node(node_id) is not None,
        )

    def page(self, node: str | None, cursor: str | None, limit: int) -> InventoryPage:
        """Nodes that anybody names, by name."""
        after = decode_cursor(cursor)
        known = {one.node_id for one in self.directory.nodes()}
        names = [
            name
            for name in sorted(known.union(self.placements.named()))
            if (node is None or name == node) and (after is None or name > after.id)
        ]
        page = names[:limit]
        return InventoryPage(
            items=[self.view(name) for name in page],
            next_cursor=encode_cursor(Cursor(0.0, page[-1])) if len(names) > limit else None,
        )

    async def add(self, body: NodeBody, caller: Principal) -> None:
        """Make a node known, with the audit of it."""
        now, entry = self.clock.now(), body.entry()
        draft = self.directory.draft(body.node_id, now)
        made = replace(
            audit_by(caller, now, "add_node", f"node:{body.node_id}"),
            reason=body.reason,
            after=entry.form(),
        )

        def write(connection: Connection) -> None:
            draft.save(connection)
            record_audit(connection, made)

        await asyncio.wrap_future(self.state.writer.submit(write))
        draft.adopt()
        put = self.placements.put
        await asyncio.to_thread(put, self.state, Source.FILE, [entry], caller, now, whole=False)


def inventory_router(parts: InventoryParts) -> APIRouter:
    """Routes of the inventory."""
    router = APIRouter(prefix="/v1", tags=["inventory"])

    @router.get("/inventory", summary="What files, schedulers and agents say of nodes, by name")
    def read_inventory(
        node: Annotated[str | None, Query(description="only this node")] = None,
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> InventoryPage:
        return parts.page(node, cursor, limit)

    @router.put("/inventory", summary="Replace what one source says; tells what changes")
    def put_inventory(
        body: InventoryBody,
        caller: Caller,
        source: Source = Source.FILE,
        dry_run: Annotated[bool, Query(description="only tell what would change")] = False,
    ) -> ChangesView:
        entries = [one.entry() for one in body.nodes]
        _require_once(entries)
        now, put = parts.clock.now(), parts.placements.put
        changes = put(parts.state, source, entries, caller, now, whole=True, dry_run=dry_run)
        return ChangesView.of(source, changes, dry_run=dry_run)

    @router.post("/nodes", status_code=201, summary="Make a node known before it was heard of")
    async def add_node(body: NodeBody, caller: Caller) -> PlacementView:
        if parts.directory.node(body.node_id) is not None:
            raise ProblemError(
                409,
                "node_known",
                f"node {body.node_id!r} is known already",
                "Change where it stands with PUT /v1/inventory.",
            )
        await parts.add(body, caller)
        return parts.view(body.node_id)

    return router


def _require_once(entries: Iterable[Entry]) -> None:
    counts = Counter(entry.node_id for entry in entries)
    if twice := [node_id for node_id, count in counts.items() if count > 1]:
        raise ProblemError(
            422,
            "invalid_value",
            f"body.nodes: {twice[0]!r} comes {counts[twice[0]]} times",
            "Name each node once.",
        )
