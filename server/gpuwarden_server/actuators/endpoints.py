"""/v1/actuators and /v1/actuations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.actuators.feature import Actuators
from gpuwarden_server.actuators.remedy_desk import RemedyDesk
from gpuwarden_server.actuators.repository import read_page
from gpuwarden_server.actuators.schemas import (
    ActuationPage,
    ActuationView,
    ActuatorList,
    ActuatorView,
    RemedyBody,
)
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.decisions.ports import Author
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.actuation import Act


def actuators_router(actuators: Actuators, state: Database, remedies: RemedyDesk) -> APIRouter:
    """Routes of what is done outside."""
    router = APIRouter(prefix="/v1", tags=["actuators"])

    @router.get("/actuators", summary="Consumers of exclusions, and how nodes stand there")
    def read_actuators(
        node: Annotated[str | None, Query(description="only this node")] = None,
    ) -> ActuatorList:
        return ActuatorList(items=[ActuatorView.of(one, node) for one in actuators.workers])

    @router.get("/actuations", summary="What was done at consumers, newest first")
    def read_actuations(
        actuator: Annotated[str | None, Query(description="only of this actuator")] = None,
        node: Annotated[str | None, Query(description="only of this node")] = None,
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> ActuationPage:
        after = decode_cursor(cursor)
        with state.read() as connection:
            found = read_page(connection, after, limit + 1, actuator, node)
        page = found[:limit]
        last = Cursor(page[-1].begun_at, str(page[-1].row)) if len(found) > limit else None
        return ActuationPage(
            items=[ActuationView.of(one) for one in page],
            next_cursor=encode_cursor(last) if last else None,
        )

    @router.post(
        "/nodes/{node_id}/remedies",
        status_code=201,
        summary="Ask for a reset, reboot or replacement of a node that is out; it goes into repair",
    )
    def ask_remedy(node_id: str, body: RemedyBody, caller: Caller) -> ActuationView:
        author = Author(caller.name, caller.key_id, body.reason, caller.role.value)
        return ActuationView.of(remedies.ask(node_id, Act(body.act), body.actuator, author))

    return router
