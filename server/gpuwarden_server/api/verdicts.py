"""/v1/verdicts: may these nodes be used now? Thousands in one call, from memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.api.sources import ReadSources

MOST_NODES = 20_000
MOST_IN_QUERY = 100
"""A query with more names outgrows the line limit of common proxies, 8 kB."""


class VerdictsBody(BaseModel):
    """Whose verdicts are wanted."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"nodes": ["gpu-001", "gpu-002"]}]}
    )

    nodes: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(
        max_length=MOST_NODES, description="Node ids; empty for all."
    )


class VerdictView(BaseModel):
    """Verdict about a node or a GPU."""

    entity_kind: str
    entity: str
    usable: str = Field(description="yes, no or unknown", examples=["no"])
    state: str
    since: float | None
    why: str = Field(examples=["XID 79: GPU has fallen off the bus"])
    confidence: float | None
    action: str
    decided_by: str
    decision_id: str | None
    would: str = Field(description="what act mode would do, empty for nothing more")
    pci_bus_id: str | None
    index: int | None


class NodeVerdictView(BaseModel):
    """Verdict about a node and its GPUs."""

    node_id: str
    node: VerdictView
    gpus: list[VerdictView]
    feed_id: str
    epoch: int
    issued_at: float


class VerdictsView(BaseModel):
    """Verdicts with the position of the feed that they reflect."""

    feed_id: str
    epoch: int
    issued_at: float
    verdicts: list[NodeVerdictView]


_ANSWER: dict[int | str, dict[str, Any]] = {200: {"model": VerdictsView}}


def verdicts_router(sources: ReadSources) -> APIRouter:
    """Routes of verdicts; a node never seen answers usable unknown."""
    router = APIRouter(prefix="/v1", tags=["verdicts"])

    @router.get("/verdicts", summary="Verdicts of the named nodes, or of all", responses=_ANSWER)
    def read_verdicts(
        caller: Caller, node: Annotated[list[str] | None, Query(max_length=MOST_IN_QUERY)] = None
    ) -> Response:
        return _answer(sources, _wanted(caller, node or [], sources))

    @router.post("/verdicts", summary="The same for many nodes", responses=_ANSWER)
    def ask_verdicts(body: VerdictsBody, caller: Caller) -> Response:
        return _answer(sources, _wanted(caller, body.nodes, sources))

    return router


def _wanted(caller: Principal, nodes: Sequence[str], sources: ReadSources) -> Sequence[str]:
    if nodes:
        caller.require_nodes(nodes)
        return list(dict.fromkeys(nodes))
    if caller.role is Role.AGENT and caller.node_id is not None:
        return [caller.node_id]
    return [node_id for node_id in sources.facts.node_ids() if caller.covers(node_id)]


def _answer(sources: ReadSources, node_ids: Sequence[str]) -> Response:
    # Encoded at once: thousands of verdicts through a validating model would take seconds.
    head = sources.board.published().head
    body = msgspec.json.encode(
        {
            "feed_id": head.feed_id,
            "epoch": head.epoch,
            "issued_at": sources.clock.now(),
            "verdicts": [sources.board.node_verdict(node_id) for node_id in node_ids],
        }
    )
    return Response(body, media_type="application/json", headers={"ETag": f'"{head.tag}"'})
