"""What state.db knows of decisions that excluded, or would have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from sqlalchemy import Column, Connection, select

from gpuwarden_server.incidents import repository as incident_rows
from gpuwarden_server.learning.labels.domain import Label, label_of
from gpuwarden_server.learning.labels.repository import read_cases
from gpuwarden_server.store.tables_jobs import job_runs
from gpuwarden_server.store.tables_judging import decision_moves, decisions
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.document import LIVE_PHASES, Decision, DecisionPhase

JOB_MARGIN_S = 120.0
"""A job that ended so shortly before an exclusion is what it was about."""
_A_QUERY = 500
_LIVE = frozenset(phase.value for phase in LIVE_PHASES)
_decoder = msgspec.json.Decoder(Decision)


class _Run(NamedTuple):
    job: str
    node_id: str
    gpu_uuids: tuple[str, ...]
    since: float
    until: float | None

    def is_at(self, at: float) -> bool:
        """Whether it ran at a time, or ended shortly before."""
        return self.since <= at and (self.until is None or self.until >= at - JOB_MARGIN_S)


class _Move(NamedTuple):
    after: str
    rung: int
    at: float


@dataclass(frozen=True, slots=True)
class Span:
    """When a decision excluded, or would have.

    Attributes:
        decision: It.
        acted: It was in force; else it only would have.
        rung: The highest that it came to.
        begun_at: Epoch seconds.
        ended_at: Epoch seconds, None while it stands.
    """

    decision: Decision
    acted: bool
    rung: Rung
    begun_at: float
    ended_at: float | None


def read_exclusions(
    connection: Connection, since: float, limit: int, node_id: str | None = None
) -> list[Decision]:
    """Decisions at a rung that excludes, made since a time (epoch seconds), newest first."""
    c = decisions.c
    statement = select(c.body).where(c.rung >= int(Rung.EXCLUDE), c.decided_at >= since)
    if node_id is not None:
        statement = statement.where(c.node_id == node_id)
    order = (c.decided_at.desc(), c.id.desc())
    bodies = connection.execute(statement.order_by(*order).limit(limit)).scalars()
    return [_decoder.decode(body) for body in bodies]


def read_spans(connection: Connection, found: Sequence[Decision]) -> list[Span]:
    """When decisions excluded, or would have; those that never came to exclude are left out."""
    c = decision_moves.c
    moves: dict[str, list[_Move]] = defaultdict(list)
    for ids in _chunks(one.id for one in found):
        statement = select(c.decision_id, c.after, c.rung, c.at).where(c.decision_id.in_(ids))
        for row in connection.execute(statement.order_by(c.row)):
            moves[row.decision_id].append(_Move(row.after, row.rung, row.at))
    spans = (_span(one, moves[one.id]) for one in found)
    return [span for span in spans if span is not None]


def read_labels(connection: Connection, ids: Collection[str], now: float) -> dict[str, Label]:
    """What incidents turned out to be, by id; those that are gone are left out."""
    incidents = [incident_rows.read_one(connection, one) for one in sorted(set(ids))]
    known = [one for one in incidents if one is not None]
    return {case.incident.id: label_of(case) for case in read_cases(connection, known, now)}


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran where a decision acted: the jobs, and their GPUs on all their nodes."""

    jobs: frozenset[str]
    gpus: int


def read_jobs(connection: Connection, spans: Sequence[Span]) -> dict[str, Ran]:
    """The jobs that decisions were about, by decision.

    Those of which nobody knows what ran there are left out.
    """
    if not spans:
        return {}
    first = min(span.begun_at for span in spans) - JOB_MARGIN_S
    last = max(span.begun_at for span in spans)
    nodes = {span.decision.entity.node_id for span in spans}
    here: dict[str, list[_Run]] = defaultdict(list)
    for run in _runs(connection, job_runs.c.node_id, nodes, first, last):
        here[run.node_id].append(run)
    found = {span.decision.id: _jobs_of(span, here[span.decision.entity.node_id]) for span in spans}
    wanted = {job for jobs in found.values() for job in jobs}
    whole: dict[str, list[_Run]] = defaultdict(list)
    for run in _runs(connection, job_runs.c.job, wanted, first, last):
        whole[run.job].append(run)
    counted = {span.decision.id: _gpus(found[span.decision.id], whole, span) for span in spans}
    return {name: Ran(frozenset(found[name]), gpus) for name, gpus in counted.items() if gpus}


def _runs(
    connection: Connection, column: Column[str], names: Collection[str], first: float, last: float
) -> Iterator[_Run]:
    c = job_runs.c
    for some in _chunks(sorted(names)):
        statement = select(c.job, c.node_id, c.gpu_uuids, c.since, c.until).where(
            column.in_(some), c.since <= last, (c.until.is_(None)) | (c.until >= first)
        )
        for row in connection.execute(statement):
            yield _Run(row.job, row.node_id, tuple(row.gpu_uuids), row.since, row.until)


def _jobs_of(span: Span, runs: Iterable[_Run]) -> set[str]:
    entity = span.decision.entity
    whole = entity.key == entity.node_id
    return {
        run.job
        for run in runs
        if run.is_at(span.begun_at) and (whole or _is_on(run.gpu_uuids, entity.key))
    }


def _gpus(jobs: Iterable[str], whole: Mapping[str, Sequence[_Run]], span: Span) -> int:
    runs = (run for job in jobs for run in whole.get(job, ()) if run.is_at(span.begun_at))
    return sum(len(run.gpu_uuids) for run in runs)


def _is_on(gpu_uuids: Collection[str], gpu_uuid: str) -> bool:
    return not gpu_uuids or gpu_uuid in gpu_uuids


def _span(decision: Decision, moves: Sequence[_Move]) -> Span | None:
    excluding = [move for move in moves if move.rung >= Rung.EXCLUDE]
    acting = [move for move in excluding if move.after == DecisionPhase.IN_FORCE.value]
    begun = (acting or [move for move in excluding if move.after in _LIVE])[:1]
    if not begun:
        return None
    ends = (move.at for move in moves if move.at >= begun[0].at and move.after not in _LIVE)
    rung = Rung(max(move.rung for move in (acting or excluding)))
    return Span(decision, bool(acting), rung, begun[0].at, next(ends, None))


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    ordered = list(names)
    for first in range(0, len(ordered), _A_QUERY):
        yield ordered[first : first + _A_QUERY]
