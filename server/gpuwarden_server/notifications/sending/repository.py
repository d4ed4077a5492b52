"""Messages of lanes, what is kept of a lane, and the delivery log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from gpuwarden_server.notifications.domain import (
    Attempt,
    Backlog,
    LaneRecord,
    Message,
    MessageKind,
    MessagePhase,
)
from gpuwarden_server.store.tables_judging import deliveries
from gpuwarden_server.store.tables_notifications import notify_lanes, notify_messages
from gpuwarden_server.store.upsert import upsert

_WAITING = MessagePhase.WAITING.value


def lane_record(connection: Connection, lane: str) -> LaneRecord:
    """What is kept of a lane."""
    found = connection.execute(select(notify_lanes).where(notify_lanes.c.lane == lane)).first()
    return LaneRecord(*found) if found is not None else LaneRecord(lane)


def save_lane(connection: Connection, lane: str, **values: Any) -> None:
    """Change some of what is kept of a lane."""
    fresh = {"sequence": 0, "disabled_why": ""} | values
    statement = upsert(connection, notify_lanes).values(lane=lane, **fresh)
    connection.execute(statement.on_conflict_do_update(index_elements=["lane"], set_=values))


def add_message(connection: Connection, message: Message, due_at: float) -> None:
    """Queue a message; its row is given by the database, one that exists stays as it is."""
    statement = upsert(connection, notify_messages).values(
        lane=message.lane,
        message_id=message.message_id,
        sequence=message.sequence,
        kind=message.kind.value,
        subject=message.subject,
        created_at=message.created_at,
        since=message.since,
        payload=message.payload,
        phase=_WAITING,
        attempts=0,
        refusals=0,
        next_attempt_at=due_at,
        error="",
    )
    connection.execute(statement.on_conflict_do_nothing(index_elements=["lane", "message_id"]))


def has_message(connection: Connection, lane: str, message_id: str) -> bool:
    """Whether a message was ever queued in a lane."""
    statement = select(notify_messages.c.row).where(
        notify_messages.c.lane == lane, notify_messages.c.message_id == message_id
    )
    return connection.execute(statement).first() is not None


def waits_untried(connection: Connection, lane: str, subject: str) -> bool:
    """Whether a message about a subject waits that was never tried: it will tell what is new."""
    statement = select(notify_messages.c.row).where(
        notify_messages.c.lane == lane,
        notify_messages.c.subject == subject,
        notify_messages.c.phase == _WAITING,
        notify_messages.c.attempts == 0,
    )
    return connection.execute(statement).first() is not None


def drop_untried(
    connection: Connection, lane: str, subject: str, kinds: Sequence[MessageKind]
) -> None:
    """Take messages back that were never tried and tell nothing that a later one does not."""
    connection.execute(
        delete(notify_messages).where(
            notify_messages.c.lane == lane,
            notify_messages.c.subject == subject,
            notify_messages.c.phase == _WAITING,
            notify_messages.c.attempts == 0,
            notify_messages.c.kind.in_([kind.value for kind in kinds]),
        )
    )


def due_messages(connection: Connection, lane: str, now: float, limit: int) -> list[Message]:
    """Messages whose next attempt is due, in order; of one subject only the oldest that waits."""
    statement = (
        select(notify_messages)
        .where(*_next_in(lane), notify_messages.c.next_attempt_at <= now)
        .order_by(notify_messages.c.row)
        .limit(limit)
    )
    return [_message(row) for row in connection.execute(statement)]


def backlog(connection: Connection, lane: str) -> Backlog:
    """What waits in a lane, and what was given up."""
    statement = (
        select(notify_messages.c.phase, func.count())
        .where(
            notify_messages.c.lane == lane,
            notify_messages.c.phase.in_((_WAITING, MessagePhase.GIVEN_UP.value)),
        )
        .group_by(notify_messages.c.phase)
    )
    counts = {phase: int(count) for phase, count in connection.execute(statement)}
    first = select(func.min(notify_messages.c.next_attempt_at)).where(*_next_in(lane))
    return Backlog(
        counts.get(_WAITING, 0),
        counts.get(MessagePhase.GIVEN_UP.value, 0),
        connection.execute(first).scalar(),
    )


def _next_in(lane: str) -> tuple[ColumnElement[bool], ...]:
    """Waiting messages of a lane that no earlier one of the same subject holds up."""
    earlier = notify_messages.alias()
    blocked = (
        select(earlier.c.row)
        .where(
            earlier.c.lane == lane,
            earlier.c.subject == notify_messages.c.subject,
            earlier.c.phase == _WAITING,
            earlier.c.row < notify_messages.c.row,
        )
        .exists()
    )
    return notify_messages.c.lane == lane, notify_messages.c.phase == _WAITING, ~blocked


def record_attempt(
    connection: Connection,
    message: Message,
    attempt: Attempt,
    phase: MessagePhase,
    next_at: float,
) -> None:
    """Log an attempt and move its message."""
    delivery = attempt.delivery
    connection.execute(
        insert(deliveries).values(
            lane=message.lane,
            message_id=message.message_id,
            attempt=message.attempts + 1,
            at=attempt.at,
            duration_s=attempt.duration_s,
            http_status=delivery.http_status,
            error=delivery.error,
        )
    )
    connection.execute(
        update(notify_messages)
        .where(notify_messages.c.row == message.row)
        .values(
            phase=phase.value,
            attempts=message.attempts + 1,
            refusals=message.refusals + int(not (delivery.delivered or delivery.lane_down)),
            next_attempt_at=next_at,
            error=delivery.error,
        )
    )


def give_up_older(connection: Connection, lane: str, before: float, error: str) -> int:
    """Give up what waits in a lane since before a time; how many."""
    found = connection.execute(
        update(notify_messages)
        .where(
            notify_messages.c.lane == lane,
            notify_messages.c.phase == _WAITING,
            notify_messages.c.since < before,
        )
        .values(phase=MessagePhase.GIVEN_UP.value, error=error)
    )
    return int(found.rowcount)


def replay(connection: Connection, lane: str, message_id: str | None, now: float) -> int:
    """Let messages that were given up wait anew, one or all of a lane; how many."""
    statement = update(notify_messages).where(
        notify_messages.c.lane == lane,
        notify_messages.c.phase == MessagePhase.GIVEN_UP.value,
    )
    if message_id is not None:
        statement = statement.where(notify_messages.c.message_id == message_id)
    found = connection.execute(
        statement.values(phase=_WAITING, attempts=0, refusals=0, since=now, next_attempt_at=now)
    )
    return int(found.rowcount)


def read_messages(
    connection: Connection,
    lanes: Sequence[str],
    phase: MessagePhase | None,
    after: int,
    limit: int,
) -> list[dict[str, Any]]:
    """Messages with rows above `after`, oldest first, without their payload."""
    columns = [column for column in notify_messages.c if column.name != "payload"]
    statement = (
        select(*columns)
        .where(notify_messages.c.row > after, notify_messages.c.lane.in_(lanes))
        .order_by(notify_messages.c.row)
        .limit(limit)
    )
    if phase is not None:
        statement = statement.where(notify_messages.c.phase == phase.value)
    return [dict(row) for row in connection.execute(statement).mappings()]


def read_deliveries(
    connection: Connection,
    lanes: Sequence[str],
    message_id: str | None,
    after: int,
    limit: int,
) -> list[dict[str, Any]]:
    """Attempts with rows above `after`, oldest first."""
    statement = (
        select(deliveries)
        .where(deliveries.c.row > after, deliveries.c.lane.in_(lanes))
        .order_by(deliveries.c.row)
        .limit(limit)
    )
    if message_id is not None:
        statement = statement.where(deliveries.c.message_id == message_id)
    return [dict(row) for row in connection.execute(statement).mappings()]


def prune(connection: Connection, before: float) -> None:
    """Forget messages that wait no longer, and attempts, older than a time."""
    connection.execute(
        delete(notify_messages).where(
            notify_messages.c.phase != _WAITING, notify_messages.c.since < before
        )
    )
    connection.execute(delete(deliveries).where(deliveries.c.at < before))


def _message(row: Row[Any]) -> Message:
    return Message(
        row=row.row,
        lane=row.lane,
        message_id=row.message_id,
        sequence=row.sequence,
        kind=MessageKind(row.kind),
        subject=row.subject,
        created_at=row.created_at,
        since=row.since,
        payload=row.payload,
        attempts=row.attempts,
        refusals=row.refusals,
    )
