"""/v1/enrolment-tokens and /v1/enrol."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.domain import token_form
from gpuwarden_server.access.tokens import EnrolmentDesk, TokenWish
from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.ids import NODE_ID_PATTERN

LONGEST_LIFE_S = 366 * 86_400.0
NODE_GLOB = r"^[A-Za-z0-9*?\[][A-Za-z0-9._*?\[\]!-]{0,252}$"
_TOKEN = "gwe_9sGmDg0cTfWk3VbX7yQe2LrNpUa5HjZi4KtB8MvEoCx"


class TokenRequest(Body):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", max_length=255, description="for people and the audit")
    nodes: str = Field("*", pattern=NODE_GLOB, description="pattern of the nodes that may enrol")
    uses: int = Field(1, ge=1, le=100_000, description="how often it may be used")
    expires_in_s: float = Field(86_400, gt=0, le=LONGEST_LIFE_S, description="seconds it is good")
    re_enrol: bool = Field(False, description="may replace the key that a node has")


class TokenView(BaseModel):
    """A token, without the token."""

    id: str = Field(examples=["enrol-8a1b7e335d0c"])
    name: str
    nodes: str = Field(examples=["gpu-*"])
    uses: int
    used: int
    re_enrol: bool
    created_at: float
    created_by: str
    expires_at: float
    revoked_at: float | None


class NewTokenView(TokenView):
    """A token just made: the only answer that holds the token itself."""

    token: str = Field(examples=[_TOKEN])


class TokenListView(BaseModel):
    """All tokens."""

    items: list[TokenView]


class EnrolRequest(Body):
    """A node that wants a key."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"token": _TOKEN, "node": "gpu-017"}]}
    )

    token: Annotated[str, Field(min_length=1, max_length=255)]
    node: str = Field(pattern=NODE_ID_PATTERN, description="name of the node, as its agent has it")


class EnrolledView(BaseModel):
    """The node's key, shown this once."""

    key_id: str
    node_id: str
    key: str


def enrolment_router(desk: EnrolmentDesk) -> APIRouter:
    """Routes of tokens and of the enrolment itself."""
    router = APIRouter(prefix="/v1", tags=["access"])

    @router.post("/enrolment-tokens", status_code=201, summary="Make a token; it is shown once")
    def create_enrolment_token(
        request: TokenRequest, caller: Caller, response: Response
    ) -> NewTokenView:
        wish = TokenWish(
            request.name, request.nodes, request.uses, request.expires_in_s, request.re_enrol
        )
        record, token = desk.create(wish, caller)
        response.headers["Cache-Control"] = "no-store"
        return NewTokenView(**token_form(record), token=token)

    @router.get("/enrolment-tokens", summary="All tokens, ended ones too")
    def list_enrolment_tokens() -> TokenListView:
        return TokenListView(items=[TokenView(**token_form(record)) for record in desk.records()])

    @router.delete("/enrolment-tokens/{token_id}", summary="Revoke a token, at once")
    def revoke_enrolment_token(token_id: str, caller: Caller) -> TokenView:
        return TokenView(**token_form(desk.revoke(token_id, caller)))

    @router.post(
        "/enrol", status_code=201, summary="A key for a node whose agent brings an enrolment token"
    )
    def enrol(request: EnrolRequest, response: Response) -> EnrolledView:
        record, key = desk.enrol(request.token, request.node)
        response.headers["Cache-Control"] = "no-store"
        return EnrolledView(key_id=record.id, node_id=request.node, key=key)

    return router
