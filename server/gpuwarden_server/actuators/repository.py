"""Steps and holds in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.actuators.domain import Actuation, Phase
from gpuwarden_server.core.pages import LARGEST_ROW, Cursor
from gpuwarden_server.store.tables_actuators import actuations, actuator_holds
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.actuation import REMEDIES, Act, Held, Hold
from gpuwarden_verdict.incidents.moves import GPUWARDEN


def begin(connection: Connection, step: Actuation) -> int:
    """Write a step before it is carried out; returns its row."""
    values = {key: value for key, value in asdict(step).items() if key != "row"}
    values |= {"decisions": list(step.decisions), "jobs": list(step.jobs)}
    answer = connection.execute(insert(actuations).values(values).returning(actuations.c.row))
    return int(answer.scalar_one())


def end(connection: Connection, step: Actuation) -> None:
    """Write how a step ended; one that was done moves what we hold, and is audited."""
    connection.execute(
        update(actuations)
        .where(actuations.c.row == step.row)
        .values(
            phase=step.phase.value,
            after=None if step.after is None else step.after.value,
            detail=step.detail,
            ended_at=step.ended_at,
        )
    )
    if step.phase is Phase.DONE:
        if step.act not in REMEDIES:
            _hold(connection, step)
        record_audit(connection, _audit(step))


def read_open(connection: Connection, actuator: str) -> list[Actuation]:
    """Steps that were begun and not ended, oldest first."""
    c = actuations.c
    chosen = select(actuations).where(c.actuator == actuator, c.phase == Phase.BEGUN.value)
    return [_step(row) for row in connection.execute(chosen.order_by(c.row))]


def read_asked(connection: Connection, actuator: str) -> list[Actuation]:
    """What people asked for and nobody has begun, oldest first."""
    c = actuations.c
    chosen = select(actuations).where(c.actuator == actuator, c.phase == Phase.ASKED.value)
    return [_step(row) for row in connection.execute(chosen.order_by(c.row))]


def move(connection: Connection, step: Actuation) -> None:
    """Write that what was asked is begun."""
    connection.execute(
        update(actuations).where(actuations.c.row == step.row).values(phase=step.phase.value)
    )


def numbered(step: Actuation, row: int) -> Actuation:
    """The step as it is stored."""
    return replace(step, row=row)


def read_holds(connection: Connection, actuator: str) -> Mapping[str, Held]:
    """What we did last, by node."""
    chosen = select(actuator_holds).where(actuator_holds.c.actuator == actuator)
    return {
        row.node_id: Held(Act(row.act), tuple(row.decisions), tuple(row.moved_for))
        for row in connection.execute(chosen)
    }


def read_page(
    connection: Connection,
    after: Cursor | None,
    limit: int,
    actuator: str | None = None,
    node_id: str | None = None,
) -> list[Actuation]:
    """Steps, newest first."""
    c = actuations.c
    chosen = select(actuations).order_by(c.begun_at.desc(), c.row.desc()).limit(limit)
    if actuator is not None:
        chosen = chosen.where(c.actuator == actuator)
    if node_id is not None:
        chosen = chosen.where(c.node_id == node_id)
    if after is not None:
        row = int(after.id) if after.id.isdigit() else LARGEST_ROW
        row = min(row, LARGEST_ROW)
        chosen = chosen.where(or_(c.begun_at < after.at, (c.begun_at == after.at) & (c.row < row)))
    return [_step(row) for row in connection.execute(chosen)]


def _hold(connection: Connection, step: Actuation) -> None:
    values: dict[str, Any] = {"moved_for": list(step.decisions)}
    if step.act is not Act.MOVE:
        values = {"act": step.act.value, "decisions": list(step.decisions), "moved_for": []}
    c = actuator_holds.c
    here = (c.actuator == step.actuator, c.node_id == step.node_id)
    if step.act is Act.EXCLUDE:
        held = read_holds(connection, step.actuator).get(step.node_id)
        # The reason was told anew: what ran there was moved for these decisions all the same.
        values["moved_for"] = list(held.moved_for) if held is not None else []
    values["at"] = step.ended_at
    if connection.execute(update(actuator_holds).where(*here).values(values)).rowcount == 0:
        key = {"actuator": step.actuator, "node_id": step.node_id}
        first = {"act": Act.EXCLUDE.value, "decisions": list(step.decisions)}
        connection.execute(upsert(connection, actuator_holds).values(first | values | key))


def _audit(step: Actuation) -> AuditEntry:
    return AuditEntry(
        at=step.ended_at or step.begun_at,
        author=GPUWARDEN,
        key_id=None,
        action=f"actuate_{step.act.value}",
        target=f"{step.actuator}:{step.node_id}",
        reason=step.reason,
        before={"hold": step.before.value},
        after={
            "hold": None if step.after is None else step.after.value,
            "decisions": list(step.decisions),
            "jobs": list(step.jobs),
        },
    )


def _step(row: Row[Any]) -> Actuation:
    return Actuation(
        row=row.row,
        actuator=row.actuator,
        node_id=row.node_id,
        act=Act(row.act),
        phase=Phase(row.phase),
        decisions=tuple(row.decisions),
        jobs=tuple(row.jobs),
        reason=row.reason,
        before=Hold(row.before),
        after=None if row.after is None else Hold(row.after),
        detail=row.detail,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
    )


def ended(step: Actuation, phase: Phase, after: Hold | None, detail: str, at: float) -> Actuation:
    """The step after its end."""
    return replace(step, phase=phase, after=after, detail=detail, ended_at=at)
