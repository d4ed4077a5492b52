"""/v1/decisions, /v1/exclusions, the begin of a repair, and the end of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.decisions import repository
from gpuwarden_server.decisions.ports import Author, DecisionDesk, FeedSource
from gpuwarden_server.decisions.repository import DecisionFilter
from gpuwarden_server.decisions.schemas import (
    ApproveBody,
    CostView,
    DecisionDetailView,
    DecisionPage,
    DecisionView,
    ExclusionsView,
    HoldBody,
    RepairView,
    decision_detail,
    decision_view,
    exclusions_view,
)
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.exclusions import Scope, host_lines, slurm_line
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_wire.metrics import EntityKind

_Phase = Literal["proposed", "in_force", "revoked", "expired", "lifted", "held_back", "live"]


CostTeller = Callable[[Sequence[Decision]], Mapping[str, CostView]]
"""What decisions saved and lost, by id."""


class FeedForm(StrEnum):
    """How the exclusion set is written."""

    JSON = "json"
    HOSTS = "hosts"
    SLURM = "slurm"


def exclusions_router(feed: FeedSource) -> APIRouter:
    """The exclusion set as a whole; its changes are streamed by the front."""
    router = APIRouter(prefix="/v1", tags=["exclusions"])

    @router.get(
        "/exclusions",
        summary="The exclusion set: for programs, as a host list, or for Slurm's --exclude",
        response_model=ExclusionsView,
        responses={200: {"content": {"text/plain": {"example": "gpu-017\ngpu-022\n"}}}},
    )
    async def read_exclusions(
        response: Response,
        form: Annotated[FeedForm, Query(alias="format")] = FeedForm.JSON,
        scope: Annotated[
            Scope, Query(description="any: nodes with any excluded GPU; node: whole nodes only")
        ] = Scope.ANY,
    ) -> ExclusionsView | Response:
        published = feed.published()
        tag = f'"{published.head.tag}"'
        match form:
            case FeedForm.JSON:
                response.headers["ETag"] = tag
                return exclusions_view(published)
            case FeedForm.HOSTS:
                return _plain(host_lines(published.exclusions, scope), tag)
            case FeedForm.SLURM:
                return _plain(slurm_line(published.exclusions, scope), tag)

    return router


def decisions_router(state: Database, desk: DecisionDesk, costs: CostTeller) -> APIRouter:
    """Routes of decisions."""
    router = APIRouter(prefix="/v1/decisions", tags=["decisions"])

    @router.get("", summary="Decisions, newest first; phase live is every one that may still act")
    def list_decisions(
        phase: _Phase | None = None,
        node: Annotated[str | None, Query(description="only of this node")] = None,
        entity: Annotated[str | None, Query(description="only of this GPU, NIC …")] = None,
        incident: Annotated[str | None, Query(description="only of this incident")] = None,
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
        ledger: Annotated[bool, Query(description="with what each saved and lost")] = False,
    ) -> DecisionPage:
        wanted = DecisionFilter(phase, node, entity, incident)
        with state.read() as connection:
            found = repository.read_page(connection, wanted, decode_cursor(cursor), limit + 1)
        page = found[:limit]
        last = Cursor(page[-1].decided_at, page[-1].id) if len(found) > limit else None
        told = costs(page) if ledger else {}
        return DecisionPage(
            items=[decision_view(decision, told.get(decision.id)) for decision in page],
            next_cursor=encode_cursor(last) if last else None,
        )

    @router.get("/{decision_id}", summary="One decision, its history and what it was made from")
    def read_decision(decision_id: str) -> DecisionDetailView:
        decision, snapshot = require(decision_id)
        with state.read() as connection:
            moves = repository.read_moves(connection, decision_id)
        told = costs([decision])
        return decision_detail(decision, moves, snapshot, told.get(decision_id))

    @router.post("/{decision_id}/revoke", summary="End it and acquit what it stood on")
    def revoke(decision_id: str, body: ReasonBody, caller: Caller) -> DecisionView:
        require(decision_id)
        return decision_view(desk.revoke(decision_id, _author(caller, body)))

    @router.post(
        "/{decision_id}/approve", summary="Bring waiting advice into force; 409 in observe mode"
    )
    def approve(decision_id: str, body: ApproveBody, caller: Caller) -> DecisionView:
        require(decision_id)
        return decision_view(desk.approve(decision_id, _author(caller, body), body.shown()))

    def require(decision_id: str) -> tuple[Decision, dict[str, Any]]:
        return _required(state, decision_id)

    return router


def holds_router(state: Database, desk: DecisionDesk, clock: Clock) -> APIRouter:
    """Routes that let a decision go no further, and further again."""
    router = APIRouter(prefix="/v1/decisions", tags=["decisions"])

    @router.post("/{decision_id}/hold", summary="Let it go no further for a time")
    def hold(decision_id: str, body: HoldBody, caller: Caller) -> DecisionView:
        _required(state, decision_id)
        author = Author(caller.name, caller.key_id, body.reason, caller.role.value)
        return decision_view(desk.hold(decision_id, clock.now() + body.duration_s, author))

    @router.post("/{decision_id}/let-go", summary="End a hold")
    def let_go(decision_id: str, body: ReasonBody, caller: Caller) -> DecisionView:
        _required(state, decision_id)
        return decision_view(desk.let_go(decision_id, _author(caller, body)))

    return router


def _required(state: Database, decision_id: str) -> tuple[Decision, dict[str, Any]]:
    with state.read() as connection:
        found = repository.read_one(connection, decision_id)
    if found is None:
        raise ProblemError(
            404, "not_found", f"no decision {decision_id!r}", "See GET /v1/decisions."
        )
    return found


def repair_router(directory: FleetDirectory, desk: DecisionDesk) -> APIRouter:
    """Begin of a repair, whose end is a passed check; retirement, whose end is that it sends."""
    router = APIRouter(prefix="/v1", tags=["repair"])

    @router.post("/gpus/{gpu_uuid}/repair", summary="Move an excluded GPU into repair")
    def repair_gpu(gpu_uuid: str, body: ReasonBody, caller: Caller) -> RepairView:
        gpu = directory.gpu(gpu_uuid)
        if gpu is None:
            raise ProblemError(404, "not_found", f"no GPU {gpu_uuid!r}", "See GET /v1/gpus.")
        return begin(EntityRef(EntityKind.GPU, gpu_uuid, gpu.node_id), body, caller)

    @router.post(
        "/nodes/{node_id}/repair", summary="Move an excluded node and its excluded GPUs into repair"
    )
    def repair_node(node_id: str, body: ReasonBody, caller: Caller) -> RepairView:
        require_node(node_id)
        return begin(EntityRef(EntityKind.NODE, node_id, node_id), body, caller)

    @router.post(
        "/nodes/{node_id}/retire",
        summary="Take a node that is switched off for good out of the fleet",
    )
    def retire_node(node_id: str, body: ReasonBody, caller: Caller) -> RepairView:
        require_node(node_id)
        after = desk.retire_node(node_id, _author(caller, body))
        return RepairView(entity_kind=EntityKind.NODE.value, entity=node_id, state=after)

    def require_node(node_id: str) -> None:
        if directory.node(node_id) is None:
            raise ProblemError(404, "not_found", f"no node {node_id!r}", "See GET /v1/nodes.")

    def begin(target: EntityRef, body: ReasonBody, caller: Principal) -> RepairView:
        after = desk.begin_repair(target, _author(caller, body))
        return RepairView(entity_kind=target.kind.value, entity=target.key, state=after)

    return router


def _author(caller: Principal, body: ReasonBody) -> Author:
    return Author(caller.name, caller.key_id, body.reason, caller.role.value)


def _plain(text: str, tag: str) -> Response:
    return Response(text, media_type="text/plain; charset=utf-8", headers={"ETag": tag})
