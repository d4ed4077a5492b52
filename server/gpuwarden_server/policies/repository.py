"""Snapshots of decisions and texts of policies in state.db."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select

from gpuwarden_server.store.tables_policies import decision_snapshots, policy_texts
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.policy.snapshots import FORM, DecisionSnapshot, encode_snapshot


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy as it was read.

    Attributes:
        version: Of what it says.
        text: TOML, "" for the built-in rules.
        mode: Of GPUWARDEN_MODE, "" where it was not set.
        first_at: When a server first began with it, epoch seconds.
        last_at: When one last did.
    """

    version: str
    text: str
    mode: str
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot as it is stored; `row` orders them."""

    row: int
    decision_id: str
    at: float
    form: int
    policy_version: str
    model_version: str
    body: bytes


def write_snapshot(connection: Connection, snapshot: DecisionSnapshot) -> None:
    """Store what decisions rested on: a row for each that moved."""
    body = encode_snapshot(snapshot)
    moved = dict.fromkeys(move.decision.id for move in snapshot.moves)
    rows = [
        {
            "decision_id": decision_id,
            "at": snapshot.at,
            "form": FORM,
            "policy_version": snapshot.policy_version,
            "model_version": snapshot.model_version,
            "body": body,
        }
        for decision_id in moved
    ]
    if rows:
        connection.execute(insert(decision_snapshots), rows)


def read_snapshots(connection: Connection, decision_id: str) -> list[StoredSnapshot]:
    """All of one decision, oldest first."""
    c = decision_snapshots.c
    statement = select(decision_snapshots).where(c.decision_id == decision_id).order_by(c.row)
    return [StoredSnapshot(*row) for row in connection.execute(statement)]


def read_since(
    connection: Connection, since: float, after: int, limit: int
) -> list[StoredSnapshot]:
    """Those from a time on (epoch seconds) and after a row, oldest first, at most `limit`."""
    c = decision_snapshots.c
    statement = (
        select(decision_snapshots).where(c.at >= since, c.row > after).order_by(c.row).limit(limit)
    )
    return [StoredSnapshot(*row) for row in connection.execute(statement)]


def oldest_snapshot(connection: Connection) -> float | None:
    """When the oldest that is kept was made, epoch seconds; None for none."""
    return connection.execute(select(func.min(decision_snapshots.c.at))).scalar()


def write_text(connection: Connection, policy: PolicyText) -> None:
    """Keep a policy that a server begins with; one that is known is only seen again."""
    statement = upsert(connection, policy_texts).values(
        version=policy.version,
        text=policy.text,
        mode=policy.mode,
        first_at=policy.first_at,
        last_at=policy.last_at,
    )
    changed = {"last_at": statement.excluded.last_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["version"], set_=changed))


def read_texts(connection: Connection) -> Sequence[PolicyText]:
    """All that are kept, the newest first."""
    statement = select(policy_texts).order_by(policy_texts.c.last_at.desc())
    return [PolicyText(*row) for row in connection.execute(statement)]


def read_text(connection: Connection, version: str) -> PolicyText | None:
    """One of them, None where it is not kept."""
    statement = select(policy_texts).where(policy_texts.c.version == version)
    row = connection.execute(statement).first()
    return None if row is None else PolicyText(*row)
