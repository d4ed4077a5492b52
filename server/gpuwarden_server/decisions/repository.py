"""Decisions, their moves, and the exclusion feed in state.db."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, and_, delete, insert, or_, select, update

from gpuwarden_server.core.ids import new_feed_id
from gpuwarden_server.core.pages import Cursor
from gpuwarden_server.decisions.feed import (
    FeedChange,
    FeedHead,
    exclusions_json,
    planned_json,
    stored_frame,
)
from gpuwarden_server.store.tables_judging import decision_moves, decisions, feed, feed_log
from gpuwarden_server.store.tables_links import link_secret
from gpuwarden_server.store.upsert import upsert
from gpuwarden_server.streams.frames import Frame
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.exclusions import digest
from gpuwarden_verdict.policy.document import LIVE_PHASES, Decision, DecisionMove

LIVE = "live"
"""Filter word for every phase that may still act."""
KEPT_CHANGES = 10_000
"""Changes kept in the feed log; the hub replays the newest of them to readers that come back."""

_decoder = msgspec.json.Decoder(Decision)


@dataclass(frozen=True, slots=True)
class StoredDecisionMove:
    """A move as it is read back."""

    before: str | None
    after: str
    rung: int
    reason: str
    author: str
    at: float


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """What a list is narrowed to; None does not narrow."""

    phase: str | None = None
    node_id: str | None = None
    entity: str | None = None
    incident_id: str | None = None


def write_decision_moves(
    connection: Connection, moves: Sequence[DecisionMove], snapshots: Mapping[str, str]
) -> None:
    """Store decisions after their moves, and the moves.

    Args:
        connection: Writing connection.
        moves: In order.
        snapshots: JSON of what a new decision was made from, by decision id.
    """
    for move in moves:
        decision = move.decision
        row = _row(decision, snapshots.get(decision.id, "{}"))
        statement = upsert(connection, decisions).values(row)
        changed = {n: statement.excluded[n] for n in row if n not in ("id", "snapshot")}
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed))
    if moves:
        connection.execute(insert(decision_moves), [_move_row(move) for move in moves])


def write_decisions(connection: Connection, values: Sequence[Decision]) -> None:
    """Store decisions whose expiry or reasons were renewed, without a move."""
    for value in values:
        row = _row(value, "{}")
        kept = {name: row[name] for name in ("rung", "expires_at", "body")}
        connection.execute(update(decisions).where(decisions.c.id == value.id).values(kept))


def read_live(connection: Connection) -> list[Decision]:
    """All decisions that may still act."""
    return _read(connection, _bodies().where(decisions.c.phase.in_([p.value for p in LIVE_PHASES])))


def read_one(connection: Connection, decision_id: str) -> tuple[Decision, Any] | None:
    """One decision with its snapshot; None where there is none of this id."""
    statement = select(decisions.c.body, decisions.c.snapshot).where(decisions.c.id == decision_id)
    row = connection.execute(statement).first()
    return None if row is None else (_decoder.decode(row.body), msgspec.json.decode(row.snapshot))


def read_of_entity(connection: Connection, ref: EntityRef, limit: int) -> list[Decision]:
    """Newest decisions about one entity."""
    match = and_(decisions.c.entity_kind == ref.kind.value, decisions.c.entity == ref.key)
    statement = _bodies().where(match).order_by(decisions.c.decided_at.desc()).limit(limit)
    return _read(connection, statement)


def read_page(
    connection: Connection, wanted: DecisionFilter, cursor: Cursor | None, limit: int
) -> list[Decision]:
    """A page, newest first."""
    statement = _bodies()
    if wanted.phase == LIVE:
        statement = statement.where(decisions.c.phase.in_([p.value for p in LIVE_PHASES]))
    elif wanted.phase is not None:
        statement = statement.where(decisions.c.phase == wanted.phase)
    for name in ("node_id", "entity", "incident_id"):
        value = getattr(wanted, name)
        if value is not None:
            statement = statement.where(decisions.c[name] == value)
    if cursor is not None:
        older = decisions.c.decided_at < cursor.at
        same = and_(decisions.c.decided_at == cursor.at, decisions.c.id < cursor.id)
        statement = statement.where(or_(older, same))
    order = (decisions.c.decided_at.desc(), decisions.c.id.desc())
    return _read(connection, statement.order_by(*order).limit(limit))


def read_moves(connection: Connection, decision_id: str) -> list[StoredDecisionMove]:
    """All moves of one decision, oldest first."""
    c = decision_moves.c
    statement = (
        select(c.before, c.after, c.rung, c.reason, c.author, c.at)
        .where(c.decision_id == decision_id)
        .order_by(c.row)
    )
    return [StoredDecisionMove(*row) for row in connection.execute(statement)]


def ensure_feed(connection: Connection) -> FeedHead:
    """Where the feed stands; a new database gets a feed id of its own."""
    row = connection.execute(
        select(feed.c.feed_id, feed.c.epoch, feed.c.count, feed.c.digest)
    ).first()
    if row is not None:
        return FeedHead(feed_id=row[0], epoch=row[1], count=row[2], digest=row[3])
    head = FeedHead(feed_id=new_feed_id(), epoch=0, count=0, digest=digest(()))
    connection.execute(insert(feed).values(id=1, **_head_row(head)))
    return head


def read_feed_id(connection: Connection) -> str:
    """Random id of the database; "" before the judge first started on it."""
    return connection.execute(select(feed.c.feed_id)).scalar() or ""


def ensure_link_secret(connection: Connection) -> bytes:
    """What signs links; made where there is none yet."""
    made = upsert(connection, link_secret).values(id=1, secret=secrets.token_bytes(32))
    connection.execute(made.on_conflict_do_nothing(index_elements=["id"]))
    return bytes(connection.execute(select(link_secret.c.secret)).scalar_one())


def write_feed(connection: Connection, change: FeedChange) -> None:
    """Move the feed by one epoch.

    Raises:
        RuntimeError: The stored epoch is not the one before: somebody else moved the feed.
    """
    head = change.head
    moved = connection.execute(
        update(feed)
        .where(feed.c.feed_id == head.feed_id, feed.c.epoch == head.epoch - 1)
        .values(**_head_row(head))
    )
    if moved.rowcount != 1:
        raise RuntimeError(f"the feed is not at epoch {head.epoch - 1}")
    planned = planned_json(change.planned)
    connection.execute(
        insert(feed_log).values(
            epoch=head.epoch,
            at=change.at,
            count=head.count,
            digest=head.digest,
            added=exclusions_json(change.added).decode(),
            removed=exclusions_json(change.removed).decode(),
            planned=None if planned is None else planned.decode(),
        )
    )
    connection.execute(delete(feed_log).where(feed_log.c.epoch <= head.epoch - KEPT_CHANGES))


def read_frames(connection: Connection, feed_id: str, newest: int) -> list[Frame]:
    """The newest changes as server-sent events, oldest first."""
    c = feed_log.c
    statement = (
        select(c.epoch, c.count, c.digest, c.added, c.removed, c.planned)
        .order_by(c.epoch.desc())
        .limit(newest)
    )
    frames = [
        stored_frame(
            FeedHead(feed_id=feed_id, epoch=row.epoch, count=row[1], digest=row.digest),
            row.added.encode(),
            row.removed.encode(),
            None if row.planned is None else row.planned.encode(),
        )
        for row in connection.execute(statement)
    ]
    frames.reverse()
    return frames


def _bodies() -> Select[str]:
    return select(decisions.c.body)


def _read(connection: Connection, statement: Select[str]) -> list[Decision]:
    return [_decoder.decode(body) for body in connection.execute(statement).scalars()]


def _head_row(head: FeedHead) -> dict[str, Any]:
    return {
        "feed_id": head.feed_id,
        "epoch": head.epoch,
        "count": head.count,
        "digest": head.digest,
    }


def _row(decision: Decision, snapshot: str) -> dict[str, Any]:
    return {
        "id": decision.id,
        "entity_kind": decision.entity.kind.value,
        "entity": decision.entity.key,
        "node_id": decision.entity.node_id,
        "incident_id": decision.incident_id,
        "rung": int(decision.rung),
        "phase": decision.phase.value,
        "decided_at": decision.decided_at,
        "expires_at": decision.expires_at,
        "body": msgspec.json.encode(decision).decode(),
        "snapshot": snapshot,
    }


def _move_row(move: DecisionMove) -> dict[str, Any]:
    return {
        "decision_id": move.decision.id,
        "before": None if move.before is None else move.before.value,
        "after": move.decision.phase.value,
        "rung": int(move.decision.rung),
        "reason": move.reason,
        "author": move.author,
        "at": move.at,
    }
