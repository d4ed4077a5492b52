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
from gpuwarden_verdict.windows.planes import (
    EVENT_PLANES,
    I64,
    PLANES,
    ROW_PLANES,
    AnyArray,
    KindPlanes,
)
from gpuwarden_wire.metrics import EntityKind

_MAGIC = b"GWFS"
_VERSION = 1
_PREFIX = struct.Struct("<4sHII")
_MEND = "delete this checkpoint: the agents send again what it held"


class CheckpointError(Exception):
    """A checkpoint that cannot be read; the message says why and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"checkpoint: {why}; {_MEND}")


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The state of one kind's entities, read from a checkpoint."""

    kind: EntityKind
    refs: tuple[EntityRef, ...]
    metrics: tuple[str, ...]
    groups: tuple[EventGroup | None, ...]
    arrays: Mapping[str, AnyArray]

    def restore(self, planes: KindPlanes, rows: I64) -> None:
        """Write the state into `rows` of the planes; other metrics of these rows become never."""
        metric_rows = np.array([planes.metric_row(name) for name in self.metrics], dtype=np.int64)
        for name, (_, initial) in PLANES.items():
            planes.by_metric[name][:, rows] = initial
            if name in self.arrays and self.metrics:
                planes.by_metric[name][metric_rows[:, None], rows] = self.arrays[name]
        known = [n for n, group in enumerate(self.groups) if group is not None]
        lines = [planes.group_row(group) for group in self.groups if group is not None]
        for name, (_, initial) in EVENT_PLANES.items():
            planes.by_group[name][:, rows] = initial
            if name in self.arrays and known:
                cells = np.array(lines, dtype=np.int64)[:, None], rows
                planes.by_group[name][cells] = self.arrays[name][known]
        for name in ROW_PLANES:
            if name in self.arrays:
                planes.by_row[name][:, rows] = self.arrays[name]


def encode_checkpoint(
    kinds: Mapping[EntityKind, KindPlanes], rows: Mapping[EntityKind, I64]
) -> bytes:
    """Bytes of the state of `rows` of each kind."""
    parts = [_encode_part(kind, planes, rows[kind]) for kind, planes in kinds.items()]
    header = json.dumps([description for description, _ in parts], separators=(",", ":")).encode()
    body = header + b"".join(content for _, content in parts)
    return _PREFIX.pack(_MAGIC, _VERSION, zlib.crc32(body), len(header)) + body


def decode_checkpoint(blob: bytes) -> list[CheckpointPart]:
    """The parts of a checkpoint, all checked before the first is returned.

    Raises:
        CheckpointError: Not a checkpoint, damaged, or of a newer form.
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


def _encode_part(kind: EntityKind, planes: KindPlanes, rows: I64) -> tuple[dict[str, Any], bytes]:
    metrics = list(planes.metrics)
    groups = list(planes.groups)
    chosen = {
        **{name: planes.by_metric[name][: len(metrics)][:, rows] for name in PLANES},
        **{name: planes.by_group[name][: len(groups)][:, rows] for name in EVENT_PLANES},
        **{name: planes.by_row[name][:, rows] for name in ROW_PLANES},
    }
    arrays = {name: _little_endian(array) for name, array in chosen.items()}
    refs = [planes.refs[row] for row in rows]
    description = {
        "kind": kind.value,
        "refs": [[ref.key, ref.node_id] for ref in refs],
        "metrics": metrics,
        "groups": [group.value for group in groups],
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()],
    }
    return description, b"".join(array.tobytes() for array in arrays.values())


def _decode_parts(descriptions: list[Any], content: memoryview) -> Iterator[CheckpointPart]:
    offset = 0
    for description in descriptions:
        arrays: dict[str, AnyArray] = {}
        for name, dtype, shape in description["arrays"]:
            count = int(np.prod(shape))
            flat = np.frombuffer(content, np.dtype(dtype), count, offset)
            arrays[name] = flat.reshape(shape)
            offset += flat.nbytes
        kind = EntityKind(description["kind"])
        yield CheckpointPart(
            kind=kind,
            refs=tuple(EntityRef(kind, key, node) for key, node in description["refs"]),
            metrics=tuple(description["metrics"]),
            groups=tuple(_group(name) for name in description["groups"]),
            arrays=arrays,
        )


def _group(name: str) -> EventGroup | None:
    return EventGroup(name) if name in EventGroup.__members__.values() else None


def _little_endian(array: AnyArray) -> AnyArray:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
