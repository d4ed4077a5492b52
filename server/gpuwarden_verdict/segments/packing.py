"""Streams of bytes into one blob and back: each stream compressed by zstd where that helps.

Form: number of streams (u32), length of each before compression and as stored (u32, u32), then
the streams. Equal lengths: stored as it is.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

MOST_BYTES = 1 << 28
"""Most bytes of one blob before compression: what a hostile one may make us allocate."""
MOST_STREAMS = 1 << 14
_NOT_WORTH_IT = 48
_COUNT = struct.Struct("<I")
_LENGTHS = struct.Struct("<II")


class SegmentError(Exception):
    """Bytes that are no segment; the message says what is wrong with them."""


class Packer:
    """Collects streams."""

    def __init__(self, level: int) -> None:
        """Make an empty one; `level` is zstd's, 1 (fast) to 19 (small)."""
        # the lengths stand in the directory, and the checksum is the segment's
        self._zstd = zstandard.ZstdCompressor(
            level=level, write_content_size=False, write_checksum=False
        )
        self._lengths: list[tuple[int, int]] = []
        self._streams: list[bytes] = []

    def add(self, content: bytes | npt.NDArray[Any]) -> None:
        """Append one stream."""
        raw = content if isinstance(content, bytes) else content.tobytes()
        stored = self._zstd.compress(raw) if len(raw) >= _NOT_WORTH_IT else raw
        if len(stored) >= len(raw):
            stored = raw
        self._lengths.append((len(raw), len(stored)))
        self._streams.append(stored)

    def add_integers(self, values: U64) -> None:
        """Append whole numbers: how many bytes the largest takes, then byte after byte of all."""
        width = (int(values.max(initial=0)).bit_length() + 7) // 8
        planes = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        self.add(bytes([width]) + planes.T.tobytes())

    def add_planes(self, values: npt.NDArray[Any], width: int) -> None:
        """Append the lowest `width` bytes of whole numbers, a stream for each."""
        size = values.dtype.itemsize
        split = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
        for place in range(width):
            self.add(np.ascontiguousarray(split[:, place]))

    def finish(self) -> bytes:
        """The blob."""
        directory = b"".join(_LENGTHS.pack(*pair) for pair in self._lengths)
        return b"".join((_COUNT.pack(len(self._lengths)), directory, *self._streams))


class Unpacker:
    """Gives streams back in the order in which they were added."""

    def __init__(self, blob: memoryview) -> None:
        """Read the directory.

        Raises:
            SegmentError: It does not fit the bytes, or asks for more than MOST_BYTES.
        """
        if len(blob) < _COUNT.size:
            raise SegmentError("cut short")
        (count,) = _COUNT.unpack_from(blob)
        begin = _COUNT.size + count * _LENGTHS.size
        if count > MOST_STREAMS or begin > len(blob):
            raise SegmentError(f"a directory of {count} streams in {len(blob)} bytes")
        self._lengths = list(_LENGTHS.iter_unpack(blob[_COUNT.size : begin]))
        if sum(raw for raw, _ in self._lengths) > MOST_BYTES:
            raise SegmentError(f"more than {MOST_BYTES} bytes unpacked")
        if begin + sum(stored for _, stored in self._lengths) != len(blob):
            raise SegmentError("the streams are not as long as the directory says")
        self._blob, self._offset, self._next = blob, begin, 0
        self._zstd = zstandard.ZstdDecompressor()

    def take(self, length: int | None = None) -> bytes:
        """The next stream.

        Args:
            length: What it must have, bytes; None for any.

        Raises:
            SegmentError: There is none, or it is not as long, or damaged.
        """
        if self._next >= len(self._lengths):
            raise SegmentError("fewer streams than there should be")
        raw, stored = self._lengths[self._next]
        content = self._blob[self._offset : self._offset + stored]
        self._next, self._offset = self._next + 1, self._offset + stored
        if length is not None and raw != length:
            raise SegmentError(f"a stream of {raw} bytes where {length} should be")
        if raw == stored:
            return bytes(content)
        try:
            found = self._zstd.decompress(content, max_output_size=raw)
        except zstandard.ZstdError as error:
            raise SegmentError(f"zstd: {error}") from None
        if len(found) != raw:
            raise SegmentError("a stream unpacks to another length")
        return found

    def take_integers(self, count: int) -> U64:
        """`count` whole numbers."""
        content = self.take()
        width = content[0] if content else 0
        if width > 8 or len(content) != 1 + width * count:
            raise SegmentError("whole numbers of another count")
        planes = np.zeros((count, 8), np.uint8)
        planes[:, :width] = np.frombuffer(content, np.uint8, offset=1).reshape(width, count).T
        return planes.view("<u8").reshape(count)

    def take_planes(self, count: int, width: int, size: int) -> npt.NDArray[Any]:
        """`count` whole numbers of `size` bytes, of which the lowest `width` were added."""
        planes = np.zeros((count, size), np.uint8)
        for place in range(width):
            planes[:, place] = np.frombuffer(self.take(count), np.uint8)
        return planes.view(f"<u{size}").reshape(count)

    def take_bytes(self, count: int, most: int) -> U8:
        """`count` small numbers, none above `most`."""
        found = np.frombuffer(self.take(count), np.uint8)
        if count and int(found.max()) > most:
            raise SegmentError(f"a code of {int(found.max())}, the highest is {most}")
        return found
