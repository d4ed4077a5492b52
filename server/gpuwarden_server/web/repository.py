"""Answers kept under idempotency keys, in state.db."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from gpuwarden_server.store.tables_web import idempotency_keys
from gpuwarden_server.web.domain import KeptAnswer, KeptRequest, KeptRow

_c = idempotency_keys.c


def read_kept(connection: Connection, request: KeptRequest, since: float) -> KeptRow | None:
    """What is kept of an earlier request under the same key, begun after `since`."""
    statement = select(idempotency_keys).where(_of(request), _c.begun_at > since)
    row = connection.execute(statement).mappings().first()
    if row is None:
        return None
    answer = None
    if row["answer_code"] is not None:
        answer = KeptAnswer(row["answer_code"], row["headers"], row["body"])
    return KeptRow(row["fingerprint"], row["run_id"], answer)


def count_kept(connection: Connection, key_id: str) -> int:
    """How many requests of one caller are kept."""
    statement = select(func.count()).select_from(idempotency_keys).where(_c.key_id == key_id)
    return connection.execute(statement).scalar_one()


def insert_begun(connection: Connection, request: KeptRequest, run_id: str, at: float) -> None:
    """Note that a request is being carried out; an expired one of the same key makes way."""
    connection.execute(delete(idempotency_keys).where(_of(request)))
    connection.execute(
        insert(idempotency_keys).values(
            key_id=request.key_id,
            idempotency_key=request.idempotency_key,
            fingerprint=request.fingerprint,
            run_id=run_id,
            begun_at=at,
            headers={},
        )
    )


def keep_answer(connection: Connection, request: KeptRequest, answer: KeptAnswer) -> None:
    """Keep what was answered."""
    values = {"answer_code": answer.code, "headers": dict(answer.headers), "body": answer.body}
    connection.execute(update(idempotency_keys).where(_of(request)).values(values))


def delete_kept(connection: Connection, request: KeptRequest) -> None:
    """Forget a request that was not carried out."""
    connection.execute(delete(idempotency_keys).where(_of(request)))


def delete_older(connection: Connection, before: float) -> int:
    """Forget requests begun before a time, epoch seconds; returns how many."""
    return connection.execute(delete(idempotency_keys).where(_c.begun_at <= before)).rowcount


def _of(request: KeptRequest) -> ColumnElement[bool]:
    same_key = _c.idempotency_key == request.idempotency_key
    return and_(_c.key_id == request.key_id, same_key)
