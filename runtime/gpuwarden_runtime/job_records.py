"""What the server answers about jobs."""

from __future__ import annotations

import msgspec

from gpuwarden_runtime.records import IncidentRecord


class JobRunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job on one node; `until` is None while it runs. Times in epoch seconds."""

    node_id: str
    gpu_uuids: tuple[str, ...] = ()
    since: float
    until: float | None = None


class JobEndRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, as a scheduler told."""

    state: str
    exit_code: int | None = None
    user: str = ""
    ended_at: float


class JobFindingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that bears upon a job, and what it speaks for."""

    cause: str
    sentence: str
    first_at: float
    incident: IncidentRecord


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Was it the program or the hardware.

    Attributes:
        job: "KIND:ID".
        cause: hardware, storage, network, place, application, unknown or none.
        line: The answer in one line.
        confidence: 0..1.
        incident_id: Incident that decided, None where none did.
        node_id: Node at fault, None for a place and where none is.
        entity: What is at fault.
        action: Recommended.
        running: Whether it still runs, as far as is known.
        since: Epoch seconds.
        until: Epoch seconds, None while it runs.
        nodes: On how many nodes it ran.
        gpus: On how many GPUs.
        blind: What could not be seen.
        ends: How it ended, as schedulers told.
        runs: Where it ran.
        findings: All that bears upon it, the gravest first.
    """

    job: str
    cause: str
    line: str
    confidence: float
    incident_id: str | None = None
    node_id: str | None = None
    entity: str | None = None
    action: str = "none"
    running: bool = False
    since: float = 0.0
    until: float | None = None
    nodes: int = 0
    gpus: int = 0
    blind: tuple[str, ...] = ()
    ends: tuple[JobEndRecord, ...] = ()
    runs: tuple[JobRunRecord, ...] = ()
    findings: tuple[JobFindingRecord, ...] = ()


class ToldItem(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thing that was told: stored, duplicate or refused."""

    index: int
    outcome: str
    event_id: str | None = None
    node_id: str | None = None
    code: str | None = None
    detail: str = ""
    mend: str = ""


class ToldItems(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all that was told."""

    items: tuple[ToldItem, ...] = ()
