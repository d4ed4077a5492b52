"""/v1/standby: the book of spares."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.pages import LARGEST_PAGE
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_server.standby.ports import StandbyDesk, StandbySource
from gpuwarden_server.standby.repository import read_leases
from gpuwarden_server.standby.schemas import (
    AddBody,
    LeasePage,
    LeaseView,
    PromoteBody,
    ProposalView,
    ReleaseBody,
    SeenSpareView,
    SpareView,
    StandbyView,
)
from gpuwarden_server.store.database import Database


def standby_router(
    source: StandbySource, desk: StandbyDesk, directory: FleetDirectory, state: Database
) -> APIRouter:
    """Routes of spares."""
    router = APIRouter(prefix="/v1/standby", tags=["standby"])

    @router.get("", summary="Spares, leases that hold, and nodes that nobody replaces yet")
    def read_standby() -> StandbyView:
        seen = source.seen()
        leases = sorted(source.shelf().leases.values(), key=lambda lease: lease.epoch)
        return StandbyView(
            spares=[SeenSpareView.seen(one) for one in seen],
            leases=[LeaseView.of(one) for one in leases],
            proposals=[ProposalView.of(one) for one in source.proposals(seen)],
        )

    @router.get("/leases", summary="Leases, newest first, those that ended too")
    def list_leases(
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> LeasePage:
        with state.read() as connection:
            return LeasePage(items=[LeaseView.of(one) for one in read_leases(connection, limit)])

    @router.post("", summary="Let a node stand by, or say how far a spare is")
    def add_spare(body: AddBody, caller: Caller) -> SpareView:
        _require_known(directory, body.node_id)
        return SpareView.of(desk.add(body.order(), caller))

    @router.post("/{node_id}/remove", summary="Let a node stand by no more")
    def remove_spare(node_id: str, body: ReasonBody, caller: Caller) -> SpareView:
        return SpareView.of(desk.remove(node_id, body.reason, caller))

    @router.post("/promotions", summary="Exclude a node and lease a spare for it, or only lease")
    def promote_spare(body: PromoteBody, caller: Caller) -> LeaseView:
        named = [body.leaver] if body.joiner is None else [body.leaver, body.joiner]
        for node_id in named:
            _require_known(directory, node_id)
        return LeaseView.of(desk.promote(body.order(), caller))

    @router.post("/{node_id}/release", summary="End a lease, and say who goes on in service")
    def release_spare(node_id: str, body: ReleaseBody, caller: Caller) -> LeaseView:
        return LeaseView.of(desk.release(node_id, body.keep, body.reason, caller))

    return router


def _require_known(directory: FleetDirectory, node_id: str) -> None:
    if directory.node(node_id) is None:
        raise ProblemError(404, "not_found", f"no node {node_id!r}", "See GET /v1/nodes.")
