"""POST /v1/sessions/{session_id}/progress: what a training process tells of its steps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.diagnosis.progress import AGAIN_S, ProgressBook, Told
from gpuwarden_server.doors.outside import derived_id
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_server.jobs import repository
from gpuwarden_server.jobs.domain import possible_names
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.job_loss import JobLoss, loss_event
from gpuwarden_wire.events import JobKind
from gpuwarden_wire.metrics import EntityKind

_LARGEST = 2**53
_EXAMPLE: JsonDict = {"step": 1200, "step_seconds": 1.9, "loss": 2.31, "rank": 0, "node": "gpu-017"}


class ProgressBody(Body):
    """One call of a training process: the step that has just ended."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    step: int = Field(ge=0, le=_LARGEST, description="its number")
    step_seconds: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="how long it took; null: from the time between two calls of the rank",
    )
    loss: float | Literal["nan", "inf", "-inf"] | None = Field(
        None, description="as it is: one that is not finite as a word; null: not told"
    )
    rank: int | None = Field(None, ge=0, le=10_000_000, description="who tells")
    node: str | None = Field(None, max_length=253, description="where that rank runs")
    gpu_uuid: str | None = Field(None, max_length=80, description="on which GPU")


class ProgressView(BaseModel):
    """What became of it."""

    job: str = Field(description="KIND:ID")
    step: int
    odd_loss: str | None = Field(description="not_finite or spike; null where nothing is odd")
    event_id: str | None = Field(
        description="under which an odd loss is evidence of class unknown; null where it is usual, "
        "was told a moment ago, or nobody knows where the rank runs"
    )


@dataclass(frozen=True, slots=True)
class ProgressParts:
    """What the door works with.

    Attributes:
        state: state.db, for who runs where.
        book: Where steps are kept.
        service: Stores events.
        directory: Nodes and GPUs.
        clock: Time.
        registry: Metrics.
    """

    state: Database
    book: ProgressBook
    service: IngestService
    directory: FleetDirectory
    clock: Clock
    registry: CollectorRegistry


def progress_router(parts: ProgressParts) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/v1/sessions", tags=["doors"])
    told = Counter(
        "gpuwarden_job_progress_told_total",
        "Calls of training processes, by whether their loss was odd.",
        ["loss"],
        registry=parts.registry,
    )

    @router.post("/{session_id}/progress", summary="Tell of a step: number, time, loss, rank")
    async def tell_progress(session_id: str, body: ProgressBody, caller: Caller) -> ProgressView:
        job = await asyncio.to_thread(_job, parts, session_id, body, caller)
        loss = None if body.loss is None else float(body.loss)
        now = parts.clock.now()
        odd = parts.book.take(Told(job, body.step, body.step_seconds, loss, body.rank, now))
        event_id = None if odd is None else await _tell(parts, odd, body)
        told.labels("odd" if odd or not math.isfinite(loss or 0.0) else "usual").inc()
        return ProgressView(
            job=job,
            step=body.step,
            odd_loss=None if odd is None else odd.fault.value,
            event_id=event_id,
        )

    return router


def _job(parts: ProgressParts, text: str, body: ProgressBody, caller: Principal) -> str:
    """The job's full name; whoever is narrowed to nodes may only speak of jobs on them.

    Raises:
        ProblemError: 422 it cannot be told which job is meant; 403.
    """
    names = possible_names(text)
    if len(names) == 1 and not caller.scope.names_nodes:
        return _checked(names[0])  # the common case asks the database nothing
    with parts.state.read() as connection:
        runs = repository.read_runs(connection, names)
    open_runs = [run for run in runs if run.until is None] or runs
    seen = sorted({run.job for run in open_runs})
    if len(names) > 1 and len(seen) != 1:
        raise _unclear(text, seen)
    nodes = [run.node_id for run in open_runs] or ([body.node] if body.node else [])
    _require(caller, nodes)
    return _checked(names[0] if len(names) == 1 else seen[0])


def _checked(job: str) -> str:
    if len(job) > 300:
        raise ProblemError(
            422, "invalid_value", f"a job's name of {len(job)} characters", "At most 300 are kept."
        )
    return job


def _require(caller: Principal, nodes: Sequence[str]) -> None:
    if not caller.scope.names_nodes or any(caller.covers(node) for node in nodes):
        return
    if not nodes:
        caller.require_whole("tell of a job that no inventory names")
    caller.require_nodes(nodes)


def _unclear(text: str, seen: Sequence[str]) -> ProblemError:
    kinds = ", ".join(f"{kind}:{text}" for kind in JobKind)
    return ProblemError(
        422,
        "unknown_job",
        f"{text!r} may be {' or '.join(seen)}" if seen else f"no job {text!r} was seen to run",
        f"Say of which kind it is: {kinds}.",
    )


async def _tell(parts: ProgressParts, odd: JobLoss, body: ProgressBody) -> str | None:
    """Tell the judge, where it is known what the rank runs on."""
    ref = _place(parts, body)
    if ref is None:
        return None
    event_id = f"job-loss:{derived_id(odd.job, odd.rank, odd.step, int(odd.at // AGAIN_S))}"
    await parts.service.tell(ref.node_id, loss_event(event_id, odd, ref))
    return event_id


def _place(parts: ProgressParts, body: ProgressBody) -> EntityRef | None:
    gpu = None if body.gpu_uuid is None else parts.directory.gpu(body.gpu_uuid)
    if gpu is not None:
        return EntityRef(EntityKind.GPU, gpu.gpu_uuid, gpu.node_id)
    node = None if body.node is None else parts.service.present_name(body.node)
    if node is None or parts.directory.node(node) is None:
        return None
    return EntityRef(EntityKind.NODE, node, node)
