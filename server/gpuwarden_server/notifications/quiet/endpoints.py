"""/v1/silences: silences and maintenance windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.pages import LARGEST_PAGE
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_server.notifications.quiet.desk import SilenceDesk
from gpuwarden_server.notifications.schemas import SilenceBody, SilenceListView, SilenceView
from gpuwarden_server.store.database import Database


def silences_router(state: Database, clock: Clock, changed: Callable[[], None]) -> APIRouter:
    """Routes of silences.

    Args:
        state: state.db.
        clock: Time.
        changed: Called after each change: what is told may differ.
    """
    router = APIRouter(prefix="/v1/silences", tags=["notifications"])
    desk = SilenceDesk(state, clock, changed)

    @router.get("", summary="Silences and maintenance windows, those that end last first")
    def list_silences(
        active: Annotated[bool, Query(description="only those that hold or will")] = False,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> SilenceListView:
        return SilenceListView(items=desk.listed(limit, active=active))

    @router.post("", status_code=201, summary="Tell nobody what matches, for a while")
    def create_silence(body: SilenceBody, caller: Caller) -> SilenceView:
        return desk.create(body, caller)

    @router.post("/{silence_id}/expire", summary="End a silence now")
    def expire_silence(silence_id: str, body: ReasonBody, caller: Caller) -> SilenceView:
        return desk.expire(silence_id, body.reason, caller)

    return router
