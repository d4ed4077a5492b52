"""/v1/keys and /v1/audit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator
from pydantic.config import JsonDict

from gpuwarden_server.access.authorisation import RESOURCES, Caller
from gpuwarden_server.access.domain import key_form
from gpuwarden_server.access.keys import KeyRing, KeyWish
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.repository import AuditFilter, audit_after
from gpuwarden_server.access.scopes import WHOLE, Access, Scope
from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.ids import NODE_ID_PATTERN
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    LARGEST_ROW,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.store.database import Database

LONGEST_LIFE_S = 10 * 366 * 86_400.0
LONGEST_GRACE_S = 30 * 86_400.0


_RESOURCE_WORDS: list[JsonValue] = [
    f"{name}:{access}" for name in sorted(RESOURCES) for access in Access
]
_Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9*?][A-Za-z0-9._*?\[\]!-]{0,252}$")]


_RESOURCE = Field(
    pattern=r"^[a-z-]+:(read|write)$",
    json_schema_extra={
        "enum": [f"{name}:{access}" for name in sorted(RESOURCES) for access in ("read", "write")]
    },
)


class ScopeBody(Body):
    """What a key is narrowed to; an empty list does not narrow."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"nodes": ["gpu-0*"], "resources": ["incidents:read"]}]},
    )

    nodes: list[_Pattern] = Field(
        default=[], max_length=100, description="patterns of node ids: gpu-0*"
    )
    pools: list[Annotated[str, Field(max_length=255)]] = Field(
        default=[], max_length=100, description="names of pools of the policy"
    )
    resources: list[Annotated[str, _RESOURCE]] = Field(
        default=[],
        max_length=100,
        description="RESOURCE:read or :write, as paths name them",
    )

    @field_validator("resources")
    @classmethod
    def _known(cls, wanted: list[str]) -> list[str]:
        unknown = [word for word in wanted if word not in _RESOURCE_WORDS]
        if unknown:
            raise ValueError(
                f"no {', '.join(unknown[:5])}; RESOURCE:read or RESOURCE:write, "
                f"RESOURCE being one of {', '.join(sorted(RESOURCES))}"
            )
        return wanted

    def scope(self) -> Scope:
        """As a value."""
        return Scope(tuple(self.nodes), tuple(self.pools), tuple(self.resources))


_BOUND: JsonDict = {
    "if": {"properties": {"role": {"const": Role.AGENT.value}}},
    "then": {
        "required": ["node"],
        "properties": {
            "node": {"type": "string"},
            "scope": {"properties": {"nodes": {"maxItems": 0}, "pools": {"maxItems": 0}}},
        },
    },
    "else": {"properties": {"node": {"type": "null"}}},
    "examples": [{"role": "agent", "node": "gpu-017", "name": ""}],
}
"""What JSON Schema says of it: a key of role agent, and no other, is bound to one node."""


class KeyRequest(Body):
    """A key to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_BOUND)

    role: Role
    node: str | None = Field(None, pattern=NODE_ID_PATTERN, description="for role agent")
    name: str = Field("", max_length=255, description="for people and the audit")
    expires_in_s: float | None = Field(
        None, gt=0, le=LONGEST_LIFE_S, description="seconds after which it is refused; none: never"
    )
    scope: ScopeBody | None = Field(None, description="what to narrow it to; none: to nothing")


class RotateRequest(Body):
    """A new secret for a key."""

    model_config = ConfigDict(extra="forbid")

    grace_s: float = Field(
        86_400, ge=0, le=LONGEST_GRACE_S, description="seconds for which the former secret is taken"
    )
    expires_in_s: float | None = Field(
        None, gt=0, le=LONGEST_LIFE_S, description="a new end, seconds from now; none: as before"
    )


class KeyView(BaseModel):
    """A key, without the key."""

    id: str
    role: Role
    node_id: str | None
    name: str
    created_at: float
    created_by: str
    revoked_at: float | None
    expires_at: float | None = Field(description="epoch seconds from which it is refused")
    scope: dict[str, list[str]] = Field(
        description="what it is narrowed to: nodes, pools, resources; empty for nothing",
        examples=[{"nodes": ["gpu-0*"], "resources": ["incidents:read"]}],
    )
    former_until: float | None = Field(
        description="epoch seconds until which the secret before the last rotation is taken too"
    )


class NewKeyView(KeyView):
    """A key just made: the only answer that holds the key itself."""

    key: str


class KeyListView(BaseModel):
    """A page of keys, oldest first."""

    items: list[KeyView]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page.")


class AuditQuery(BaseModel):
    """What of the audit is wanted."""

    after: int = Field(0, ge=0, le=LARGEST_ROW, description="ids above this one: next_after")
    limit: int = Field(100, ge=1, le=LARGEST_PAGE)
    author: str | None = Field(None, description="name of the key, or gpuwarden")
    key_id: str | None = Field(None, description="id of the key")
    action: str | None = Field(None, examples=["revoke_decision"])
    target: str | None = Field(None, description="id of what was written", examples=["gpu-017"])
    since: float | None = Field(None, description="epoch seconds, included")
    until: float | None = Field(None, description="epoch seconds, left out")

    def filter(self) -> AuditFilter:
        """What narrows."""
        return AuditFilter(
            author=self.author,
            key_id=self.key_id,
            action=self.action,
            target=self.target,
            since=self.since,
            until=self.until,
        )


class AuditEntryView(BaseModel):
    """One write of a person or of gpuwarden itself."""

    id: int = Field(description="rises with each entry", examples=[4711])
    at: float
    author: str = Field(description="name of the key, or gpuwarden")
    key_id: str | None = Field(description="null for gpuwarden itself")
    action: str = Field(examples=["revoke_decision"])
    target: str = Field(examples=["dec-5d0c8a1b7e33"])
    reason: str = Field(examples=["checked by hand: sound"])
    before: dict[str, Any] | None = Field(
        description="values before, null where there was nothing", examples=[{"phase": "in_force"}]
    )
    after: dict[str, Any] | None = Field(
        description="values after, null where there is nothing", examples=[{"phase": "revoked"}]
    )


class AuditView(BaseModel):
    """A page of the audit, oldest first."""

    items: list[AuditEntryView]
    next_after: int | None = Field(
        description="Pass as `after` for the next page.", examples=[4711]
    )


def access_router(ring: KeyRing, state: Database, clock: Clock) -> APIRouter:
    """Routes of keys and audit."""
    router = APIRouter(prefix="/v1", tags=["access"])

    @router.post("/keys", status_code=201, summary="Make a key; it is shown once")
    def create_key(request: KeyRequest, caller: Caller, response: Response) -> NewKeyView:
        name = request.name or (f"agent of {request.node}" if request.node else request.role)
        ends = _moment(clock, request.expires_in_s)
        scope = request.scope.scope() if request.scope is not None else WHOLE
        wish = KeyWish(request.role, request.node, name, ends, scope)
        record, key = ring.create(wish, caller)
        response.headers["Cache-Control"] = "no-store"
        return NewKeyView(**key_form(record), key=key)

    @router.get("/keys", summary="Keys, revoked ones too, oldest first")
    def list_keys(
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = LARGEST_PAGE,
    ) -> KeyListView:
        after = decode_cursor(cursor)
        records = ring.records()
        rest = [r for r in records if after is None or (r.created_at, r.id) > (after.at, after.id)]
        page = rest[:limit]
        last = Cursor(page[-1].created_at, page[-1].id) if len(rest) > limit else None
        return KeyListView(
            items=[KeyView(**key_form(record)) for record in page],
            next_cursor=encode_cursor(last) if last else None,
        )

    @router.post("/keys/{key_id}/rotate", summary="A new secret, shown once; the old one goes on")
    def rotate_key(
        key_id: str, request: RotateRequest, caller: Caller, response: Response
    ) -> NewKeyView:
        ends = _moment(clock, request.expires_in_s)
        record, key = ring.rotate(key_id, caller, request.grace_s, ends)
        response.headers["Cache-Control"] = "no-store"
        return NewKeyView(**key_form(record), key=key)

    @router.delete("/keys/{key_id}", summary="Revoke a key, at once")
    def revoke_key(key_id: str, caller: Caller) -> KeyView:
        return KeyView(**key_form(ring.revoke(key_id, caller)))

    @router.get("/audit", summary="Every write: who, what, before and after; oldest first")
    def list_audit(query: Annotated[AuditQuery, Query()]) -> AuditView:
        wanted = query.filter()
        with state.read() as connection:
            items = audit_after(connection, query.after, query.limit, wanted)
        full = len(items) == query.limit
        return AuditView(
            items=[AuditEntryView(**item) for item in items],
            next_after=items[-1]["id"] if full else None,
        )

    return router


def _moment(clock: Clock, after_s: float | None) -> float | None:
    return None if after_s is None else clock.now() + after_s
