"""Prometheus' remote write 1.0: snappy, and the few protobuf messages in it. Pure.

    message WriteRequest { repeated TimeSeries timeseries = 1; }
    message TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    message Label        { string name = 1; string value = 2; }
    message Sample       { double value = 1; int64 timestamp = 2; }

Other fields (metadata, exemplars, histograms) are passed over. Limits hold on hostile input: the
decompressed body is bounded before it is made, and nothing larger than it is made from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, unpack_from

from cramjam import DecompressionError, snappy

MAX_COMPRESSED_BYTES = 8 * 1024 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Prometheus sends 2,000 samples at a time, some 300 kB; vmagent up to 8 MiB."""
MAX_SERIES = 100_000
MAX_LABELS = 64
MAX_LABELS_BYTES = 16 * 1024

STALE_BITS = 0x7FF0_0000_0000_0002
"""Prometheus' staleness marker: this very NaN says that the series has ended."""

_LABELS, _SAMPLE, _SERIES = 0x0A, 0x12, 0x0A  # field number << 3 | 2 (length-delimited)
_VALUE, _TIMESTAMP = 0x09, 0x10
_NAME, _TEXT = 0x0A, 0x12
_BITS = Struct("<Q")
_FIXED = {1: 8, 5: 4}  # wire types of fixed size

Sample = tuple[bytes, int, float]
"""Labels as they came, milliseconds since the epoch, number."""


class WriteRequestError(Exception):
    """Not a write request; the message names what is wrong."""


class WriteRequestTooLarge(WriteRequestError):
    """More than the limits allow."""


def decompress(body: bytes) -> bytes:
    """The body without snappy's block format.

    Raises:
        WriteRequestError: Not snappy.
        WriteRequestTooLarge: It says, or makes, more than MAX_BODY_BYTES.
    """
    try:
        length = snappy.decompress_raw_len(body)
        if length > MAX_BODY_BYTES:
            raise WriteRequestTooLarge(f"{length} bytes decompressed, at most {MAX_BODY_BYTES}")
        return bytes(snappy.decompress_raw(body))
    except DecompressionError as error:
        raise WriteRequestError(f"not snappy's block format: {error}") from error


def read_samples(body: bytes) -> Iterator[Sample]:
    """Samples of a decompressed request, as they come.

    Raises:
        WriteRequestError: Not protobuf of this shape.
        WriteRequestTooLarge: More series than MAX_SERIES.
    """
    try:
        series = (one for one in _fields(body, 0, len(body)) if one[0] == _SERIES)
        for number, (_, start, end) in enumerate(series):
            if number >= MAX_SERIES:
                raise WriteRequestTooLarge(f"more than {MAX_SERIES} series")
            yield from _samples(body, start, end)
    except IndexError as error:
        raise WriteRequestError("cut short") from error


def read_labels(labels: bytes) -> dict[str, str]:
    """Labels by name, the metric's under "__name__".

    Raises:
        WriteRequestError: Not labels, not UTF-8, or more than MAX_LABELS.
    """
    found: dict[str, str] = {}
    try:
        for key, start, end in _fields(labels, 0, len(labels)):
            if key == _LABELS:
                pair = {k: labels[s:e].decode() for k, s, e in _fields(labels, start, end)}
                found[pair.get(_NAME, "")] = pair.get(_TEXT, "")
    except IndexError as error:
        raise WriteRequestError("labels are cut short") from error
    except UnicodeDecodeError as error:
        raise WriteRequestError("a label is not UTF-8") from error
    if len(found) > MAX_LABELS:
        raise WriteRequestError(f"a series of {len(found)} labels, at most {MAX_LABELS}")
    return found


def is_stale(value: float) -> bool:
    """Whether a number is the staleness marker; other NaNs are not."""
    bits: int = _BITS.unpack(Struct("<d").pack(value))[0]
    return value != value and bits == STALE_BITS


def _samples(body: bytes, start: int, end: int) -> Iterator[Sample]:
    """Samples of one series: its labels precede them in what is sent, and need not."""
    first = start
    while first < end and body[first] == _LABELS:
        length, at = _varint(body, first + 1)
        first = at + length
    if first > end:
        raise IndexError
    labels = body[start:first]
    found: list[tuple[int, float]] = []
    for key, begin, stop in _fields(body, first, end):
        if key == _SAMPLE:
            found.append(_sample(body, begin, stop))
        elif key == _LABELS:
            labels += _head(stop - begin) + body[begin:stop]
    if len(labels) > MAX_LABELS_BYTES:
        raise WriteRequestError(f"labels of {len(labels)} bytes, at most {MAX_LABELS_BYTES}")
    for at_ms, value in found:
        yield labels, at_ms, value


def _sample(body: bytes, start: int, end: int) -> tuple[int, float]:
    """Zeros are left out by who sends."""
    value, at_ms, at = 0.0, 0, start
    if at < end and body[at] == _VALUE:
        if at + 9 > end:
            raise IndexError
        (value,) = unpack_from("<d", body, at + 1)
        at += 9
    if at < end and body[at] == _TIMESTAMP:
        at_ms, at = _varint(body, at + 1)
    if at > end:
        raise IndexError
    return at_ms, value


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Key, start and end of each field of a message; of a varint, both are its end."""
    while at < end:
        key, at = _varint(body, at)
        wire_type = key & 7
        start = at
        if wire_type == 2:
            length, start = _varint(body, at)
            at = start + length
        elif wire_type == 0:
            _, at = _varint(body, at)
            start = at
        elif wire_type in _FIXED:
            at += _FIXED[wire_type]
        else:
            raise WriteRequestError(f"protobuf's wire type {wire_type} at byte {at}")
        if at > end:
            raise IndexError
        yield key, start, at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = body[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at + 1
        shift += 7
        if shift > 63:
            raise WriteRequestError("a number of more than 64 bits")


def _head(length: int) -> bytes:
    """Key and length of a label field, as protobuf writes them."""
    head = bytearray((_LABELS,))
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)
