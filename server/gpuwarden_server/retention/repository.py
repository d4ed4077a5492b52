"""What is old enough to go, by table, and its deletion.

Looking is done on a reader's connection and may take a while; a deletion is short, by keys, since
it runs between the commits of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from sqlalchemy import Connection, Select, and_, delete, exists, func, not_, select

from gpuwarden_server.judging.repository import (
    STANDING_KINDS,
    read_newest_boots,
    read_position,
)
from gpuwarden_server.store.tables_actuators import actuations
from gpuwarden_server.store.tables_checkpoints import job_checkpoints
from gpuwarden_server.store.tables_diagnosis import diagnoses, diagnosis_nodes
from gpuwarden_server.store.tables_fleet import audit, events
from gpuwarden_server.store.tables_jobs import job_ends, job_runs
from gpuwarden_server.store.tables_judging import (
    decision_moves,
    decisions,
    entity_state_moves,
    incident_moves,
    incidents,
)
from gpuwarden_server.store.tables_learning import incident_verdicts
from gpuwarden_server.store.tables_policies import decision_snapshots
from gpuwarden_server.store.tables_progress import job_progress
from gpuwarden_server.store.tables_standby import standby_leases
from gpuwarden_verdict.entities import EntityState
from gpuwarden_verdict.incidents.domain import IncidentPhase
from gpuwarden_verdict.policy.document import LIVE_PHASES

Key = int | str
_LIVE = [phase.value for phase in LIVE_PHASES]
_STANDING = frozenset(kind.value for kind in STANDING_KINDS)


class Kept(StrEnum):
    """What is kept for a while, named as its table."""

    EVENTS = "events"
    INCIDENTS = "incidents"
    DECISIONS = "decisions"
    STATE_MOVES = "entity_state_moves"
    AUDIT = "audit"
    JOB_RUNS = "job_runs"
    JOB_ENDS = "job_ends"
    ACTUATIONS = "actuations"
    STANDBY_LEASES = "standby_leases"
    SNAPSHOTS = "decision_snapshots"
    DIAGNOSES = "diagnoses"
    JOB_PROGRESS = "job_progress"
    JOB_CHECKPOINTS = "job_checkpoints"


@dataclass(frozen=True, slots=True)
class Found:
    """What one look found.

    Attributes:
        keys: Of rows that may go.
        after: Row up to which was looked, where the next look begins.
        is_last: Nothing older lies behind it.
    """

    keys: Sequence[Key]
    after: int = 0
    is_last: bool = False


def find_old(connection: Connection, what: Kept, before: float, after: int, limit: int) -> Found:
    """Rows that may go.

    Args:
        connection: Reading connection.
        what: The table.
        before: Epoch seconds; what is younger stays.
        after: For events: where the look before this one ended, 0 at first.
        limit: At most so many.
    """
    statement: Select[Any]
    match what:
        case Kept.EVENTS:
            return _old_events(connection, before, after, limit)
        case Kept.INCIDENTS:
            statement = _old_incidents(before)
        case Kept.DECISIONS:
            statement = _old_decisions(before)
        case Kept.STATE_MOVES:
            statement = _old_state_moves(before)
        case Kept.AUDIT:
            statement = select(audit.c.id).where(audit.c.at < before)
        case Kept.JOB_RUNS:
            statement = select(job_runs.c.id).where(job_runs.c.until < before)
        case Kept.JOB_ENDS:
            statement = select(job_ends.c.id).where(job_ends.c.ended_at < before)
        case Kept.ACTUATIONS:
            c = actuations.c
            statement = select(c.row).where(c.begun_at < before, c.phase != "begun")
        case Kept.STANDBY_LEASES:
            statement = _old_leases(before)
        case Kept.SNAPSHOTS:
            rows = decision_snapshots.c
            statement = select(rows.row).where(rows.at < before).order_by(rows.at)
        case Kept.DIAGNOSES:
            made = diagnoses.c
            statement = select(made.id).where(made.at < before).order_by(made.at)
        case Kept.JOB_PROGRESS:
            steps = job_progress.c
            statement = select(steps.row).where(steps.at < before).order_by(steps.at)
        case Kept.JOB_CHECKPOINTS:
            saved = job_checkpoints.c
            statement = select(saved.row).where(saved.begin < before).order_by(saved.begin)
        case _:
            assert_never(what)
    keys = list(connection.scalars(statement.limit(limit)))
    return Found(keys, is_last=len(keys) < limit)


def delete_rows(connection: Connection, what: Kept, keys: Sequence[Key]) -> None:
    """Delete rows that `find_old` found, with what belongs to them alone."""
    match what:
        case Kept.EVENTS:
            connection.execute(delete(events).where(events.c.row.in_(keys)))
        case Kept.INCIDENTS:
            moves = incident_moves.c.incident_id.in_(keys)
            connection.execute(delete(incident_moves).where(moves))
            given = incident_verdicts.c.incident_id.in_(keys)
            connection.execute(delete(incident_verdicts).where(given))
            connection.execute(delete(incidents).where(incidents.c.id.in_(keys)))
        case Kept.DECISIONS:
            connection.execute(delete(decision_moves).where(decision_moves.c.decision_id.in_(keys)))
            connection.execute(delete(decisions).where(decisions.c.id.in_(keys)))
        case Kept.STATE_MOVES:
            rows = entity_state_moves.c.row.in_(keys)
            connection.execute(delete(entity_state_moves).where(rows))
        case Kept.AUDIT:
            connection.execute(delete(audit).where(audit.c.id.in_(keys)))
        case Kept.JOB_RUNS:
            connection.execute(delete(job_runs).where(job_runs.c.id.in_(keys)))
        case Kept.JOB_ENDS:
            connection.execute(delete(job_ends).where(job_ends.c.id.in_(keys)))
        case Kept.ACTUATIONS:
            connection.execute(delete(actuations).where(actuations.c.row.in_(keys)))
        case Kept.STANDBY_LEASES:
            connection.execute(delete(standby_leases).where(standby_leases.c.epoch.in_(keys)))
        case Kept.SNAPSHOTS:
            old = decision_snapshots.c.row.in_(keys)
            connection.execute(delete(decision_snapshots).where(old))
        case Kept.DIAGNOSES:
            about = diagnosis_nodes.c.diagnosis_id.in_(keys)
            connection.execute(delete(diagnosis_nodes).where(about))
            connection.execute(delete(diagnoses).where(diagnoses.c.id.in_(keys)))
        case Kept.JOB_PROGRESS:
            connection.execute(delete(job_progress).where(job_progress.c.row.in_(keys)))
        case Kept.JOB_CHECKPOINTS:
            connection.execute(delete(job_checkpoints).where(job_checkpoints.c.row.in_(keys)))
        case _:
            assert_never(what)


def _old_events(connection: Connection, before: float, after: int, limit: int) -> Found:
    """In order of arrival, which is that of their age: no look goes beyond the first young one."""
    judged = read_position(connection)
    c = events.c
    statement = (
        select(c.row, c.received_at, c.kind, c.node_id)
        .where(c.row > after, c.row <= judged)
        .order_by(c.row)
        .limit(limit)
    )
    rows = connection.execute(statement).all()
    old = [row for row in rows if row.received_at < before]
    boots = read_newest_boots(connection) if any(row.kind in _STANDING for row in old) else {}
    keys = [row.row for row in old if not _stands(row.kind, row.node_id, row.row, boots)]
    is_last = len(rows) < limit or len(old) < len(rows)
    return Found(keys, old[-1].row if old else after, is_last)


def _stands(kind: str, node_id: str, row: int, boots: Mapping[str, int]) -> bool:
    """Whether a starting judge still asks for it: the newest boot, and own trouble since."""
    return kind in _STANDING and row >= boots.get(node_id, 0)


def _old_incidents(before: float) -> Select[str]:
    """Resolved for long, and nothing that may still act stands on them."""
    acts = exists().where(decisions.c.incident_id == incidents.c.id, decisions.c.phase.in_(_LIVE))
    return (
        select(incidents.c.id)
        .where(
            incidents.c.opened_at < before,
            incidents.c.phase == IncidentPhase.RESOLVED.value,
            incidents.c.resolved_at < before,
            not_(acts),
        )
        .order_by(incidents.c.opened_at)
    )


def _old_decisions(before: float) -> Select[str]:
    """Over, and without a move since."""
    moved = exists().where(
        decision_moves.c.decision_id == decisions.c.id, decision_moves.c.at >= before
    )
    return (
        select(decisions.c.id)
        .where(decisions.c.decided_at < before, decisions.c.phase.not_in(_LIVE), not_(moved))
        .order_by(decisions.c.decided_at)
    )


def _old_leases(before: float) -> Select[int]:
    """Ended; the newest one stays, so that no epoch comes twice."""
    c = standby_leases.c
    newest = select(func.max(c.epoch)).scalar_subquery()
    return select(c.epoch).where(c.ended_at < before, c.epoch < newest).order_by(c.epoch)


def _old_state_moves(before: float) -> Select[int]:
    """All but the ends of repairs, by which a judge tells old faults from new ones."""
    c = entity_state_moves.c
    ends_repair = and_(
        c.before == EntityState.IN_REPAIR.value, c.after == EntityState.PROBATION.value
    )
    return select(c.row).where(c.at < before, not_(ends_repair)).order_by(c.row)
