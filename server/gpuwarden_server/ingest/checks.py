"""What a batch must be before anything of it is applied. Pure; every refusal names the input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.ids import is_node_id
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream, Table
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import DEVICE_KINDS, EntityKind, Storage
from gpuwarden_wire.schema import Schema

MAX_EVENTS = 5_000
MAX_TABLES = 256
MAX_ENTITIES = 4_096
MAX_COLUMNS = 1_024
MAX_SHED = 1_024
MAX_ID = 255
MAX_SEQ = 2**63 - 1  # SQLite's INTEGER
_MAX_COUNT = 2**31
_HEX32 = frozenset("0123456789abcdef")


def check_batch(batch: Batch) -> None:
    """Everything that needs no knowledge but the batch itself.

    Raises:
        ProblemError: 400 with the field, or 413 where the batch can be halved.
    """
    if batch.version != WIRE_VERSION:
        raise _refuse(
            "unsupported_version",
            f"version {batch.version}, this server speaks {WIRE_VERSION}",
            "Upgrade the older of agent and server.",
        )
    _check_header(batch)
    _check_sizes(batch)
    if batch.stream is Stream.EVENTS and batch.tables:
        raise _refuse("wrong_stream", "tables in the events stream")
    if batch.stream is Stream.TELEMETRY and batch.events:
        raise _refuse("wrong_stream", "events in the telemetry stream")
    for schema in batch.schemas:
        _check_schema(schema)
    for event in batch.events:
        _check_event(event)


def check_tables(tables: Iterable[Table], schemas: Mapping[str, Schema]) -> None:
    """Shapes and numbers of tables whose schemas are all in `schemas`.

    Raises:
        ProblemError: 400 with the table and what is wrong with it.
    """
    for number, table in enumerate(tables):
        _check_table(table, schemas[table.schema], f"tables[{number}]")


def check_missing(table: Table, schema: Schema, where: str) -> None:
    """The reasons of a table's missing cells.

    Raises:
        ProblemError: 400 with the cell.
    """
    rows = len(table.entities)
    for cell in table.missing:
        if not (0 <= cell.row < rows and 0 <= cell.column < len(schema.columns)):
            raise _refuse("wrong_shape", f"{where}: missing cell ({cell.row}, {cell.column})")
        _check_text(cell.reason, f"{where}: reason")
        _check_number(cell.age_s, f"{where}: age_s")


def _check_header(batch: Batch) -> None:
    if not is_node_id(batch.node_id):
        raise _refuse("invalid_value", f"node_id {batch.node_id[:300]!r} is no node name")
    if len(batch.spool_id) != 32 or not _HEX32.issuperset(batch.spool_id):
        raise _refuse("invalid_value", f"spool_id {batch.spool_id[:80]!r}: 32 hex digits wanted")
    if not 1 <= batch.seq <= MAX_SEQ:
        raise _refuse("invalid_value", f"seq {batch.seq}: 1 or more wanted")
    _check_text(batch.boot_id, "boot_id")
    _check_text(batch.agent_version, "agent_version")
    _check_number(batch.sent_at, "sent_at")
    _check_number(batch.interval_s, "interval_s")
    for shed in batch.shed:
        if not 1 <= shed.first_seq <= shed.last_seq <= MAX_SEQ:
            raise _refuse("invalid_value", f"shed range {shed.first_seq}..{shed.last_seq}")


def _check_sizes(batch: Batch) -> None:
    sizes = (
        ("events", len(batch.events), MAX_EVENTS),
        ("tables", len(batch.tables), MAX_TABLES),
        ("schemas", len(batch.schemas), MAX_TABLES),
        ("shed", len(batch.shed), MAX_SHED),
    )
    for name, size, limit in sizes:
        if size > limit:
            raise ProblemError(
                413, "batch_too_large", f"{size} {name}, at most {limit}", "Halve the batch."
            )


def _check_schema(schema: Schema) -> None:
    _check_kind(schema.entity_kind, "schema")
    names = [column.name for column in schema.columns]
    if not 1 <= len(names) <= MAX_COLUMNS:
        raise _refuse("wrong_schema", f"{len(names)} columns, 1 to {MAX_COLUMNS} wanted")
    if len(set(names)) != len(names):
        raise _refuse("wrong_schema", "a column name comes twice")
    for column in schema.columns:
        _check_text(column.name, "column name", least=1)
        _check_text(column.unit, "unit")
    counters = [column.storage is Storage.COUNTER for column in schema.columns]
    if counters != sorted(counters):
        raise _refuse("wrong_schema", "an f32 column stands behind a counter")


def _check_event(event: Event) -> None:
    _check_text(event.id, "event id", least=1)
    where = f"event {event.id!r}"
    _check_kind(event.entity_kind, where)
    _check_number(event.observed_at, f"{where}: observed_at")
    for name in ("entity", "family", "severity"):
        _check_text(getattr(event, name), f"{where}: {name}")
    if not 1 <= event.count <= _MAX_COUNT:
        raise _refuse("invalid_value", f"{where}: count {event.count}")
    for gpu in event.inventory.gpus if event.inventory else ():
        _check_text(gpu.gpu_uuid, f"{where}: gpu_uuid", least=1)
    for job in event.inventory.jobs if event.inventory else ():
        _check_text(job.job_id, f"{where}: job_id", least=1)
    try:
        msgspec.json.encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refuse("invalid_value", f"{where} has no JSON form: {error}") from error


def _check_kind(kind: EntityKind, where: str) -> None:
    if kind not in DEVICE_KINDS:
        raise _refuse(
            "invalid_value",
            f"{where}: entity_kind {kind.value!r}; agents speak of {', '.join(DEVICE_KINDS)} only",
        )


def _check_table(table: Table, schema: Schema, where: str) -> None:
    _check_number(table.observed_at, f"{where}: observed_at")
    rows = len(table.entities)
    if rows > MAX_ENTITIES:
        raise _refuse("invalid_value", f"{where}: {rows} entities, at most {MAX_ENTITIES}")
    if len(set(table.entities)) != rows:
        raise _refuse("invalid_value", f"{where}: an entity comes twice")
    for entity in table.entities:
        _check_text(entity, f"{where}: entity")
        if (schema.entity_kind is EntityKind.NODE) != (entity == ""):
            raise _refuse("invalid_value", f"{where}: entity {entity!r} of a {schema.entity_kind}")
    check_missing(table, schema, where)
    narrow = schema.f32_count
    _check_block(table.f32, np.dtype("<f4"), narrow * rows, f"{where}.f32")
    _check_block(table.f64, np.dtype("<f8"), (len(schema.columns) - narrow) * rows, f"{where}.f64")


def _check_block(
    block: bytes, dtype: np.dtype[np.float32] | np.dtype[np.float64], numbers: int, where: str
) -> None:
    if len(block) != numbers * dtype.itemsize:
        raise _refuse(
            "wrong_shape",
            f"{where}: {len(block)} bytes, schema and entities make {numbers * dtype.itemsize}",
        )
    if np.isinf(np.frombuffer(block, dtype)).any():
        raise _refuse("invalid_value", f"{where}: an infinite number; a reading is finite or NaN")


def without_nul(batch: Batch) -> Batch:
    """The batch with a visible sign (U+2400) for each U+0000 in its events.

    The kernel's text may hold anything, and PostgreSQL cannot store that character.
    """
    events = tuple(_without_nul(event) for event in batch.events)
    return msgspec.structs.replace(batch, events=events) if events != batch.events else batch


def _without_nul(event: Event) -> Event:
    try:
        body = msgspec.json.encode(event)
    except (TypeError, ValueError, RecursionError):
        return event  # `check_batch` refuses it
    if b"\\u0000" not in body:
        return event
    return msgspec.convert(_signed(msgspec.to_builtins(event)), Event)


def _signed(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\u2400")
        case dict():
            return {_signed(key): _signed(one) for key, one in value.items()}
        case list() | tuple():
            return [_signed(one) for one in value]
        case _:
            return value


def _check_text(text: str, where: str, least: int = 0) -> None:
    if "\0" in text:
        raise _refuse("invalid_value", f"{where}: {text[:80]!r} holds U+0000")
    if not least <= len(text) <= MAX_ID:
        raise _refuse("invalid_value", f"{where}: {len(text)} characters, {least} to {MAX_ID}")


def _check_number(number: float, where: str) -> None:
    if not math.isfinite(number) or number < 0:
        raise _refuse("invalid_value", f"{where}: {number} is not a finite number from 0")


def _refuse(code: str, detail: str, mend: str = "") -> ProblemError:
    return ProblemError(400, code, detail, mend or "The agent sets the batch aside: report it.")
