"""Batches: what an agent sends, in one of two streams."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain
from math import isfinite, nan
from sys import byteorder

import msgspec

from gpuwarden_wire.events import Event
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable
from gpuwarden_wire.schema import Schema

WIRE_VERSION = 1
_NUMBERS = frozenset({float, int})
CONTENT_TYPE = "application/vnd.gpuwarden.batch+msgpack"


class Stream(StrEnum):
    """Events are never shed before telemetry; each stream has its own sequence."""

    EVENTS = "events"
    TELEMETRY = "telemetry"


class MissingKind(StrEnum):
    """Why a cell is NaN."""

    NOT_SUPPORTED = "not_supported"
    UNAVAILABLE = "unavailable"
    STALE = "stale"


class MissingCell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One cell without a number.

    Attributes:
        row: Index into the table's entities.
        column: Index into the schema's columns.
        kind: Why.
        reason: Short stable phrase for UNAVAILABLE, "" else.
        age_s: Age of the last value in seconds for STALE, 0 else.
    """

    row: int
    column: int
    kind: MissingKind
    reason: str = ""
    age_s: float = 0.0


class Table(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Readings of one kind of entity at one moment.

    Attributes:
        schema: Hash of the schema that names the columns.
        observed_at: Agent's UTC, epoch seconds.
        entities: Entity keys, one a row ("" for the node itself).
        f32: Little-endian float32, column after column, `f32_count x rows` numbers.
        f64: Little-endian float64 of the counters, column after column.
        missing: Reasons of the NaN cells; a NaN without a reason counts as unavailable.
    """

    schema: str
    observed_at: float
    entities: tuple[str, ...]
    f32: bytes
    f64: bytes
    missing: tuple[MissingCell, ...] = ()


class ShedRange(msgspec.Struct, frozen=True, array_like=True):
    """Sequences of a stream that the agent dropped because its spool was full; both inclusive."""

    stream: Stream
    first_seq: int
    last_seq: int


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One unit of delivery, identified by (node_id, spool_id, stream, seq).

    Attributes:
        version: WIRE_VERSION; additive changes keep it.
        node_id: Name of the node, as its key is bound to.
        spool_id: Random 32 hex digits made with the spool.
        stream: events or telemetry.
        seq: From 1, never restarts within a spool.
        boot_id: Kernel's boot id; an attribute, not an order.
        agent_version: Version of the agent.
        sent_at: Agent's UTC at sealing, epoch seconds.
        interval_s: Telemetry cadence that the agent keeps, seconds; 0 where not known.
        more_events: True while further batches of events wait behind this one: decisions are held.
        late: True where its events waited in the spool over a reboot or for longer than a flood of
            lines takes: what ended their faults may wait behind it.
        shed: Ranges dropped since the last acknowledged batch.
        schemas: Definitions, present when the server has not acknowledged them.
        tables: Telemetry.
        events: Events.
    """

    version: int
    node_id: str
    spool_id: str
    stream: Stream
    seq: int
    boot_id: str
    agent_version: str
    sent_at: float
    interval_s: float = 0.0
    more_events: bool = False
    late: bool = False
    shed: tuple[ShedRange, ...] = ()
    schemas: tuple[Schema, ...] = ()
    tables: tuple[Table, ...] = ()
    events: tuple[Event, ...] = ()


def pack_table(schema: Schema, observed_at: float, rows: Mapping[str, Sequence[Reading]]) -> Table:
    """Pack readings into column-major float bytes with the reasons of what is missing.

    Args:
        schema: Columns; each row holds one reading a column in this order.
        observed_at: Epoch seconds.
        rows: Readings by entity key. NaN and infinities count as unavailable ("not_finite").

    Raises:
        ValueError: A row has another number of readings than the schema has columns.
    """
    for entity, values in rows.items():
        if len(values) != len(schema.columns):
            raise ValueError(
                f"row {entity!r}: {len(values)} readings, {len(schema.columns)} columns"
            )
    # No Python code runs for each cell where all are numbers: agents pack thousands, all the time.
    cells = list(chain.from_iterable(zip(*rows.values(), strict=True)))
    missing = () if _all_finite(cells) else _take_missing(cells, len(rows))
    counters_from = schema.f32_count * len(rows)
    return Table(
        schema=schema.hash,
        observed_at=observed_at,
        entities=tuple(rows),
        f32=little_endian(array("f", cells[:counters_from])),
        f64=little_endian(array("d", cells[counters_from:])),
        missing=missing,
    )


def _all_finite(cells: Sequence[Reading]) -> bool:
    """Whether all are finite numbers; False also where it takes a closer look."""
    if not _NUMBERS.issuperset(map(type, cells)):
        return False
    return isfinite(sum(cells))  # type: ignore[arg-type]  # numbers, as was just seen


def _take_missing(cells: list[Reading], rows: int) -> tuple[MissingCell, ...]:
    """What is no finite number becomes NaN in `cells`, column after column; the reasons why."""
    missing: list[MissingCell] = []
    for index, reading in enumerate(cells):
        if isinstance(reading, float | int):
            if isfinite(reading):
                continue
            reading = Unavailable("not_finite")
        cells[index] = nan
        missing.append(missing_cell(index % rows, index // rows, reading))
    return tuple(missing)


def missing_cell(row: int, column: int, reading: Reading) -> MissingCell:
    """The cell of a reading that is no number.

    Raises:
        TypeError: It is one.
    """
    match reading:
        case NotSupported():
            return MissingCell(row, column, MissingKind.NOT_SUPPORTED)
        case Stale(age_s=age_s):
            return MissingCell(row, column, MissingKind.STALE, "", age_s)
        case Unavailable(reason=reason):
            return MissingCell(row, column, MissingKind.UNAVAILABLE, reason)
        case _:
            raise TypeError(f"not a missing reading: {reading!r}")


def little_endian(block: array[float]) -> bytes:
    """The bytes of numbers as they go on the wire; the array is not to be used after."""
    if byteorder == "big":
        block.byteswap()
    return block.tobytes()
