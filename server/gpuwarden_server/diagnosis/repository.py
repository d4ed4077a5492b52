"""Stored diagnoses, and what jobs told of their steps, in state.db."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, or_, select

from gpuwarden_server.core.pages import Cursor
from gpuwarden_server.store.tables_diagnosis import diagnoses, diagnosis_nodes
from gpuwarden_server.store.tables_progress import job_progress
from gpuwarden_server.store.upsert import upsert


@dataclass(frozen=True, slots=True)
class DiagnosisRow:
    """A diagnosis as it is listed.

    Attributes:
        id: "dia-" and 12 hex digits.
        at: When it was made, epoch seconds.
        asked_by: Name of the key, "trigger" for the server itself.
        key_id: Id of the key, None for the server itself.
        job: "KIND:ID", "" for the fleet.
        kind: Of the first culprit, "nothing" or "undecided".
        entity_kind: Of the first culprit, "" where none is named.
        entity: Its key.
        node_id: Node that it sits in, "" for none.
        confidence: 0..1.
        line: The answer in one line.
        begin: Epoch seconds, of the window that was asked about.
        end: Epoch seconds.
    """

    id: str
    at: float
    asked_by: str
    key_id: str | None
    job: str
    kind: str
    entity_kind: str
    entity: str
    node_id: str
    confidence: float
    line: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class DiagnosisFilter:
    """What a list is narrowed to; None does not narrow.

    Attributes:
        job: "KIND:ID"; "" asks for those of the fleet.
        node: Of the job, hit, or blamed.
        culprit: Kind.
        begin: Epoch seconds; made then or later.
        end: Epoch seconds; made before.
    """

    job: str | None = None
    node: str | None = None
    culprit: str | None = None
    begin: float | None = None
    end: float | None = None


_LISTED = [diagnoses.c[name] for name in DiagnosisRow.__dataclass_fields__]


def write(connection: Connection, row: DiagnosisRow, body: bytes, nodes: Sequence[str]) -> None:
    """Keep a diagnosis.

    Args:
        connection: Writes.
        row: What is listed of it.
        body: All of it, compressed.
        nodes: Nodes that it is about, each once.
    """
    connection.execute(insert(diagnoses).values(**asdict(row), body=body))
    about = [{"diagnosis_id": row.id, "node_id": node} for node in nodes]
    if about:
        connection.execute(insert(diagnosis_nodes), about)


def read_page(
    connection: Connection, wanted: DiagnosisFilter, after: Cursor | None, limit: int
) -> list[DiagnosisRow]:
    """Diagnoses, the newest first.

    Args:
        connection: Reads.
        wanted: What the list is narrowed to.
        after: The last one of the page before, None for the first page.
        limit: At most so many.
    """
    c = diagnoses.c
    where = list(_conditions(wanted))
    if after is not None:
        where.append(or_(c.at < after.at, and_(c.at == after.at, c.id < after.id)))
    statement = select(*_LISTED).where(*where).order_by(c.at.desc(), c.id.desc()).limit(limit)
    return [_row(row) for row in connection.execute(statement)]


def read_one(connection: Connection, diagnosis_id: str) -> tuple[DiagnosisRow, bytes] | None:
    """A diagnosis with its body, None where it is not kept."""
    statement = select(*_LISTED, diagnoses.c.body).where(diagnoses.c.id == diagnosis_id)
    row = connection.execute(statement).first()
    return None if row is None else (_row(row), row.body)


def _conditions(wanted: DiagnosisFilter) -> Sequence[ColumnElement[bool]]:
    c, about = diagnoses.c, diagnosis_nodes.c
    where: list[ColumnElement[bool]] = []
    if wanted.job is not None:
        where.append(c.job == wanted.job)
    if wanted.node is not None:
        where.append(c.id.in_(select(about.diagnosis_id).where(about.node_id == wanted.node)))
    if wanted.culprit is not None:
        where.append(c.kind == wanted.culprit)
    if wanted.begin is not None:
        where.append(c.at >= wanted.begin)
    if wanted.end is not None:
        where.append(c.at < wanted.end)
    return where


def _row(row: Row[*tuple[Any, ...]]) -> DiagnosisRow:
    return DiagnosisRow(*row[: len(_LISTED)])


@dataclass(frozen=True, slots=True)
class ToldMinute:
    """What a job told of its steps within a minute.

    Attributes:
        job: "KIND:ID".
        at: Begin of the minute, epoch seconds.
        told: How often it told.
        last_step: Highest number of a step.
        step_seconds: Mean time of a step, None where nobody said.
        loss: Last finite one, None for none.
        not_finite: Losses that were not finite.
    """

    job: str
    at: float
    told: int
    last_step: int
    step_seconds: float | None
    loss: float | None
    not_finite: int


_MINUTE = [job_progress.c[name] for name in ToldMinute.__dataclass_fields__]


def write_minutes(connection: Connection, minutes: Sequence[ToldMinute]) -> None:
    """Insert or replace minutes."""
    for minute in minutes:
        row = asdict(minute)
        statement = upsert(connection, job_progress).values(row)
        changed = {name: statement.excluded[name] for name in row if name not in ("job", "at")}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["job", "at"], set_=changed)
        )


def read_minutes(connection: Connection, job: str, begin: float, end: float) -> list[ToldMinute]:
    """Minutes of a job, oldest first.

    Args:
        connection: Reads.
        job: "KIND:ID".
        begin: Epoch seconds.
        end: Epoch seconds.
    """
    c = job_progress.c
    where = (c.job == job, c.at >= begin, c.at < end)
    statement = select(*_MINUTE).where(*where).order_by(c.at)
    return [ToldMinute(*row) for row in connection.execute(statement)]
