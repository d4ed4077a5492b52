"""/v1/pins and /v1/leaves: keep in, keep out, and leave at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.decisions.pins.schemas import (
    FARTHEST_LEAVE_S,
    LeaveBody,
    PinBody,
    PinList,
    PinView,
    pin_view,
)
from gpuwarden_server.decisions.ports import Author, PinBoard, PinDesk
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.document import Pin, PinKind
from gpuwarden_wire.metrics import EntityKind


def pins_router(
    directory: FleetDirectory,
    board: PinBoard,
    desk: PinDesk,
    clock: Clock,
    changed: Callable[[], None],
) -> APIRouter:
    """Routes of pins and leaves.

    Args:
        directory: Nodes and GPUs.
        board: Pins that hold or will.
        desk: Takes them.
        clock: Time.
        changed: Called after each change: maintenance windows may differ.
    """
    router = APIRouter(prefix="/v1", tags=["pins"])

    @router.get("/pins", summary="Pins and planned leaves that hold or will, the newest first")
    def list_pins(
        node: Annotated[str | None, Query(description="only on this node")] = None,
    ) -> PinList:
        found = (pin for pin in board.pins() if node in (None, pin.entity.node_id))
        return PinList(items=[pin_view(pin) for pin in found])

    @router.post("/pins", status_code=201, summary="Keep a node or GPU in or out; one an entity")
    def set_pin(body: PinBody, caller: Caller) -> PinView:
        now = clock.now()
        pin = Pin(
            entity=_entity(directory, body),
            kind=body.kind,
            by=caller.name,
            reason=body.reason,
            set_at=now,
            expires_at=None if body.duration_s is None else now + body.duration_s,
            id=new_id("pin"),
        )
        (taken,) = desk.set_pins([pin], _author(caller, body.reason))
        changed()
        return pin_view(taken)

    @router.post("/pins/{pin_id}/end", summary="End a pin or planned leave")
    def end_pin(pin_id: str, body: ReasonBody, caller: Caller) -> PinView:
        ended = desk.end_pin(pin_id, _author(caller, body.reason))
        changed()
        return pin_view(ended)

    @router.post(
        "/leaves", status_code=201, summary="Plan that nodes leave at a time, under maintenance"
    )
    def plan_leave(body: LeaveBody, caller: Caller) -> PinList:
        now = clock.now()
        _require_near(body.at, now)
        leaves = _leaves(directory, body, caller.name, now)
        author = _author(caller, body.reason)
        taken = desk.set_pins(leaves, author, checks_by_policy=body.check is None)
        changed()
        return PinList(items=[pin_view(pin) for pin in taken])

    return router


def _require_near(at: float, now: float) -> None:
    if at - now > FARTHEST_LEAVE_S:
        raise ProblemError(
            409,
            "too_far",
            f"at: {at:g} is more than {FARTHEST_LEAVE_S / 86_400:g} days ahead",
            "Give epoch seconds, not milliseconds.",
        )


def _leaves(directory: FleetDirectory, body: LeaveBody, by: str, now: float) -> list[Pin]:
    nodes = list(dict.fromkeys(body.nodes))
    unknown = [one for one in nodes if directory.node(one) is None]
    if unknown:
        raise _not_there(f"no node {', '.join(map(repr, unknown[:10]))}", "GET /v1/nodes")
    return [_leave(node, body, by, now) for node in nodes]


def _leave(node: str, body: LeaveBody, by: str, now: float) -> Pin:
    at = max(now, body.at)
    return Pin(
        entity=EntityRef(EntityKind.NODE, node, node),
        kind=PinKind.EXCLUDE,
        by=by,
        reason=body.reason,
        set_at=now,
        expires_at=None if body.duration_s is None else at + body.duration_s,
        id=new_id("pin"),
        starts_at=at,
        leave=True,
        check=body.check is True,
        window_id=new_id("sil"),
    )


def _entity(directory: FleetDirectory, body: PinBody) -> EntityRef:
    if body.entity_kind == EntityKind.NODE.value:
        if directory.node(body.entity) is None:
            raise _not_there(f"no node {body.entity!r}", "GET /v1/nodes")
        return EntityRef(EntityKind.NODE, body.entity, body.entity)
    gpu = directory.gpu(body.entity)
    if gpu is None:
        raise _not_there(f"no GPU {body.entity!r}", "GET /v1/gpus")
    return EntityRef(EntityKind.GPU, body.entity, gpu.node_id)


def _not_there(what: str, route: str) -> ProblemError:
    return ProblemError(404, "not_found", what, f"See {route}.")


def _author(caller: Principal, reason: str) -> Author:
    return Author(caller.name, caller.key_id, reason, caller.role.value)
