"""/v1/notifications: endpoints, their messages and attempts, tests and replays."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.pages import LARGEST_PAGE, LARGEST_ROW
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_server.notifications.desk import NotifyDesk
from gpuwarden_server.notifications.domain import MessagePhase
from gpuwarden_server.notifications.feature import Notifications
from gpuwarden_server.notifications.schemas import (
    DeliveryPage,
    DeliveryView,
    EndpointListView,
    EndpointView,
    MessagePage,
    MessageView,
    ReplayBody,
    ReplayView,
    TestView,
)
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_server.store.database import Database

_After = Annotated[int, Query(ge=0, le=LARGEST_ROW, description="rows above this one")]
_Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
_Name = Annotated[str | None, Query(description="only of this endpoint")]


def notifications_router(told: Notifications, state: Database, clock: Clock) -> APIRouter:
    """Routes of endpoints and what they were told."""
    router = APIRouter(prefix="/v1/notifications", tags=["notifications"])
    desk = NotifyDesk(told, state, clock)

    @router.get("/endpoints", summary="Who is told, and how that goes; never where or with what")
    def list_endpoints() -> EndpointListView:
        return EndpointListView(items=desk.endpoints())

    @router.post("/endpoints/{name}/test", summary="Send a test now, and say how it went")
    def test_endpoint(name: str, caller: Caller) -> TestView:
        return TestView(items=desk.test(name, caller))

    @router.post("/endpoints/{name}/enable", summary="Send again to an endpoint that was disabled")
    def enable_endpoint(name: str, body: ReasonBody, caller: Caller) -> EndpointView:
        return desk.enable(name, body.reason, caller)

    @router.post("/endpoints/{name}/replay", summary="Tell anew what was given up")
    def replay(name: str, body: ReplayBody, caller: Caller) -> ReplayView:
        return ReplayView(replayed=desk.replay(name, body, caller))

    @router.get("/messages", summary="Messages in order; phase given_up are those to replay")
    def list_messages(
        endpoint: _Name = None,
        phase: MessagePhase | None = None,
        after: _After = 0,
        limit: _Limit = 100,
    ) -> MessagePage:
        names = desk.lane_names(endpoint)
        with state.read() as connection:
            found = queue.read_messages(connection, names, phase, after, limit)
        last = int(found[-1]["row"]) if found else after
        return MessagePage(items=[MessageView(**row) for row in found], next_after=last)

    @router.get("/deliveries", summary="The delivery log: every attempt, in order")
    def list_deliveries(
        endpoint: _Name = None,
        message_id: Annotated[str | None, Query(description="only of this message")] = None,
        after: _After = 0,
        limit: _Limit = 100,
    ) -> DeliveryPage:
        names = desk.lane_names(endpoint)
        with state.read() as connection:
            found = queue.read_deliveries(connection, names, message_id, after, limit)
        last = int(found[-1]["row"]) if found else after
        return DeliveryPage(items=[DeliveryView(**row) for row in found], next_after=last)

    return router
