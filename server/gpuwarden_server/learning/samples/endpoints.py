"""/v1/feature-rows: what models learn from, beside the labels."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from gpuwarden_server.core.pages import LARGEST_PAGE, LARGEST_ROW
from gpuwarden_server.learning.registry.schemas import Kind
from gpuwarden_server.learning.samples import repository
from gpuwarden_server.learning.samples.domain import FeatureRow, Why
from gpuwarden_server.store.database import Database
from gpuwarden_wire.metrics import EntityKind


class FeatureRowView(BaseModel):
    """Features of one entity at one moment, as they served."""

    row: int
    at: float = Field(examples=[1764500000.1])
    kind: Kind = Field(examples=["gpu"])
    entity: str
    node_id: str
    why: Why = Field(description="why it was kept; healthy: taken at random", examples=["suspect"])
    share: float = Field(
        description="the chance that an entity was kept for this reason at that moment: one that"
        " was taken at random stands for 1 / share of them",
        examples=[0.05],
    )
    schema_hash: str = Field(description="what its columns are", examples=["88a5f3b06c1d2e4f"])
    model_version: str = Field(description="what judged then, '' for rules alone")
    values: str = Field(
        description="base64 of little-endian float32, NaN where missing", examples=["AAAAAA=="]
    )


class FeatureRowPage(BaseModel):
    """Rows in order."""

    items: list[FeatureRowView]
    next_after: int = Field(description="Pass as `after` for the next page.")


def samples_router(state: Database) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/v1", tags=["learning"])

    @router.get("/feature-rows", summary="Features as they served, oldest first")
    def list_feature_rows(
        kind: Annotated[Kind, Query(description="gpu, node or nic")] = "gpu",
        schema: Annotated[str | None, Query(description="only rows of these columns")] = None,
        after: Annotated[int, Query(ge=0, le=LARGEST_ROW, description="rows above this one")] = 0,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = LARGEST_PAGE,
    ) -> FeatureRowPage:
        with state.read() as connection:
            found = repository.read_rows(connection, EntityKind(kind), schema, after, limit)
        last = found[-1][0] if found else after
        return FeatureRowPage(items=[_view(kind, n, row) for n, row in found], next_after=last)

    return router


def _view(kind: Kind, number: int, row: FeatureRow) -> FeatureRowView:
    return FeatureRowView(
        row=number,
        at=row.at,
        kind=kind,
        entity=row.entity,
        node_id=row.node_id,
        why=row.why,
        share=row.share,
        schema_hash=row.schema_hash,
        model_version=row.model_version,
        values=base64.b64encode(row.body).decode(),
    )
