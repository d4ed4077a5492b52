"""The outbox and its delivery log."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select, update

from gpuwarden_server.store.database import Database
from gpuwarden_server.store.tables_judging import deliveries, outbox
from gpuwarden_server.store.upsert import upsert
from gpuwarden_server.webhooks.domain import Attempt, MessagePhase, NewMessage, OutboxMessage


def add_messages(connection: Connection, messages: Sequence[NewMessage]) -> None:
    """Write messages inside the transaction of their facts; one that exists stays as it is."""
    if not messages:
        return
    rows = [
        {
            "message_id": message.message_id,
            "kind": message.kind.value,
            "created_at": message.created_at,
            "payload": message.payload,
            "phase": MessagePhase.WAITING.value,
            "attempts": 0,
            "next_attempt_at": message.created_at,
        }
        for message in messages
    ]
    statement = upsert(connection, outbox).on_conflict_do_nothing(index_elements=["message_id"])
    connection.execute(statement, rows)


class OutboxRepository:
    """What waits for delivery."""

    def __init__(self, state: Database) -> None:
        self._state = state

    def due(self, now: float, limit: int) -> list[OutboxMessage]:
        """The oldest messages whose next attempt is due, in order of the facts."""
        statement = (
            select(
                outbox.c.message_id,
                outbox.c.created_at,
                outbox.c.payload,
                outbox.c.attempts,
                outbox.c.next_attempt_at,
            )
            .where(outbox.c.phase == MessagePhase.WAITING.value, outbox.c.next_attempt_at <= now)
            .order_by(outbox.c.row)
            .limit(limit)
        )
        with self._state.read() as connection:
            return [OutboxMessage(*row) for row in connection.execute(statement)]

    def backlog(self) -> tuple[int, float | None]:
        """How many messages wait, and when the first of them is due; None where none waits."""
        statement = select(func.count(), func.min(outbox.c.next_attempt_at)).where(
            outbox.c.phase == MessagePhase.WAITING.value
        )
        with self._state.read() as connection:
            count, first_due = connection.execute(statement).one()
        return int(count), first_due

    def record_attempt(
        self, message: OutboxMessage, attempt: Attempt, phase: MessagePhase, next_at: float
    ) -> None:
        """Log an attempt and move its message, in one transaction."""

        def write(connection: Connection) -> None:
            connection.execute(
                insert(deliveries).values(
                    message_id=message.message_id,
                    attempt=message.attempts + 1,
                    at=attempt.at,
                    duration_s=attempt.duration_s,
                    http_status=attempt.http_status,
                    error=attempt.error,
                )
            )
            connection.execute(
                update(outbox)
                .where(outbox.c.message_id == message.message_id)
                .values(phase=phase.value, attempts=message.attempts + 1, next_attempt_at=next_at)
            )

        self._state.writer.call(write)
