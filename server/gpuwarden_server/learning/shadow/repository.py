"""Shadow runs, would-be exclusions and trials in state.db."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, select

from gpuwarden_server.learning.shadow.domain import Role, ShadowRun, WouldExclude
from gpuwarden_server.store.tables_fleet import gpus, nodes
from gpuwarden_server.store.tables_judging import incidents
from gpuwarden_server.store.tables_learning import shadow_exclusions, shadow_runs, trial_runs
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.fusion.gate import TrialKind, TrialRun
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_wire.metrics import EntityKind

_NAMES_A_QUERY = 500
_incident = msgspec.json.Decoder(Incident)
ModelKey = tuple[EntityKind, str]
"""Kind and version."""


def read_runs(connection: Connection) -> dict[ModelKey, ShadowRun]:
    """All runs."""
    return {
        (EntityKind(row.kind), row.version): ShadowRun(
            EntityKind(row.kind),
            row.version,
            Role(row.role),
            row.begun_at,
            row.seen_at,
            row.digest,
            row.exclude_confidence,
            row.healthy_days,
        )
        for row in connection.execute(select(shadow_runs))
    }


def write_runs(connection: Connection, runs: Iterable[ShadowRun]) -> None:
    """Insert or replace runs."""
    for run in runs:
        values = {
            "role": run.role.value,
            "begun_at": run.begun_at,
            "seen_at": run.seen_at,
            "digest": run.digest,
            "exclude_confidence": run.exclude_confidence,
            "healthy_days": run.healthy_days,
        }
        keys = {"kind": run.kind.value, "version": run.version}
        statement = upsert(connection, shadow_runs).values(**keys, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=values))


def write_exclusions(connection: Connection, many: Iterable[WouldExclude]) -> None:
    """Insert or replace would-be exclusions."""
    for one in many:
        values = {
            "until": one.until,
            "probability": one.probability,
            "fault_class": one.fault_class,
            "planes": ",".join(one.planes),
        }
        row = {
            "id": one.id,
            "version": one.version,
            "entity_kind": one.entity.kind.value,
            "entity": one.entity.key,
            "node_id": one.entity.node_id,
            "since": one.since,
        }
        statement = upsert(connection, shadow_exclusions).values(**row, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))


def read_exclusions(
    connection: Connection, model: ModelKey, since: float, limit: int
) -> list[WouldExclude]:
    """Newest would-be exclusions of a model from `since` (epoch seconds) on, newest first."""
    c = shadow_exclusions.c
    statement = (
        select(shadow_exclusions)
        .where(c.entity_kind == model[0].value, c.version == model[1], c.since >= since)
        .order_by(c.since.desc(), c.id)
        .limit(limit)
    )
    return [_exclusion(row) for row in connection.execute(statement)]


def read_going_on(connection: Connection) -> list[WouldExclude]:
    """Would-be exclusions that have not ended."""
    statement = select(shadow_exclusions).where(shadow_exclusions.c.until.is_(None))
    return [_exclusion(row) for row in connection.execute(statement)]


def delete_old(connection: Connection, before: float) -> None:
    """Forget would-be exclusions that ended before `before`, epoch seconds."""
    connection.execute(delete(shadow_exclusions).where(shadow_exclusions.c.until < before))


def delete_model(connection: Connection, model: ModelKey) -> None:
    """Forget what was tried of a version."""
    kind, version = model[0].value, model[1]
    for table in (shadow_runs, trial_runs):
        connection.execute(delete(table).where(table.c.kind == kind, table.c.version == version))
    c = shadow_exclusions.c
    connection.execute(delete(shadow_exclusions).where(c.entity_kind == kind, c.version == version))


def read_incidents(
    connection: Connection, kind: EntityKind, entities: Collection[str], since: float
) -> list[Incident]:
    """Incidents of entities that opened from `since` (epoch seconds) on."""
    c, found, names = incidents.c, list[Incident](), sorted(entities)
    for first in range(0, len(names), _NAMES_A_QUERY):
        wanted = names[first : first + _NAMES_A_QUERY]
        statement = select(c.body).where(
            c.entity_kind == kind.value, c.entity.in_(wanted), c.opened_at >= since
        )
        found += [_incident.decode(body) for body in connection.execute(statement).scalars()]
    return found


def known_among(
    connection: Connection, kind: EntityKind, entities: Collection[str]
) -> frozenset[str]:
    """Those of `entities` that this server has heard of; NICs go by the node that they name."""
    if kind is EntityKind.GPU:
        known = set(connection.execute(select(gpus.c.gpu_uuid)).scalars())
        return frozenset(entities) & known
    known = set(connection.execute(select(nodes.c.node_id)).scalars())
    return frozenset(one for one in entities if one.partition("/")[0] in known)


def read_trials(connection: Connection, model: ModelKey) -> dict[TrialKind, TrialRun]:
    """Trials of a model, by how it was tried."""
    c = trial_runs.c
    statement = select(trial_runs).where(c.kind == model[0].value, c.version == model[1])
    return {
        TrialKind(row.trial): TrialRun(
            TrialKind(row.trial),
            row.version,
            row.healthy_days,
            row.false_actions,
            row.recorded_at,
            row.digest,
            row.exclude_confidence,
        )
        for row in connection.execute(statement)
    }


def write_trial(connection: Connection, kind: EntityKind, trial: TrialRun, author: str) -> None:
    """Insert a trial, or put it in the place of the one before."""
    values = {
        "healthy_days": trial.gpu_days,
        "false_actions": trial.false_actions,
        "recorded_at": trial.recorded_at,
        "digest": trial.model_digest,
        "exclude_confidence": trial.exclude_confidence,
        "author": author,
    }
    keys = {"trial": trial.kind.value, "kind": kind.value, "version": trial.model_version}
    statement = upsert(connection, trial_runs).values(**keys, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=values))


def _exclusion(row: Row[Any]) -> WouldExclude:
    return WouldExclude(
        row.id,
        row.version,
        EntityRef(EntityKind(row.entity_kind), row.entity, row.node_id),
        row.since,
        row.until,
        row.probability,
        row.fault_class,
        tuple(row.planes.split(",")) if row.planes else (),
    )
