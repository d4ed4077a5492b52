"""What each endpoint knows: members and cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, func, select, update

from gpuwarden_server.notifications.planning.cases import Case, Member, Standing
from gpuwarden_server.store.tables_notifications import notify_cases, notify_members
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.entities import Severity


def member(connection: Connection, endpoint: str, subject: str) -> Member | None:
    """What an endpoint knows of an incident or decision."""
    found = connection.execute(
        select(notify_members).where(
            notify_members.c.endpoint == endpoint, notify_members.c.subject == subject
        )
    ).first()
    return _member(found) if found is not None else None


def members_standing(
    connection: Connection, endpoint: str, standings: Sequence[Standing]
) -> list[Member]:
    """Members with one of these standings, the oldest first."""
    statement = (
        select(notify_members)
        .where(
            notify_members.c.endpoint == endpoint,
            notify_members.c.standing.in_([one.value for one in standings]),
        )
        .order_by(notify_members.c.since, notify_members.c.subject)
    )
    return [_member(row) for row in connection.execute(statement)]


def members_of(connection: Connection, endpoint: str, case_key: str) -> list[Member]:
    """Members of a case, by the incidents' age."""
    statement = select(notify_members).where(
        notify_members.c.endpoint == endpoint, notify_members.c.case_key == case_key
    )
    found = [_member(row) for row in connection.execute(statement)]
    return sorted(found, key=lambda one: (float(one.body.get("opened_at", 0.0)), one.subject))


def save_member(connection: Connection, one: Member) -> None:
    """Write a member."""
    values = {
        "case_key": one.case_key,
        "standing": one.standing.value,
        "since": one.since,
        "body": msgspec.json.encode(one.body).decode(),
    }
    statement = upsert(connection, notify_members).values(
        endpoint=one.endpoint, subject=one.subject, **values
    )
    connection.execute(
        statement.on_conflict_do_update(index_elements=["endpoint", "subject"], set_=values)
    )


def release_members(connection: Connection, endpoint: str, case_key: str) -> None:
    """Members of a case that is over belong to none: its key is free for the next."""
    connection.execute(
        update(notify_members)
        .where(notify_members.c.endpoint == endpoint, notify_members.c.case_key == case_key)
        .values(case_key="")
    )


def case(connection: Connection, endpoint: str, key: str) -> Case | None:
    """A case by its key."""
    found = connection.execute(
        select(notify_cases).where(
            notify_cases.c.endpoint == endpoint, notify_cases.c.case_key == key
        )
    ).first()
    return _case(found) if found is not None else None


def open_cases(connection: Connection, endpoint: str, since: float) -> list[Case]:
    """Open cases that an incident joined since then, the newest first."""
    statement = (
        select(notify_cases)
        .where(
            notify_cases.c.endpoint == endpoint,
            notify_cases.c.phase == "open",
            notify_cases.c.joined_at >= since,
        )
        .order_by(notify_cases.c.joined_at.desc(), notify_cases.c.case_key)
    )
    return [_case(row) for row in connection.execute(statement)]


def open_overflow(connection: Connection, endpoint: str) -> Case | None:
    """The open case of what the rate cap folded together, the newest."""
    statement = (
        select(notify_cases)
        .where(
            notify_cases.c.endpoint == endpoint,
            notify_cases.c.phase == "open",
            notify_cases.c.overflow == 1,
        )
        .order_by(notify_cases.c.joined_at.desc())
        .limit(1)
    )
    found = connection.execute(statement).first()
    return _case(found) if found is not None else None


def has_standing(connection: Connection, endpoint: str, case_key: str) -> bool:
    """Whether any member of a case is not over; a large case is asked at each of its ends."""
    statement = (
        select(notify_members.c.subject)
        .where(
            notify_members.c.endpoint == endpoint,
            notify_members.c.case_key == case_key,
            notify_members.c.standing != Standing.OVER.value,
        )
        .limit(1)
    )
    return connection.execute(statement).first() is not None


def count_cases_since(connection: Connection, endpoint: str, since: float) -> int:
    """Cases opened since then, closed ones too."""
    statement = (
        select(func.count())
        .select_from(notify_cases)
        .where(notify_cases.c.endpoint == endpoint, notify_cases.c.opened_at > since)
    )
    return int(connection.execute(statement).scalar_one())


def save_case(connection: Connection, one: Case) -> None:
    """Write a case; what the receiver said of it stays, unless it is a new one."""
    body = {
        "fault_class": one.fault_class,
        "severity": one.severity.value,
        "place": one.place,
        "moves": one.moves,
        "moved": one.moved,
    }
    values = {
        "phase": "closed" if one.closed else "open",
        "opened_at": one.opened_at,
        "joined_at": one.joined_at,
        "overflow": int(one.overflow),
        "body": msgspec.json.encode(body).decode(),
    }
    external = msgspec.json.encode(one.external).decode()
    statement = upsert(connection, notify_cases).values(
        endpoint=one.endpoint, case_key=one.key, external=external, **values
    )
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["endpoint", "case_key"], set_={**values, "external": external}
        )
    )


def write_external(connection: Connection, one: Case, external: object) -> None:
    """Keep what the receiver knows of a case, unless another began under its key meanwhile."""
    connection.execute(
        update(notify_cases)
        .where(
            notify_cases.c.endpoint == one.endpoint,
            notify_cases.c.case_key == one.key,
            notify_cases.c.opened_at == one.opened_at,
        )
        .values(external=msgspec.json.encode(external).decode())
    )


def prune(connection: Connection, before: float) -> None:
    """Forget what is over since before a time."""
    still_open = select(notify_cases.c.case_key).where(
        notify_cases.c.endpoint == notify_members.c.endpoint, notify_cases.c.phase == "open"
    )
    connection.execute(
        delete(notify_members).where(
            notify_members.c.standing == Standing.OVER.value,
            notify_members.c.since < before,
            notify_members.c.case_key.not_in(still_open),
        )
    )
    connection.execute(
        delete(notify_cases).where(
            notify_cases.c.phase == "closed", notify_cases.c.joined_at < before
        )
    )


def _member(row: Row[Any]) -> Member:
    return Member(
        row.endpoint,
        row.subject,
        row.case_key,
        Standing(row.standing),
        row.since,
        msgspec.json.decode(row.body),
    )


def _case(row: Row[Any]) -> Case:
    body = msgspec.json.decode(row.body)
    return Case(
        endpoint=row.endpoint,
        key=row.case_key,
        opened_at=row.opened_at,
        joined_at=row.joined_at,
        closed=row.phase == "closed",
        overflow=bool(row.overflow),
        fault_class=body["fault_class"],
        severity=Severity(body["severity"]),
        place=body["place"],
        moves=tuple((at, text) for at, text in body["moves"]),
        moved=body["moved"],
        external=msgspec.json.decode(row.external),
    )
