"""Verdicts of people, and what state.db knows of incidents beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, select

from gpuwarden_kernel_log import RecoveryAction
from gpuwarden_server.jobs.repository import read_ends
from gpuwarden_server.learning.labels.domain import (
    JOB_MARGIN_S,
    Case,
    End,
    GivenVerdict,
    Step,
    Verdict,
)
from gpuwarden_server.store.tables_fleet import events
from gpuwarden_server.store.tables_jobs import job_runs
from gpuwarden_server.store.tables_judging import (
    decision_moves,
    decisions,
    entity_state_moves,
    incidents,
)
from gpuwarden_server.store.tables_learning import incident_verdicts
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.detectors.plug_in_check import is_plug_in, proves_repair
from gpuwarden_verdict.detectors.recovery_text import stated_action
from gpuwarden_verdict.detectors.xid import RECOVERY_XID
from gpuwarden_verdict.entities import EntityRef, EntityState, Rung
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.policy.document import DecisionPhase
from gpuwarden_wire.events import Event, EventKind

_NAMES_A_QUERY = 500
_MOST_RUNS = 10_000
_RECOVERIES = (EventKind.CHECK_PASSED, EventKind.NODE_BOOT, EventKind.GPU_BACK)
_event = msgspec.json.Decoder(Event)
_incident = msgspec.json.Decoder(Incident)
Key = tuple[str, str]
T = TypeVar("T")


def read_verdict(connection: Connection, incident_id: str) -> GivenVerdict | None:
    """A person's verdict on an incident, None for none."""
    return _verdicts(connection, [incident_id]).get(incident_id)


def read_judged(connection: Connection, incident_id: str) -> tuple[Incident, GivenVerdict] | None:
    """An incident with a person's verdict on it, None where nobody gave one."""
    return next(iter(_judged(connection, incidents.c.id == incident_id)), None)


def read_judged_since(
    connection: Connection, since: float
) -> Sequence[tuple[Incident, GivenVerdict]]:
    """Incidents that opened from `since` (epoch seconds) on, each with a person's verdict on it."""
    return _judged(connection, incidents.c.opened_at >= since)


def _judged(
    connection: Connection, which: ColumnElement[bool]
) -> list[tuple[Incident, GivenVerdict]]:
    c = incident_verdicts.c
    statement = (
        select(incidents.c.body, c.verdict, c.note, c.author, c.at)
        .join(incidents, incidents.c.id == c.incident_id)
        .where(which)
        .order_by(c.at, c.incident_id)
    )
    return [
        (_incident.decode(body), GivenVerdict(Verdict(verdict), note, author, at))
        for body, verdict, note, author, at in connection.execute(statement)
    ]


def write_verdict(connection: Connection, incident_id: str, given: GivenVerdict) -> None:
    """Insert a verdict, or put it in the place of the one before."""
    values = {
        "verdict": given.verdict.value,
        "note": given.note,
        "author": given.author,
        "at": given.at,
    }
    statement = upsert(connection, incident_verdicts).values(incident_id=incident_id, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["incident_id"], set_=values))


def read_cases(connection: Connection, incidents: Sequence[Incident], now: float) -> list[Case]:
    """All that is known of incidents, in their order.

    Args:
        connection: Reading connection.
        incidents: Whose.
        now: Epoch seconds: until when a live one goes on.
    """
    if not incidents:
        return []
    begin = min(incident.opened_at for incident in incidents)
    end = max(_end_of(incident, now) for incident in incidents)
    nodes = sorted({incident.entity.node_id for incident in incidents})
    given = _verdicts(connection, [incident.id for incident in incidents])
    steps = _steps(connection, {incident.entity.key for incident in incidents}, begin)
    recovered = _recovered(connection, nodes, begin)
    ends = _Ends(connection, nodes, begin, end)
    held = _exclusions(connection, nodes, end, now)
    return [
        Case(
            incident,
            given.get(incident.id),
            [s for s in steps.get(_key(incident.entity), ()) if s.at >= incident.opened_at],
            _within(recovered.passed, incident, now),
            _restarts(recovered, incident, now),
            ends.of(incident, now),
            _excluded_at(held, incident, now),
        )
        for incident in incidents
    ]


def _end_of(incident: Incident, now: float) -> float:
    return now if incident.resolved_at is None else incident.resolved_at


def _key(ref: EntityRef) -> Key:
    return ref.kind.value, ref.key


def _node(ref: EntityRef) -> Key:
    return "node", ref.node_id


def _chunks(names: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(names)
    for first in range(0, len(ordered), _NAMES_A_QUERY):
        yield ordered[first : first + _NAMES_A_QUERY]


def _verdicts(connection: Connection, ids: Collection[str]) -> dict[str, GivenVerdict]:
    c = incident_verdicts.c
    found: dict[str, GivenVerdict] = {}
    for names in _chunks(ids):
        for row in connection.execute(select(incident_verdicts).where(c.incident_id.in_(names))):
            given = GivenVerdict(Verdict(row.verdict), row.note, row.author, row.at)
            found[row.incident_id] = given
    return found


def _steps(
    connection: Connection, entities: Collection[str], begin: float
) -> dict[Key, list[Step]]:
    c = entity_state_moves.c
    found: dict[Key, list[Step]] = defaultdict(list)
    for names in _chunks(entities):
        statement = (
            select(c.entity_kind, c.entity, c.before, c.after, c.at)
            .where(c.entity.in_(names), c.at >= begin)
            .order_by(c.row)
        )
        for kind, entity, before, after, at in connection.execute(statement):
            found[kind, entity].append(Step(EntityState(before), EntityState(after), at))
    return found


@dataclass(frozen=True, slots=True)
class _Recovered:
    """What speaks of recovery, by the entity it speaks of, epoch seconds.

    Attributes:
        passed: Active checks; the agent's own look at its readings proves nothing here.
        reset: GPUs that answer again, and drivers that ask for nothing any more.
        boots: By node: the boot and when it was told.
    """

    passed: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    reset: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    boots: dict[str, list[tuple[str, float]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, event: Event, key: Key, at: float) -> None:
        """Take what is told of one entity."""
        if event.kind is EventKind.CHECK_PASSED:
            if _is_active(event):
                self.passed[key].append(at)
        elif event.kind is EventKind.GPU_BACK or stated_action(event) is RecoveryAction.NONE:
            self.reset[key].append(at)


def _recovered(connection: Connection, nodes: Collection[str], begin: float) -> _Recovered:
    c = events.c
    found = _Recovered()
    told = c.kind.in_([kind.value for kind in _RECOVERIES])
    asks = (c.kind == EventKind.KERNEL_LOG.value) & c.body.like(f'%"xid":{RECOVERY_XID}%')
    for names in _chunks(nodes):
        statement = (
            select(c.node_id, c.entity_kind, c.entity, c.boot_id, c.received_at, c.body)
            .where(c.node_id.in_(names), c.received_at >= begin, told | asks)
            .order_by(c.row)
        )
        for node_id, kind, entity, boot_id, at, body in connection.execute(statement):
            event = _event.decode(body)
            if event.kind is EventKind.NODE_BOOT:
                found.boots[node_id].append((boot_id, at))
            else:
                found.note(event, (kind, entity), at)
    return found


def _is_active(event: Event) -> bool:
    if is_plug_in(event):
        return proves_repair(event)
    return "after" not in event.attributes


def _within(told: dict[Key, list[float]], incident: Incident, now: float) -> list[float]:
    """Of the very entity: a check of its node need not have looked at it."""
    last = _end_of(incident, now)
    return [at for at in told.get(_key(incident.entity), ()) if incident.opened_at <= at <= last]


def _restarts(recovered: _Recovered, incident: Incident, now: float) -> list[float]:
    boots = [
        at
        for boot_id, at in recovered.boots.get(incident.entity.node_id, ())
        if incident.opened_at <= at <= _end_of(incident, now) and boot_id != incident.boot_id
    ]
    return [*_within(recovered.reset, incident, now), *boots]


@dataclass(frozen=True, slots=True)
class _Run:
    """A job on one node, and how it ended."""

    node_id: str
    gpu_uuids: frozenset[str]
    end: End


class _Ends:
    """Ends of jobs that ran on some nodes in a time."""

    def __init__(
        self, connection: Connection, nodes: Collection[str], begin: float, end: float
    ) -> None:
        self._runs: dict[str, list[_Run]] = defaultdict(list)
        c = job_runs.c
        for names in _chunks(nodes):
            statement = (
                select(job_runs)
                .where(c.node_id.in_(names), c.since <= end)
                .where((c.until.is_(None)) | (c.until >= begin - JOB_MARGIN_S))
                .limit(_MOST_RUNS)
            )
            rows = connection.execute(statement).all()
            told = _in_chunks({row.job for row in rows}, lambda jobs: read_ends(connection, jobs))
            last = {one.end.job: one.end for one in told}
            for row in rows:
                if (known := last.get(row.job)) is not None:
                    end_of = End(known.state, row.since, known.at)
                    run = _Run(row.node_id, frozenset(row.gpu_uuids), end_of)
                    self._runs[row.node_id].append(run)

    def of(self, incident: Incident, now: float) -> list[End]:
        """Those in the time of an incident, on its very GPU where it is one."""
        entity, last = incident.entity, _end_of(incident, now) + JOB_MARGIN_S
        return [
            run.end
            for run in self._runs.get(entity.node_id, ())
            if run.end.at >= incident.opened_at - JOB_MARGIN_S
            and (run.end.since or 0.0) <= last
            and (entity.kind.value != "gpu" or not run.gpu_uuids or entity.key in run.gpu_uuids)
        ]


def _in_chunks(names: Collection[str], read: Callable[[list[str]], list[T]]) -> list[T]:
    return [one for chunk in _chunks(names) for one in read(chunk)]


def _exclusions(
    connection: Connection, nodes: Collection[str], end: float, now: float
) -> dict[Key, list[tuple[float, float]]]:
    """When exclusions of ours were in force."""
    c, of = decision_moves.c, decisions.c
    begun: dict[str, float] = {}
    found: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    places: dict[str, Key] = {}
    for names in _chunks(nodes):
        statement = (
            select(c.decision_id, of.entity_kind, of.entity, c.after, c.rung, c.at)
            .join(decisions, of.id == c.decision_id)
            .where(of.node_id.in_(names), of.decided_at <= end)
            .order_by(c.row)
        )
        for decision_id, kind, entity, after, rung, at in connection.execute(statement):
            places[decision_id] = (kind, entity)
            in_force = after == DecisionPhase.IN_FORCE.value and rung >= Rung.EXCLUDE
            if in_force:
                begun.setdefault(decision_id, at)
            elif decision_id in begun:
                found[kind, entity].append((begun.pop(decision_id), at))
    for decision_id, at in begun.items():
        found[places[decision_id]].append((at, now))
    return found


def _excluded_at(
    held: dict[Key, list[tuple[float, float]]], incident: Incident, now: float
) -> float | None:
    """When the first exclusion of it or its node began that overlaps an incident."""
    last = _end_of(incident, now)
    overlapping = (
        begin
        for key in (_key(incident.entity), _node(incident.entity))
        for begin, end in held.get(key, ())
        if begin <= last and end >= incident.opened_at
    )
    return min(overlapping, default=None)
