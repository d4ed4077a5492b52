"""Blocks as bytes: versioned, checksummed, safe to read whoever wrote them.

Form: b"GWHS", version (u16), CRC-32 of the rest (u32), then streams (see `packing`): what the
blocks are (msgpack), why numbers are missing, then the numbers, series after series, all blocks of
as many times together, float32 before float64. Times are a series too: a regular grid takes some
bytes in all, each exception a few more.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gpuwarden_verdict.segments.blocks import (
    MOST_REASONS,
    PLANES,
    AnyArray,
    Block,
    Reason,
    Row,
    columns_of,
    narrow_of,
)
from gpuwarden_verdict.segments.numbers import pack_numbers, unpack_numbers
from gpuwarden_verdict.segments.packing import Packer, SegmentError, Unpacker
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Column

SMALL = 6
"""zstd's level for what is kept."""
FAST = 1
"""zstd's level for what is packed again soon."""

_MAGIC = b"GWHS"
_VERSION = 1
_PREFIX = struct.Struct("<4sHI")
_MOST_CELLS = 1 << 24
_MOST_BLOCKS = 4_096
_DTYPES = (np.float32, np.float64)


class _Described(msgspec.Struct, frozen=True, array_like=True):
    """One block without its numbers."""

    kind: EntityKind
    columns: tuple[Column, ...]
    nodes: tuple[str, ...]
    sizes: tuple[int, ...]
    entities: tuple[str, ...]
    times: int
    planes: tuple[str, ...]
    reasons: tuple[tuple[MissingKind, str], ...]


_decoder = msgspec.msgpack.Decoder(tuple[_Described, ...])


def encode_segment(blocks: Sequence[Block], level: int = SMALL) -> bytes:
    """Bytes of blocks.

    Args:
        blocks: Each with at least one time; NaN only where `why` says so.
        level: zstd's.
    """
    packer = Packer(level)
    packer.add(msgspec.msgpack.encode([_describe(block) for block in blocks]))
    packer.add(b"".join(block.why.tobytes() for block in blocks if block.reasons))
    for times in sorted({block.times.size for block in blocks}):
        together = [block for block in blocks if block.times.size == times]
        for dtype in _DTYPES:
            parts = [part for block in together for part in _parts(block, dtype)]
            if parts:
                pack_numbers(packer, np.concatenate([one for one, _ in parts]), _absent(parts))
    body = packer.finish()
    return _PREFIX.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def decode_segment(blob: bytes) -> list[Block]:
    """The blocks of a segment.

    Raises:
        SegmentError: Not a segment, damaged, of a newer form, or larger than any that we write.
    """
    if len(blob) < _PREFIX.size or not blob.startswith(_MAGIC):
        raise SegmentError("not a segment of gpuwarden")
    _, version, checksum = _PREFIX.unpack_from(blob)
    if version != _VERSION:
        raise SegmentError(f"form {version}, this program reads form {_VERSION}")
    body = memoryview(blob)[_PREFIX.size :]
    if zlib.crc32(body) != checksum:
        raise SegmentError("damaged or cut short (the checksum does not match)")
    unpacker = Unpacker(body)
    try:
        described = _decoder.decode(unpacker.take())
    except msgspec.DecodeError as error:
        raise SegmentError(f"its description: {error}") from None
    _check(described)
    return _decode_blocks(described, unpacker)


def _describe(block: Block) -> _Described:
    nodes: list[str] = []
    sizes: list[int] = []
    for row in block.rows:
        if nodes and nodes[-1] == row.node_id:
            sizes[-1] += 1
        else:
            nodes.append(row.node_id)
            sizes.append(1)
    return _Described(
        block.kind,
        block.columns,
        tuple(nodes),
        tuple(sizes),
        tuple(row.entity for row in block.rows),
        block.times.size,
        tuple(name for name in PLANES if name in block.planes),
        tuple((reason.kind, reason.words) for reason in block.reasons),
    )


_Part = tuple[AnyArray, AnyArray | None]


def _absent(parts: Sequence[_Part]) -> AnyArray | None:
    if all(missing is None for _, missing in parts):
        return None
    return np.concatenate(
        [np.zeros(one.shape, np.bool_) if missing is None else missing for one, missing in parts]
    )


def _parts(block: Block, dtype: type) -> Iterator[_Part]:
    """Series of one dtype, shape (series, times), and where they have no number (None: nowhere)."""
    columns = len(block.columns)
    for name, (own, _) in PLANES.items():
        if own is dtype and name in block.planes:
            missing = None
            if block.reasons and name != "count":
                missing = _series(block.why[:, columns_of(name, columns, block.narrow)] != 0)
            yield _series(block.planes[name]), missing
    if dtype is np.float64:
        yield block.times[None, :], None


def _series(plane: AnyArray) -> AnyArray:
    return plane.reshape(plane.shape[0], -1).T


def _check(described: Sequence[_Described]) -> None:
    """Refuse what no block of ours is, before anything is made of it."""
    cells = 0
    for one in described:
        if one.times < 1 or min(one.sizes, default=1) < 1 or len(one.reasons) > MOST_REASONS:
            raise SegmentError("a block without times, or with too many reasons")
        if sum(one.sizes) != len(one.entities) or len(one.sizes) != len(one.nodes):
            raise SegmentError("its entities are not as many as its nodes have")
        if not set(one.planes) <= PLANES.keys() or len(set(one.planes)) != len(one.planes):
            raise SegmentError("it names planes that there are not")
        planes = len(one.planes) + 1
        cells += one.times * max(1, len(one.columns) * len(one.entities)) * planes
    if cells > _MOST_CELLS or len(described) > _MOST_BLOCKS:
        raise SegmentError(f"larger than {_MOST_CELLS} numbers or {_MOST_BLOCKS} blocks")


def _decode_blocks(described: Sequence[_Described], unpacker: Unpacker) -> list[Block]:
    whys = _decode_whys(described, unpacker.take())
    numbers: dict[int, dict[str, AnyArray]] = {place: {} for place in range(len(described))}
    for times in sorted({one.times for one in described}):
        together = [place for place, one in enumerate(described) if one.times == times]
        for dtype in _DTYPES:
            shapes = [
                part for place in together for part in _shapes(place, described[place], dtype)
            ]
            if not shapes:
                continue
            series = sum(columns * rows for _, _, columns, rows in shapes)
            found = unpack_numbers(unpacker, dtype, series, times)
            begin = 0
            for place, name, columns, rows in shapes:
                part = found[begin : begin + columns * rows].T.reshape(times, columns, rows)
                numbers[place][name] = part
                begin += columns * rows
    return [_block(one, whys[place], numbers[place]) for place, one in enumerate(described)]


def _shapes(place: int, one: _Described, dtype: type) -> Iterator[tuple[int, str, int, int]]:
    """Which planes come next, as `_parts` gave them."""
    columns, narrow = len(one.columns), narrow_of(one.columns)
    for name, (own, _) in PLANES.items():
        if own is dtype and name in one.planes:
            own_columns = columns_of(name, columns, narrow)
            yield place, name, own_columns.stop - own_columns.start, len(one.entities)
    if dtype is np.float64:
        yield place, "", 1, 1


def _decode_whys(described: Sequence[_Described], content: bytes) -> list[AnyArray]:
    whys, begin = [], 0
    for one in described:
        shape = (one.times, len(one.columns), len(one.entities))
        if not one.reasons:
            whys.append(np.zeros(shape, np.uint8))
            continue
        size = shape[0] * shape[1] * shape[2]
        if begin + size > len(content):
            raise SegmentError("fewer reasons than cells")
        why = np.frombuffer(content, np.uint8, size, begin).reshape(shape)
        if size and int(why.max()) > len(one.reasons):
            raise SegmentError("a reason that is not in the list")
        whys.append(why)
        begin += size
    return whys


def _block(one: _Described, why: AnyArray, numbers: dict[str, AnyArray]) -> Block:
    times = numbers.pop("").reshape(one.times)
    if not np.isfinite(times).all() or (np.diff(times) < 0.0).any():
        raise SegmentError("times that do not rise")
    columns, narrow = len(one.columns), narrow_of(one.columns)
    if any(column.storage is not one.columns[0].storage for column in one.columns[:narrow]):
        raise SegmentError("counters before other columns")
    for name, plane in numbers.items():
        if one.reasons and name != "count":
            plane[why[:, columns_of(name, columns, narrow)] != 0] = np.nan
    nodes = (node for node, size in zip(one.nodes, one.sizes, strict=True) for _ in range(size))
    return Block(
        kind=one.kind,
        columns=one.columns,
        rows=tuple(Row(node, entity) for node, entity in zip(nodes, one.entities, strict=True)),
        times=times,
        planes=numbers,
        why=why,
        reasons=tuple(Reason(kind, words) for kind, words in one.reasons),
    )
