"""Choices and added models in state.db."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, delete, insert, select

from gpuwarden_server.learning.registry.domain import Choice
from gpuwarden_server.store.tables_learning import model_choices, model_versions
from gpuwarden_server.store.upsert import upsert
from gpuwarden_wire.metrics import EntityKind

_choice = msgspec.json.Decoder(Choice)
_files = msgspec.msgpack.Decoder(dict[str, bytes])


@dataclass(frozen=True, slots=True)
class AddedVersion:
    """A model that a person brought.

    Attributes:
        version: Its name.
        digest: SHA-256 of its MANIFEST.json.
        added_at: Epoch seconds.
        author: Name of the key.
    """

    version: str
    digest: str
    added_at: float
    author: str


def read_choices(connection: Connection) -> dict[EntityKind, Choice]:
    """Choices by kind; a kind of which nobody chose is not among them."""
    rows = connection.execute(select(model_choices.c.kind, model_choices.c.body))
    return {EntityKind(kind): _choice.decode(body) for kind, body in rows}


def read_choice(connection: Connection, kind: EntityKind) -> Choice | None:
    """The choice of a kind, None where nobody chose."""
    statement = select(model_choices.c.body).where(model_choices.c.kind == kind.value)
    body = connection.execute(statement).scalar()
    return None if body is None else _choice.decode(body)


def write_choice(connection: Connection, kind: EntityKind, choice: Choice) -> None:
    """Insert or replace the choice of a kind."""
    body = msgspec.json.encode(choice).decode()
    statement = upsert(connection, model_choices).values(kind=kind.value, body=body)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["kind"], set_={"body": body})
    )


def read_added(connection: Connection, kind: EntityKind) -> list[AddedVersion]:
    """Added models of a kind, newest first."""
    c = model_versions.c
    statement = (
        select(c.version, c.digest, c.added_at, c.author)
        .where(c.kind == kind.value)
        .order_by(c.added_at.desc(), c.version)
    )
    return [AddedVersion(*row) for row in connection.execute(statement)]


def read_files(connection: Connection, kind: EntityKind, version: str) -> dict[str, bytes] | None:
    """Files of an added model by name; None where it was not added."""
    c = model_versions.c
    statement = select(c.body).where(c.kind == kind.value, c.version == version)
    body = connection.execute(statement).scalar()
    return None if body is None else _files.decode(body)


def add_version(
    connection: Connection, kind: EntityKind, added: AddedVersion, files: Mapping[str, bytes]
) -> None:
    """Keep the files of a model."""
    connection.execute(
        insert(model_versions).values(
            kind=kind.value,
            version=added.version,
            digest=added.digest,
            added_at=added.added_at,
            author=added.author,
            body=msgspec.msgpack.encode(dict(files)),
        )
    )


def delete_version(connection: Connection, kind: EntityKind, version: str) -> None:
    """Forget an added model."""
    c = model_versions.c
    connection.execute(delete(model_versions).where(c.kind == kind.value, c.version == version))
