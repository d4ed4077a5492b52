"""/v1/nodes and /v1/gpus: what there is, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from gpuwarden_server.api.filters import GpuFilter, NodeFilter
from gpuwarden_server.api.readings import gpu_readings, node_number
from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_verdict.engine.fleet import GpuRecord, NodeRecord
from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_wire.acknowledgement import EntityVerdict, Usable
from gpuwarden_wire.metrics import EntityKind


class NodeGpuView(BaseModel):
    """A GPU in the list of its node."""

    gpu_uuid: str
    index: int | None
    pci_bus_id: str
    model: str
    state: str
    usable: Usable


class TroubleView(BaseModel):
    """A source of the agent that does not work, or agents that get in each other's way."""

    source: str
    reason: str
    since: float
    mend: str = Field(description="what to do about it, empty where nothing is known")


class NodeView(BaseModel):
    """One node."""

    node_id: str
    pool: str = Field(description="the policy's pool")
    rack: str = Field(description="of the inventory, as leaf, mounts and labels; empty: not said")
    leaf: str
    mounts: list[str]
    labels: dict[str, str] = Field(description="pool: the inventory's", examples=[{"zone": "b"}])
    state: str
    usable: Usable
    agent_version: str
    boot_id: str
    last_seen_at: float | None
    silent: bool
    gpus_visible: int
    gpus_expected: int | None
    gpus_unread: str | None = Field(
        description="why no GPU of it is read; null where one is, or where nobody looks for any "
        "(the agent's NVML is off)"
    )
    gpus: list[NodeGpuView]
    trouble: list[TroubleView] = Field(description="our own plumbing, never a hardware verdict")
    open_incidents: int


class NodePage(BaseModel):
    """A page of nodes, by name."""

    items: list[NodeView]
    next_cursor: str | None


class JobView(BaseModel):
    """A job on a GPU."""

    kind: str = Field(description="who gave the id: slurm, kubernetes (pod uid) or torchrun")
    id: str


class GpuView(BaseModel):
    """One GPU with its latest readings."""

    gpu_uuid: str
    node_id: str
    index: int | None
    pci_bus_id: str
    model: str
    serial: str
    driver_version: str
    vbios_version: str
    nics: list[str]
    present: bool
    jobs: list[JobView] = Field(description="what runs on it, as of the node's newest inventory")
    state: str
    usable: Usable
    readings: dict[str, Any] = Field(
        description='by metric: a number, or {"missing": kind, "reason", "age_s"}',
        examples=[{"gpu_temperature_celsius": 61.0}],
    )


class GpuPage(BaseModel):
    """A page of GPUs, by node and slot."""

    items: list[GpuView]
    next_cursor: str | None


_Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]


def nodes_router(sources: ReadSources) -> APIRouter:
    """Routes of nodes and GPUs."""
    router = APIRouter(prefix="/v1", tags=["fleet"])

    @router.get("/nodes", summary="Nodes by name")
    def list_nodes(
        pool: Annotated[str | None, Query(description="of the policy")] = None,
        rack: Annotated[str | None, Query(description="of the inventory, as leaf")] = None,
        leaf: str | None = None,
        state: EntityState | None = None,
        usable: Usable | None = None,
        silent: bool | None = None,
        cursor: CursorQuery = None,
        limit: _Limit = 100,
    ) -> NodePage:
        after = decode_cursor(cursor)
        wanted = NodeFilter(pool, rack, leaf, state, usable, silent)
        rest = (n for n in sources.directory.nodes() if after is None or n.node_id > after.id)
        nodes = list(islice((n for n in rest if wanted.holds(sources, n.node_id)), limit + 1))
        page = nodes[:limit]
        return NodePage(
            items=[node_view(sources, node) for node in page],
            next_cursor=_next(page[-1].node_id) if len(nodes) > limit else None,
        )

    @router.get("/nodes/{node_id}", summary="One node")
    def read_node(node_id: str) -> NodeView:
        return node_view(sources, sources.node(node_id))

    @router.get("/gpus", summary="GPUs by node and slot, with their latest readings")
    def list_gpus(
        node: Annotated[str | None, Query(description="only of this node")] = None,
        state: EntityState | None = None,
        usable: Usable | None = None,
        present: bool | None = None,
        cursor: CursorQuery = None,
        limit: _Limit = 100,
    ) -> GpuPage:
        after = decode_cursor(cursor)
        wanted = GpuFilter(node, state, usable, present)
        rest = (g for g in sources.directory.gpus() if after is None or _place(g) > after.id)
        gpus = list(islice((g for g in rest if wanted.holds(sources, g)), limit + 1))
        page = gpus[:limit]
        return GpuPage(
            items=gpu_views(sources, page),
            next_cursor=_next(_place(page[-1])) if len(gpus) > limit else None,
        )

    @router.get("/gpus/{gpu_uuid}", summary="One GPU")
    def read_gpu(gpu_uuid: str) -> GpuView:
        return next(iter(gpu_views(sources, [sources.gpu(gpu_uuid)])))

    return router


def node_view(sources: ReadSources, node: NodeRecord) -> NodeView:
    """The JSON form of a node."""
    contact = sources.facts.contact_of(node.node_id)
    verdict = sources.board.node_verdict(node.node_id, contact)
    records = sources.board.gpus_of(node.node_id)
    # An inventory may arrive between both reads: a GPU without a verdict is listed the next time.
    says = {said.entity: said for said in verdict.gpus}
    presence = sources.facts.presence(node.node_id)
    own = sources.board.standing(EntityRef(EntityKind.NODE, node.node_id, node.node_id))
    of_gpus = [sources.board.gpu_standing(gpu) for gpu in records]
    place = sources.placements.placement(node.node_id)
    return NodeView(
        node_id=node.node_id,
        pool=sources.placements.pool(node.node_id).name,
        rack=place.entry.rack,
        leaf=place.entry.leaf,
        mounts=list(place.entry.mounts),
        labels={key: word for key, word in place.words.items() if key not in ("rack", "leaf")},
        state=verdict.node.state,
        usable=verdict.node.usable,
        agent_version=node.agent_version,
        boot_id=node.boot_id,
        last_seen_at=presence.last_seen_at if presence else None,
        silent=contact is Contact.SILENT,
        gpus_visible=sum(gpu.present for gpu in records),
        gpus_expected=sources.facts.gpus_expected(node.node_id),
        gpus_unread=None if records else _unread(sources, node.node_id),
        gpus=[_node_gpu(gpu, says[gpu.gpu_uuid]) for gpu in records if gpu.gpu_uuid in says],
        trouble=[
            TroubleView(source=one.source, reason=one.reason, since=one.since, mend=one.mend)
            for one in sources.troubles.of(node.node_id)
            if contact is not Contact.RETIRED
        ],
        open_incidents=len(own.incidents) + sum(len(one.incidents) for one in of_gpus),
    )


def _unread(sources: ReadSources, node_id: str) -> str | None:
    """Why a node shows no GPU: what is not read is unknown, which "0 GPUs, healthy" would hide."""
    for trouble in sources.troubles.of(node_id):
        if trouble.source == "nvml":
            return trouble.reason
    if node_number(sources.guarded, node_id, "node_gpus_on_pci") != 0.0:
        return None
    counted = node_number(sources.guarded, node_id, "node_gpus_visible") is not None
    return f"{'NVML counts none' if counted else 'no NVML'}, none on its PCI bus"


def gpu_views(sources: ReadSources, gpus: Iterable[GpuRecord]) -> list[GpuView]:
    """The JSON forms of GPUs."""
    records = list(gpus)
    uuids = [gpu.gpu_uuid for gpu in records]
    readings = gpu_readings(sources.guarded, uuids, sources.clock.now())
    verdicts = {
        said.entity: said
        for node_id in {gpu.node_id for gpu in records}
        for said in sources.board.node_verdict(node_id).gpus
    }
    return [
        GpuView(
            gpu_uuid=gpu.gpu_uuid,
            node_id=gpu.node_id,
            index=gpu.gpu_index,
            pci_bus_id=gpu.pci_bus_id,
            model=gpu.model,
            serial=gpu.serial,
            driver_version=gpu.driver_version,
            vbios_version=gpu.vbios_version,
            nics=list(gpu.nics),
            present=gpu.present,
            jobs=[JobView(kind=kind, id=job_id) for kind, job_id in gpu.jobs],
            state=said.state if (said := verdicts.get(gpu.gpu_uuid)) else "unknown",
            usable=said.usable if said else Usable.UNKNOWN,
            readings=numbers,
        )
        for gpu, numbers in zip(records, readings, strict=True)
    ]


def _node_gpu(gpu: GpuRecord, said: EntityVerdict) -> NodeGpuView:
    return NodeGpuView(
        gpu_uuid=gpu.gpu_uuid,
        index=gpu.gpu_index,
        pci_bus_id=gpu.pci_bus_id,
        model=gpu.model,
        state=said.state,
        usable=said.usable,
    )


def _place(gpu: GpuRecord) -> str:
    return f"{gpu.node_id}\x00{gpu.pci_bus_id}\x00{gpu.gpu_uuid}"


def _next(place: str) -> str:
    return encode_cursor(Cursor(0.0, place))
