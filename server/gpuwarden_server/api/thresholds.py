"""/v1/thresholds: against which limits detectors hold what they see, and where those come from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_verdict.tuning.limits import LimitSource, Threshold


class ThresholdView(BaseModel):
    """One limit in force."""

    detector: str
    scope: str = Field(description="pool, of GPU detectors pool/model; '' of nodes without a pool")
    limit: float = Field(description="in `unit`")
    unit: str
    source: LimitSource = Field(
        description="default: nothing is learnt, or not enough was seen; learnt from this fleet; "
        "override: the policy says so"
    )
    budget: float | None = Field(
        description="alarms a 1,000 entity-days that it is learnt for; null where nothing is learnt"
    )
    floor: float = Field(description="least limit that is ever learnt: the least effect that means")
    default: float = Field(description="holds before enough was seen")
    persist_s: float = Field(description="how long it must be passed, seconds")
    entity_hours: float = Field(description="what was seen; of GPU detectors, GPU-hours")
    expected_a_day: float | None = Field(
        description="alarms a day at this limit, at most; null where nothing was seen yet"
    )


class ThresholdsView(BaseModel):
    """Limits in force, of what was seen at the latest sweep."""

    items: list[ThresholdView]


def thresholds_router(sources: ReadSources) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/v1", tags=["fleet"])

    @router.get("/thresholds", summary="Limits in force: default, learnt from this fleet, or set")
    def read_thresholds(
        detector: Annotated[str | None, Query(description="only this one")] = None,
    ) -> ThresholdsView:
        found = sources.thresholds()
        return ThresholdsView(
            items=[_view(one) for one in found if detector in (None, one.detector)]
        )

    return router


def _view(one: Threshold) -> ThresholdView:
    return ThresholdView(
        detector=one.detector,
        scope=one.scope,
        limit=one.limit,
        unit=one.unit,
        source=one.source,
        budget=one.budget,
        floor=one.floor,
        default=one.default,
        persist_s=one.persist_s,
        entity_hours=one.entity_hours,
        expected_a_day=one.expected_a_day,
    )
