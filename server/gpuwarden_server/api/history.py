"""/v1/history: what metrics were, for charts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.fleet.repository import nodes_of_gpu
from gpuwarden_server.history.domain import SHAPES, Level
from gpuwarden_server.history.reading import Series, Wanted
from gpuwarden_verdict.segments.blocks import F64, Reason
from gpuwarden_wire.metrics import EntityKind, Storage

MOST_POINTS = 2_000
USUAL_POINTS = 600
MOST_NUMBERS = 200_000
MOST_METRICS = 32
MOST_RAW_S = 6 * 3600.0
LATEST_TIME = 4e9  # the year 2096: beyond it somebody sent milliseconds


class Resolution(StrEnum):
    """How fine an answer is."""

    AUTO = "auto"
    READINGS = "readings"
    MINUTES = "minutes"
    QUARTERS = "quarters"


_LEVELS = {
    Resolution.READINGS: Level.RAW,
    Resolution.MINUTES: Level.MINUTE,
    Resolution.QUARTERS: Level.QUARTER,
}
_NAMES = {level: name for name, level in _LEVELS.items()}

Numbers = list[float | None] | None


class GapView(BaseModel):
    """Places of `times`, both ends included, where a series has no number, and why."""

    first: int
    last: int
    kind: str = Field(description="not_supported, unavailable, stale, or nothing_received")
    reason: str


class SeriesView(BaseModel):
    """One metric of one entity; each list is as long as `times`, null where there is no number."""

    entity: str
    node_id: str
    metric: str
    unit: str
    kind: str = Field(description="gauge, counter or state")
    value: Numbers = Field(None, description="readings, as they were")
    min: Numbers = None
    mean: Numbers = None
    max: Numbers = None
    last: Numbers = Field(None, description="last number in each step")
    increase: Numbers = Field(None, description="growth of a counter in each step, resets guarded")
    gaps: list[GapView]


class HistoryView(BaseModel):
    """Series on one grid of times."""

    resolution: Resolution
    step_s: int | None = Field(description="length of a step, null where these are readings")
    times: list[float] = Field(description="epoch seconds: where each step begins")
    series: list[SeriesView]


def history_router(sources: ReadSources) -> APIRouter:
    """Routes of history."""
    router = APIRouter(prefix="/v1", tags=["history"])
    reader, kept_s = sources.history.reader, sources.history.keeping.seconds

    @router.get(
        "/history",
        summary="What metrics were, columnar, for charts; the open minute included",
        responses={200: {"model": HistoryView}},
        response_class=Response,
    )
    def read_history(
        entity_kind: EntityKind,
        metric: Annotated[list[str], Query(min_length=1, max_length=MOST_METRICS)],
        entity: Annotated[
            str | None, Query(description="a GPU's uuid, a node, or node/device")
        ] = None,
        node: Annotated[
            str | None, Query(description="instead of `entity`: all entities of this node")
        ] = None,
        begin: Annotated[
            float | None,
            Query(alias="from", ge=0, le=LATEST_TIME, description="epoch seconds; an hour before"),
        ] = None,
        to: Annotated[
            float | None, Query(ge=0, le=LATEST_TIME, description="epoch seconds; now")
        ] = None,
        step: Annotated[
            int | None, Query(ge=60, le=86_400, description="seconds; chosen by the range")
        ] = None,
        resolution: Resolution = Resolution.AUTO,
    ) -> Response:
        now = sources.clock.now()
        end = now if to is None else to
        start = end - 3600.0 if begin is None else begin
        _check_range(start, end)
        level = _level_of(resolution, start, end, step, now - kept_s[Level.MINUTE])
        wanted = Wanted(
            kind=entity_kind,
            places=_places(sources, entity_kind, entity, node),
            metrics=tuple(dict.fromkeys(metric)),
            begin=start,
            end=end,
            level=level,
            step_s=_step_of(level, start, end, step),
        )
        grid, series = reader.read(wanted)
        _check_size(grid, series)
        body = msgspec.json.encode(_answer(wanted, grid, series))
        return Response(body, media_type="application/json")

    return router


def _check_range(begin: float, end: float) -> None:
    if not begin < end:
        raise ProblemError(
            422, "invalid_range", f"from={begin:g} is not before to={end:g}", "Swap them."
        )


def _places(
    sources: ReadSources, kind: EntityKind, entity: str | None, node: str | None
) -> tuple[tuple[str, str | None], ...]:
    """Where to look: (node, entity as the node names it)."""
    if (entity is None) == (node is None):
        raise ProblemError(
            422, "invalid_value", "entity or node is needed, and not both", "Name one of them."
        )
    if node is not None:
        return ((sources.node(node).node_id, None),)
    assert entity is not None
    match kind:
        case EntityKind.NODE:
            return ((sources.node(entity).node_id, ""),)
        case EntityKind.GPU:
            owner = sources.gpu(entity).node_id
            with sources.state.read() as connection:
                before = nodes_of_gpu(connection, entity)
            return tuple((one, entity) for one in dict.fromkeys([*before, owner]))
        case EntityKind.NIC | EntityKind.DISK | EntityKind.MOUNT:
            owner, _, device = entity.partition("/")
            return ((sources.node(owner).node_id, device),)
        case EntityKind.PLACE:
            raise ProblemError(
                422,
                "invalid_value",
                f"{entity} is a place, which has no series of its own",
                "Ask for a node or a device behind it.",
            )


def _level_of(
    resolution: Resolution, begin: float, end: float, step: int | None, minutes_from: float
) -> Level:
    if resolution is Resolution.READINGS:
        if end - begin > MOST_RAW_S:
            raise ProblemError(
                422,
                "range_too_long",
                f"readings of {(end - begin) / 3600:.1f} h",
                f"Ask for {MOST_RAW_S / 3600:g} h or less, or for resolution=minutes.",
            )
        return Level.RAW
    if resolution is not Resolution.AUTO:
        return _LEVELS[resolution]
    quarter_s = SHAPES[Level.QUARTER].step_s
    fits = (end - begin) / SHAPES[Level.MINUTE].step_s <= USUAL_POINTS
    wants_fine = fits if step is None else step < quarter_s
    return Level.MINUTE if wants_fine and begin >= minutes_from else Level.QUARTER


def _step_of(level: Level, begin: float, end: float, step: int | None) -> int:
    """The grid's step: what is asked for, in whole steps of the level; else for USUAL_POINTS."""
    own = SHAPES[level].step_s
    asked = (end - begin) / USUAL_POINTS if step is None else step
    chosen = own * max(1, math.ceil(asked / own))
    if level is not Level.RAW and (end - begin) / chosen > MOST_POINTS:
        least = own * math.ceil((end - begin) / MOST_POINTS / own)
        raise ProblemError(
            422,
            "too_many_points",
            f"step={chosen} makes {(end - begin) / chosen:.0f} points, more than {MOST_POINTS}",
            f"Ask for step={least} or more, or for a shorter range.",
        )
    return chosen


def _check_size(grid: F64, series: list[Series]) -> None:
    if grid.size > MOST_POINTS or grid.size * len(series) > MOST_NUMBERS:
        raise ProblemError(
            422,
            "too_many_points",
            f"{len(series)} series of {grid.size} points; at most {MOST_POINTS} points and "
            f"{MOST_NUMBERS} in all",
            "Ask for a shorter range, a longer step, or fewer metrics.",
        )


def _answer(wanted: Wanted, grid: F64, series: Iterable[Series]) -> dict[str, object]:
    return {
        "resolution": _NAMES[wanted.level],
        "step_s": None if wanted.level is Level.RAW else wanted.step_s,
        "times": grid.tolist(),
        "series": [_view(wanted.kind, one) for one in series],
    }


def _view(kind: EntityKind, one: Series) -> dict[str, object]:
    digits = 7 if one.metric.storage is Storage.F32 else 17
    return {
        "entity": _key(kind, one),
        "node_id": one.node_id,
        "metric": one.metric.name,
        "unit": one.metric.unit,
        "kind": one.metric.kind,
        **{name: _numbers(values, digits) for name, values in one.numbers.items()},
        "gaps": [_gap(*gap) for gap in one.gaps],
    }


def _key(kind: EntityKind, one: Series) -> str:
    match kind:
        case EntityKind.NODE:
            return one.node_id
        case EntityKind.GPU:
            return one.entity
        case EntityKind.NIC | EntityKind.DISK | EntityKind.MOUNT | EntityKind.PLACE:
            return f"{one.node_id}/{one.entity}"


def _numbers(values: F64, digits: int) -> list[float | None]:
    """Numbers with the digits that they carry: a float32 has seven."""
    return [None if x != x else float(f"{x:.{digits}g}") for x in values.tolist()]


def _gap(first: int, last: int, reason: Reason | None) -> dict[str, object]:
    kind = "nothing_received" if reason is None else reason.kind.value
    return {"first": first, "last": last, "kind": kind, "reason": reason.words if reason else ""}
