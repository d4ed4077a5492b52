"""/v1/lemons: parts and places by their own severe past; no verdict, and nothing acts on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_verdict.engine.fleet import GpuRecord
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.lemons import FOLLOWED_S, Lemon, TrackRecord, lemon_list
from gpuwarden_verdict.slow_rank import Because
from gpuwarden_wire.metrics import EntityKind

_DAY_S = 86_400.0
_EXAMPLE: JsonDict = {
    "because": "part",
    "entity_kind": "gpu",
    "entity": "GPU-5b1f0c9e-0000-4a3e-9d5f-2f6c8a1b7e33",
    "node_id": "gpu-017",
    "serial": "1654422006734",
    "weight": 1.7,
    "events": [{"at": 1764500000.1, "fault": "bus"}, {"at": 1763900000.0, "fault": "bus"}],
}
_RECORD: JsonDict = {
    "entries": 12,
    "followed": 7,
    "young": 2,
    "precision": 0.583,
    "low": 0.32,
    "high": 0.807,
}


class PastEventView(BaseModel):
    """A severe event on record."""

    at: float
    fault: str = Field(description="where the fault lay")


class LemonView(BaseModel):
    """One entry of the list."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    because: Literal["part", "place"] = Field(
        description="part: severe events of the very part; place: of at least two parts in a node"
    )
    entity_kind: str
    entity: str
    node_id: str
    serial: str = Field(description="of a GPU's board, '' where unknown or not a GPU")
    weight: float = Field(description="its events, each halved every 30 days")
    events: list[PastEventView] = Field(description="those that count now, the newest first")


class TrackRecordView(BaseModel):
    """How often former entries were right on this fleet; null: unknown yet."""

    model_config = ConfigDict(json_schema_extra={"examples": [_RECORD]})

    entries: int = Field(description="former entries that are old enough to tell")
    followed: int = Field(description="of these, those that a severe event followed in time")
    young: int = Field(description="entries that are too young to tell")
    precision: float | None
    low: float | None = Field(description="of the 95 % interval of precision (Wilson)")
    high: float | None


class LemonsView(BaseModel):
    """The list, parts first, with its own track record. No verdict: nothing acts on it."""

    items: list[LemonView]
    parts: TrackRecordView
    places: TrackRecordView
    followed_within_days: float


def lemons_router(sources: ReadSources) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/v1", tags=["fleet"])

    @router.get("/lemons", summary="Parts and places by their own severe past; acts on nothing")
    def read_lemons(
        limit: Annotated[int, Query(ge=1, le=1000, description="most entries")] = 100,
    ) -> LemonsView:
        ledger = sources.ledger()
        found = lemon_list(ledger, _present(sources, ledger), sources.clock.now())
        return LemonsView(
            items=[_view(sources, one) for one in found.lemons[:limit]],
            parts=_record_view(found.parts),
            places=_record_view(found.places),
            followed_within_days=FOLLOWED_S / _DAY_S,
        )

    return router


def _present(sources: ReadSources, ledger: LedgerReading) -> Iterator[EntityRef]:
    """What is on record and in the fleet: nodes, their ports, the boards in their slots."""
    directory = sources.directory
    for key in ledger.keys.get(EntityKind.NODE, ()):
        if directory.node(key) is not None:
            yield EntityRef(EntityKind.NODE, key, key)
    for key in ledger.keys.get(EntityKind.NIC, ()):
        node_id = key.partition("/")[0]
        if directory.node(node_id) is not None:
            yield EntityRef(EntityKind.NIC, key, node_id)
    for key in ledger.keys.get(EntityKind.GPU, ()):
        gpu = directory.gpu(key)
        if gpu is not None and not _is_replaced(sources, gpu):
            yield EntityRef(EntityKind.GPU, key, gpu.node_id)


def _is_replaced(sources: ReadSources, gpu: GpuRecord) -> bool:
    """Another board sits in its slot; one that only fell off the bus is still there."""
    return not gpu.present and any(
        other.present and other.pci_bus_id == gpu.pci_bus_id
        for other in sources.directory.gpus_of(gpu.node_id)
    )


def _view(sources: ReadSources, lemon: Lemon) -> LemonView:
    ref = lemon.entity
    gpu = sources.directory.gpu(ref.key) if ref.kind is EntityKind.GPU else None
    return LemonView(
        because="part" if lemon.because is Because.PART else "place",
        entity_kind=ref.kind.value,
        entity=ref.key,
        node_id=ref.node_id,
        serial=gpu.serial if gpu is not None else "",
        weight=lemon.weight,
        events=[PastEventView(at=one.at, fault=one.fault) for one in lemon.events],
    )


def _record_view(record: TrackRecord) -> TrackRecordView:
    low, high = record.interval or (None, None)
    return TrackRecordView(
        entries=record.entries,
        followed=record.followed,
        young=record.young,
        precision=record.precision,
        low=low,
        high=high,
    )
