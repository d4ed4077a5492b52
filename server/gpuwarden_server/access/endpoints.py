"""/v1/keys and /v1/audit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.keys import KeyRing, public_form
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.repository import audit_after
from gpuwarden_server.core.ids import NODE_ID_PATTERN
from gpuwarden_server.core.pages import LARGEST_PAGE, LARGEST_ROW
from gpuwarden_server.store.database import Database


class KeyRequest(BaseModel):
    """A key to make."""

    model_config = ConfigDict(extra="forbid")

    role: Role
    node: str | None = Field(None, pattern=NODE_ID_PATTERN, description="for role agent")
    name: str = Field("", max_length=255, description="for people and the audit")


class KeyView(BaseModel):
    """A key, without the key."""

    id: str
    role: Role
    node_id: str | None
    name: str
    created_at: float
    created_by: str
    revoked_at: float | None


class NewKeyView(KeyView):
    """A key just made: the only answer that holds the key itself."""

    key: str


class KeyListView(BaseModel):
    """All keys."""

    items: list[KeyView]


class AuditView(BaseModel):
    """A page of the audit, oldest first."""

    items: list[dict[str, Any]]
    next_after: int | None


def access_router(ring: KeyRing, state: Database) -> APIRouter:
    """Routes of keys and audit."""
    router = APIRouter(prefix="/v1", tags=["access"])

    @router.post("/keys", status_code=201, summary="Make a key; it is shown once")
    def create_key(request: KeyRequest, caller: Caller, response: Response) -> NewKeyView:
        name = request.name or (f"agent of {request.node}" if request.node else request.role)
        record, key = ring.create(request.role, request.node, name, caller)
        response.headers["Cache-Control"] = "no-store"
        return NewKeyView(**public_form(record), key=key)

    @router.get("/keys", summary="All keys, revoked ones too")
    def list_keys() -> KeyListView:
        return KeyListView(items=[KeyView(**public_form(record)) for record in ring.records()])

    @router.delete("/keys/{key_id}", summary="Revoke a key, at once")
    def revoke_key(key_id: str, caller: Caller) -> KeyView:
        return KeyView(**public_form(ring.revoke(key_id, caller)))

    @router.get("/audit", summary="Every write: who, what, before and after")
    def list_audit(
        after: Annotated[int, Query(ge=0, le=LARGEST_ROW, description="ids above this one")] = 0,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> AuditView:
        with state.read() as connection:
            items = audit_after(connection, after, limit)
        full = len(items) == limit
        return AuditView(items=items, next_after=items[-1]["id"] if full else None)

    return router
