"""Checkpoint of nodes' incremental state: bytes of our own form, never pickle.

Form: b"GWFS", version (u16), CRC-32 of the rest (u32), length of the header (u32), header (JSON),
then the arrays one after the other, little-endian, in the header's order. Readers ignore planes
that they do not know and keep initial values for planes that are not there.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.windows.planes import EVENT_PLANES, I64, AnyArray, KindPlanes, Section
from gpuwarden_wire.metrics import EntityKind, Storage

_MAGIC = b"GWFS"
_VERSION = 2
_PREFIX = struct.Struct("<4sHII")
_MEND = "delete this checkpoint: the agents send again what it held"
_LAST_SEEN, _BLOCK, _LANE_AT = "last_seen_at", "block", "lane_at"


class CheckpointError(Exception):
    """A checkpoint that cannot be read; the message says why and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"checkpoint: {why}; {_MEND}")


@dataclass(frozen=True, slots=True)
class SectionPart:
    """What is kept of some entities in one section.

    Attributes:
        metrics: Names, in the order of the arrays' columns.
        planes: Names of the block's planes.
        lanes: Columns that share a time, lane by lane.
        arrays: The block, the times of the lanes, and the sides by name.
    """

    metrics: tuple[str, ...]
    planes: tuple[str, ...]
    lanes: tuple[tuple[int, ...], ...]
    arrays: Mapping[str, AnyArray]

    @classmethod
    def copied(cls, section: Section, rows: I64) -> SectionPart:
        """The rows of a section as they are now."""
        width, lanes = len(section.slots), section.lanes.members()
        arrays = {name: side[rows, :width] for name, side in section.sides.items()}
        arrays[_BLOCK] = section.block[rows, :, :width]
        arrays[_LANE_AT] = section.lane_at[rows[:, None], np.array(list(lanes), np.int64)]
        members = tuple(tuple(columns) for columns in lanes.values())
        return cls(tuple(section.slots), section.planes, members, arrays)

    def restore(self, planes: KindPlanes, storage: Storage, rows: I64) -> None:
        """Write it into rows at initial values."""
        if not self.metrics:
            return
        whole = planes.columns_of(storage, list(self.metrics))
        section = planes.section_of(storage)
        for number, name in enumerate(self.planes):
            if name in section.place:
                cells = rows[:, None], section.place[name], whole.slots
                section.block[cells] = self.arrays[_BLOCK][:, number]
        for name, side in section.sides.items():
            if name in self.arrays:
                side[rows[:, None], whole.slots] = self.arrays[name]
        for number, columns in enumerate(self.lanes):
            lanes = planes.columns_of(storage, [self.metrics[c] for c in columns]).lanes
            section.lane_at[rows[:, None], lanes] = self.arrays[_LANE_AT][:, number, None]


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The state of one kind's entities.

    Attributes:
        kind: The kind.
        refs: Entities, in the order of the arrays' rows.
        sections: Series, by the way in which they travel.
        groups: Event groups; None for one that this program does not know.
        events: The event planes, shape (groups, entities), and when each entity was last read.
    """

    kind: EntityKind
    refs: tuple[EntityRef, ...]
    sections: Mapping[Storage, SectionPart]
    groups: tuple[EventGroup | None, ...]
    events: Mapping[str, AnyArray]

    @classmethod
    def copied(cls, kind: EntityKind, planes: KindPlanes, rows: I64) -> CheckpointPart:
        """Some rows of a kind as they are now."""
        events = {
            name: plane[: len(planes.groups), rows] for name, plane in planes.by_group.items()
        }
        events[_LAST_SEEN] = planes.last_seen_at[rows]
        return cls(
            kind,
            tuple(planes.refs[row] for row in rows.tolist()),
            {s: SectionPart.copied(planes.section_of(s), rows) for s in Storage},
            tuple(planes.groups),
            events,
        )

    def restore(self, planes: KindPlanes, rows: I64) -> None:
        """Write it into `rows`; what else these rows held becomes never."""
        planes.clear(rows)
        for storage, section in self.sections.items():
            section.restore(planes, storage, rows)
        known = [n for n, group in enumerate(self.groups) if group is not None]
        lines = [planes.group_row(group) for group in self.groups if group is not None]
        for name in EVENT_PLANES:
            if name in self.events and known:
                cells = np.array(lines, dtype=np.int64)[:, None], rows
                planes.by_group[name][cells] = self.events[name][known]
        if _LAST_SEEN in self.events:
            planes.last_seen_at[rows] = self.events[_LAST_SEEN]
        planes.changes += 1


def encode_checkpoint(parts: list[CheckpointPart]) -> bytes:
    """The bytes of copied state."""
    encoded = [_encode_part(part) for part in parts]
    header = json.dumps([description for description, _ in encoded], separators=(",", ":"))
    pieces = [header.encode(), *(piece for _, content in encoded for piece in content)]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return b"".join([_PREFIX.pack(_MAGIC, _VERSION, checksum, len(pieces[0])), *pieces])


def decode_checkpoint(blob: bytes) -> list[CheckpointPart]:
    """The parts of a checkpoint, all checked before the first is returned.

    Raises:
        CheckpointError: Not a checkpoint, damaged, or of another form.
    """
    if len(blob) < _PREFIX.size or not blob.startswith(_MAGIC):
        raise CheckpointError("not a checkpoint of gpuwarden")
    _, version, checksum, header_size = _PREFIX.unpack_from(blob)
    if version != _VERSION:
        raise CheckpointError(f"form {version}, this program reads form {_VERSION}")
    body = memoryview(blob)[_PREFIX.size :]
    if zlib.crc32(body) != checksum:
        raise CheckpointError("damaged or cut short (the checksum does not match)")
    descriptions = json.loads(bytes(body[:header_size]))
    return list(_decode_parts(descriptions, body[header_size:]))


def _encode_part(part: CheckpointPart) -> tuple[dict[str, Any], list[bytes]]:
    content: list[bytes] = []
    description = {
        "kind": part.kind.value,
        "refs": [[ref.key, ref.node_id] for ref in part.refs],
        "sections": {
            storage.value: {
                "metrics": section.metrics,
                "planes": section.planes,
                "lanes": section.lanes,
                "arrays": _encode_arrays(section.arrays, content),
            }
            for storage, section in part.sections.items()
        },
        "groups": [group.value for group in part.groups if group is not None],
        "events": _encode_arrays(part.events, content),
    }
    return description, content


def _encode_arrays(arrays: Mapping[str, AnyArray], content: list[bytes]) -> list[Any]:
    described = []
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        described.append([name, plain.dtype.str, list(plain.shape)])
        content.append(plain.tobytes())
    return described


def _decode_parts(descriptions: list[Any], content: memoryview) -> Iterator[CheckpointPart]:
    reader = _Reader(content)
    for description in descriptions:
        kind = EntityKind(description["kind"])
        yield CheckpointPart(
            kind=kind,
            refs=tuple(EntityRef(kind, key, node) for key, node in description["refs"]),
            sections={
                Storage(storage): SectionPart(
                    tuple(section["metrics"]),
                    tuple(section["planes"]),
                    tuple(tuple(lane) for lane in section["lanes"]),
                    reader.arrays(section["arrays"]),
                )
                for storage, section in description["sections"].items()
            },
            groups=tuple(_group(name) for name in description["groups"]),
            events=reader.arrays(description["events"]),
        )


class _Reader:
    """Takes arrays one after the other."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._offset = 0

    def arrays(self, described: list[Any]) -> dict[str, AnyArray]:
        """The next ones, by name."""
        found: dict[str, AnyArray] = {}
        for name, dtype, shape in described:
            flat = np.frombuffer(self._content, np.dtype(dtype), int(np.prod(shape)), self._offset)
            found[name] = flat.reshape(shape)
            self._offset += flat.nbytes
        return found


def _group(name: str) -> EventGroup | None:
    return EventGroup(name) if name in EventGroup.__members__.values() else None
