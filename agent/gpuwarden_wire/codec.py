"""Bytes to batches and back, with limits that hold on hostile input."""

from __future__ import annotations

import gzip
import hashlib
import threading
import zlib
from enum import StrEnum

import msgspec
import zstandard

from gpuwarden_wire.acknowledgement import Acknowledgement, Problem
from gpuwarden_wire.batches import Batch

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Largest batch, before and after decompression. A full node of 1,000 series takes about 10 kB."""

_ZSTD_PIECE_BYTES = 256


class Encoding(StrEnum):
    """Content-Encoding of a batch."""

    IDENTITY = "identity"
    GZIP = "gzip"
    ZSTD = "zstd"


class WireError(Exception):
    """Input that is not a batch; the message names what is wrong."""


class BatchTooLarge(WireError):
    """More than MAX_BODY_BYTES, before or after decompression."""


_kept = threading.local()
_batch_encoder = msgspec.msgpack.Encoder()
_batch_decoder = msgspec.msgpack.Decoder(Batch)
_ack_decoder = msgspec.json.Decoder(Acknowledgement)
_problem_decoder = msgspec.json.Decoder(Problem)


def encode_batch(batch: Batch) -> bytes:
    """Msgpack bytes of a batch."""
    return _batch_encoder.encode(batch)


def decode_batch(body: bytes) -> Batch:
    """The batch in msgpack bytes.

    Raises:
        WireError: Not msgpack, or not of a batch's shape; unknown fields are ignored.
        BatchTooLarge: Larger than MAX_BODY_BYTES.
    """
    if len(body) > MAX_BODY_BYTES:
        raise BatchTooLarge(f"{len(body)} bytes, at most {MAX_BODY_BYTES}")
    try:
        return _batch_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"not a batch: {error}") from error


def content_digest(batch: Batch) -> str:
    """SHA-256, 64 hex digits, over what a batch says: its boot, tables and events.

    Two deliveries of one sequence with equal digests are replays; with different ones a conflict.
    Schemas, `more_events`, `late`, `shed` and `sent_at` belong to the delivery and may differ.
    """
    return hashlib.sha256(
        _batch_encoder.encode((batch.boot_id, batch.tables, batch.events))
    ).hexdigest()


def compress(body: bytes, encoding: Encoding) -> bytes:
    """Compress a body for the network."""
    match encoding:
        case Encoding.IDENTITY:
            return body
        case Encoding.GZIP:
            return gzip.compress(body, compresslevel=1, mtime=0)
        case Encoding.ZSTD:
            return _zstd_compressor().compress(body)


def _zstd_compressor() -> zstandard.ZstdCompressor:
    """One a thread: making one costs more than most batches do."""
    known: zstandard.ZstdCompressor | None = getattr(_kept, "compressor", None)
    if known is None:
        known = _kept.compressor = zstandard.ZstdCompressor(level=1)
    return known


def decompress(body: bytes, encoding: Encoding) -> bytes:
    """Undo `compress`, never producing more than MAX_BODY_BYTES.

    Raises:
        WireError: Not of that encoding, or cut short.
        BatchTooLarge: The content is larger than MAX_BODY_BYTES (a decompression bomb included).
    """
    match encoding:
        case Encoding.IDENTITY:
            content = body
        case Encoding.GZIP:
            content = _gunzip(body)
        case Encoding.ZSTD:
            content = _unzstd(body)
    if len(content) > MAX_BODY_BYTES:
        raise BatchTooLarge(f"more than {MAX_BODY_BYTES} bytes after decompression")
    return content


def _gunzip(body: bytes) -> bytes:
    decoder = zlib.decompressobj(wbits=31)  # 16 + 15: gzip wrapper, zlib.h inflateInit2
    try:
        content = decoder.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise WireError(f"not gzip: {error}") from error
    if len(content) > MAX_BODY_BYTES:
        return content
    if not decoder.eof:
        raise WireError("gzip content is cut short")
    if decoder.unused_data:
        raise WireError("bytes after the end of the gzip content")
    return content


class _OwnDecoder(threading.local):
    """A decoder is dear to make and not thread-safe: each thread has its own."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor(max_window_size=MAX_BODY_BYTES)


_own = _OwnDecoder()


def _unzstd(body: bytes) -> bytes:
    """In one go where the frame says how large its content is, as ours do; else piece by piece."""
    try:
        if 0 <= zstandard.frame_content_size(body) <= MAX_BODY_BYTES:
            # the decoder makes room for as much as the frame says, and fails where it is not that
            return _own.zstd.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError:
        pass  # what is wrong with it is told below
    return _unzstd_in_pieces(body)


def _unzstd_in_pieces(body: bytes) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_BODY_BYTES).decompressobj()
    content: list[bytes] = []
    produced = 0
    try:
        # Input goes in small pieces, since decompressobj cannot be told a limit: one piece of
        # 256 bytes yields at most some blocks of 128 KiB (zstd's block limit), never a bomb.
        for start in range(0, len(body), _ZSTD_PIECE_BYTES):
            part = decoder.decompress(body[start : start + _ZSTD_PIECE_BYTES])
            produced += len(part)
            content.append(part)
            if produced > MAX_BODY_BYTES or decoder.eof:
                break
    except zstandard.ZstdError as error:
        raise WireError(f"not zstd: {error}") from error
    if produced <= MAX_BODY_BYTES and not decoder.eof:
        raise WireError("zstd content is cut short")
    if decoder.eof and (decoder.unused_data or start + _ZSTD_PIECE_BYTES < len(body)):
        raise WireError("bytes after the end of the zstd content")
    return b"".join(content)


def encode_json(value: msgspec.Struct) -> bytes:
    """JSON bytes of an acknowledgement, verdict or problem."""
    return msgspec.json.encode(value)


def decode_acknowledgement(body: bytes) -> Acknowledgement:
    """The acknowledgement in JSON bytes.

    Raises:
        WireError: Not of that shape.
    """
    try:
        return _ack_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise WireError(f"not an acknowledgement: {error}") from error


def decode_problem(body: bytes) -> Problem | None:
    """The problem details in JSON bytes; None where the body is something else (a proxy's page)."""
    try:
        return _problem_decoder.decode(body)
    except msgspec.DecodeError:
        return None
