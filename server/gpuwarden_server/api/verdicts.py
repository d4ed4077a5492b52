"""/v1/verdicts: may these nodes be used now? Thousands in one call, from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.conditional import body_tag, matches
from gpuwarden_server.judging.board import VerdictBoard
from gpuwarden_verdict.entities import Contact

MOST_NODES = 20_000
MOST_IN_QUERY = 100
"""A query with more names outgrows the line limit of common proxies, 8 kB."""


class WhichGpus(StrEnum):
    """Which GPUs a node's verdict lists."""

    ALL = "all"
    NOTABLE = "notable"  # a fleet that is well answers in a tenth of the bytes


class VerdictsBody(Body):
    """Whose verdicts are wanted."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"nodes": ["gpu-001", "gpu-002"]}]}
    )

    nodes: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(
        max_length=MOST_NODES, description="Node ids; empty for all."
    )
    gpus: WhichGpus = Field(
        default=WhichGpus.ALL,
        description="all: every GPU; notable: only those of which there is something to say",
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
_Which = Annotated[
    WhichGpus,
    Query(description="all: every GPU; notable: only those of which there is something to say"),
]


def verdicts_router(sources: ReadSources) -> APIRouter:
    """Routes of verdicts; a node never seen answers usable unknown."""
    router = APIRouter(prefix="/v1", tags=["verdicts"])

    @router.get("/verdicts", summary="Verdicts of the named nodes, or of all", responses=_ANSWER)
    def read_verdicts(
        request: Request,
        caller: Caller,
        node: Annotated[list[str] | None, Query(max_length=MOST_IN_QUERY)] = None,
        gpus: _Which = WhichGpus.ALL,
    ) -> Response:
        stamps = _stamps(sources, _wanted(caller, node or [], sources))
        tag = _tag_of(sources.board, stamps, gpus)
        if matches(request.headers.get("if-none-match"), tag):
            return Response(status_code=304, headers={"ETag": tag})
        return _answer(sources, stamps, gpus, {"ETag": tag})

    @router.post("/verdicts", summary="The same for many nodes", responses=_ANSWER)
    def ask_verdicts(body: VerdictsBody, caller: Caller) -> Response:
        stamps = _stamps(sources, _wanted(caller, body.nodes, sources))
        return _answer(sources, stamps, body.gpus, {})

    return router


def _wanted(caller: Principal, nodes: Sequence[str], sources: ReadSources) -> Sequence[str]:
    if nodes:
        caller.require_nodes(nodes)
        return list(dict.fromkeys(nodes))
    if caller.role is Role.AGENT and caller.node_id is not None:
        return [caller.node_id]
    return [node_id for node_id in sources.facts.node_ids() if caller.covers(node_id)]


_Stamp = tuple[str, int, Contact]
"""A node, and what its verdict rests on."""


def _stamps(sources: ReadSources, node_ids: Sequence[str]) -> list[_Stamp]:
    return [(node_id, *sources.board.stamp(node_id)) for node_id in node_ids]


def _tag_of(board: VerdictBoard, stamps: Sequence[_Stamp], gpus: WhichGpus) -> str:
    """Tag of an answer, from what it rests on: the time of its making is no news."""
    rests_on = (board.published().head.tag, gpus, stamps)
    return body_tag(msgspec.msgpack.encode(rests_on))


def _answer(
    sources: ReadSources, stamps: Sequence[_Stamp], gpus: WhichGpus, headers: Mapping[str, str]
) -> Response:
    # Put together from lines that are kept: thousands of verdicts through a validating model, or
    # encoded anew, would take seconds.
    board = sources.board
    head = board.published().head
    fields = {"feed_id": head.feed_id, "epoch": head.epoch, "issued_at": sources.clock.now()}
    tail = msgspec.json.encode(fields)[1:-1]
    notable = gpus is WhichGpus.NOTABLE
    end = b"," + tail + b"}"
    lines = b",".join(
        board.verdict_line(node_id, contact, notable) + end for node_id, _, contact in stamps
    )
    body = b"{" + tail + b',"verdicts":[' + lines + b"]}"
    return Response(body, media_type="application/json", headers=dict(headers))
