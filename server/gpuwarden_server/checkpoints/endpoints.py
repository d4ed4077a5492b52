"""/v1/checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.checkpoints.repository import read_saves
from gpuwarden_server.checkpoints.schemas import CheckpointsView, checkpoints_view
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.jobs.domain import possible_names
from gpuwarden_server.store.database import Database

LATEST_TIME = 4e9
MOST = 2000
USUAL_S = 28 * 86_400.0
_Time = Annotated[float | None, Query(ge=0, le=LATEST_TIME, description="epoch seconds")]


def checkpoints_router(state: Database, clock: Clock) -> APIRouter:
    """Routes of checkpoints."""
    router = APIRouter(prefix="/v1", tags=["why"])

    @router.get(
        "/checkpoints",
        summary="Checkpoints of jobs, the newest first, and their profile by job and mount",
    )
    def list_checkpoints(
        job: Annotated[
            str | None, Query(min_length=1, max_length=300, description="KIND:ID, or an id")
        ] = None,
        mount: Annotated[
            str | None, Query(min_length=1, max_length=4096, description="mount point")
        ] = None,
        begin: _Time = None,
        end: _Time = None,
        limit: Annotated[int, Query(ge=1, le=MOST)] = 500,
    ) -> CheckpointsView:
        end = clock.now() if end is None else end
        begin = end - USUAL_S if begin is None else begin
        jobs = None if job is None else tuple(possible_names(job))
        with state.read() as connection:
            saves = read_saves(connection, jobs, mount, begin, end, limit + 1)
        return checkpoints_view(saves, limit)

    return router
