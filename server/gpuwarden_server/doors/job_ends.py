"""Ends of jobs, as schedulers' epilogs tell them: kept, and told of each node that ran the job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.doors.outside import derived_id
from gpuwarden_server.doors.schemas import ItemView, JobEndBody
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_server.jobs import repository
from gpuwarden_server.jobs.domain import JobRun, ToldEnd, possible_names
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.entities import Contact
from gpuwarden_verdict.job_ends import JOB_STATES, JobEnd, end_event
from gpuwarden_wire.events import JobKind

SAME_END_S = 600.0
"""An epilog runs on each node of the job: who says the same within this time repeats it."""
TOLD_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class JobEndParts:
    """What the door works with.

    Attributes:
        state: state.db.
        service: Stores events.
        directory: Nodes.
        facts: Who is retired.
        clock: Time.
        future_tolerance_s: How far times may be ahead of the server's clock.
    """

    state: Database
    service: IngestService
    directory: FleetDirectory
    facts: FleetFacts
    clock: Clock
    future_tolerance_s: float


class JobEndDoor:
    """Takes ends of jobs."""

    def __init__(self, parts: JobEndParts) -> None:
        self._parts = parts

    async def take(self, index: int, body: JobEndBody, caller: Principal) -> ItemView:
        """Keep one end and tell the judge of it.

        Args:
            index: Its place in what was sent.
            body: What is said.
            caller: Who says it.

        Raises:
            ProblemError: It is refused; names the field and the mend.
        """
        now = self._parts.clock.now()
        told = await asyncio.to_thread(self._told, body, caller, now)
        if told is None:
            return ItemView(index=index, outcome="duplicate")
        event_id = f"job-end:{told.id}"
        gate = asyncio.Semaphore(TOLD_AT_ONCE)

        async def tell(node_id: str) -> None:
            async with gate:
                await self._parts.service.tell(node_id, end_event(event_id, told.end))

        await asyncio.gather(*map(tell, told.nodes))
        # Last: where the process ends before this, the same end is told again.
        await asyncio.wrap_future(
            self._parts.state.writer.submit(lambda connection: repository.add_end(connection, told))
        )
        return ItemView(index=index, outcome="stored", event_id=event_id)

    def _told(self, body: JobEndBody, caller: Principal, now: float) -> ToldEnd | None:
        """What is to be kept; None where it is already."""
        at = now if body.ended_at is None else body.ended_at
        if at > now + self._parts.future_tolerance_s:
            raise ProblemError(
                422,
                "in_future",
                f"ended_at {at:.0f} is ahead of the server's clock",
                "Send epoch seconds (not milliseconds) of a clock that is kept by NTP.",
            )
        names = possible_names(body.job)
        with self._parts.state.read() as connection:
            runs = repository.read_runs(connection, names)
            ends = repository.read_ends(connection, names)
        job = _job(body.job, names, runs)
        state = _state(body.state)
        nodes = self._nodes(job, body.nodes, runs, ends, caller)
        for former in ends:
            if former.end.state == state and abs(former.end.at - at) < SAME_END_S:
                return None
        end = JobEnd(job, state, body.exit_code, body.user, at, len(nodes))
        ident = derived_id(job, state, body.exit_code, at)
        return ToldEnd(ident, end, nodes, now, caller.name)

    def _nodes(
        self,
        job: str,
        named: Sequence[str],
        runs: Sequence[JobRun],
        ends: Sequence[ToldEnd],
        caller: Principal,
    ) -> tuple[str, ...]:
        """Where it ran: as is said, else in its newest run that no end is known of."""
        ended_at = max((one.end.at for one in ends), default=0.0)
        latest = [run for run in runs if run.until is None or run.until > ended_at] or runs
        present = {self._parts.service.present_name(name) for name in named}
        nodes = sorted(present or {run.node_id for run in latest if run.job == job})
        unknown = [node for node in nodes if self._parts.directory.node(node) is None]
        if unknown:
            raise ProblemError(
                422,
                "unknown_node",
                f"no node {unknown[0]!r} is known",
                "See GET /v1/nodes for the names.",
            )
        nodes = [n for n in nodes if self._parts.facts.contact_of(n) is not Contact.RETIRED]
        if not nodes:
            raise ProblemError(
                422,
                "unknown_job",
                f"no inventory named job {job!r}, so that nobody knows where it ran",
                "Name its nodes; agents tell of jobs where they see the processes of GPUs.",
            )
        covered = tuple(node for node in nodes if caller.covers(node))
        if not covered:
            caller.require_nodes(nodes)
        return covered


def _job(text: str, names: Sequence[str], runs: Sequence[JobRun]) -> str:
    if len(names) == 1:
        return names[0]
    seen = sorted({run.job for run in runs})
    if len(seen) == 1:
        return seen[0]
    kinds = ", ".join(f"{kind}:{text}" for kind in JobKind)
    raise ProblemError(
        422,
        "unknown_job",
        f"{text!r} may be {' or '.join(seen)}" if seen else f"no job {text!r} was seen to run",
        f"Say of which kind it is: {kinds}.",
    )


def _state(text: str) -> str:
    # Slurm writes "CANCELLED by 1000" and "COMPLETED+".
    state = text.strip().split()[0].rstrip("+").upper() if text.strip() else ""
    if state not in JOB_STATES:
        raise ProblemError(
            422,
            "invalid_value",
            f"state {text!r} is none that is known",
            f"Say one of {', '.join(JOB_STATES)}.",
        )
    return state
