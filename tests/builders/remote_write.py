"""What Prometheus' remote write sends."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping

import cramjam
import httpx

from gpuwarden_exporters.exposition import parse_series, parse_value, sample_lines, split_sample

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0_0000_0000_0002))[0]

Sampled = tuple[Mapping[str, str], Iterable[tuple[float, float]]]
"""Labels, and samples: (epoch seconds, number)."""


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(key: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return bytes([key]) + varint(len(content)) + content


def sample(at: float, number: float) -> bytes:
    """A sample; zeros are left out, as Go's protobuf does."""
    value = b"\x09" + struct.pack("<d", number) if number else b""
    return value + b"\x10" + varint(round(at * 1000))


def labels_of(labels: Mapping[str, str]) -> bytes:
    return b"".join(
        field(0x0A, field(0x0A, name.encode()) + field(0x12, text.encode()))
        for name, text in sorted(labels.items())
    )


def series(labels: Mapping[str, str], samples: Iterable[tuple[float, float]]) -> bytes:
    body = b"".join(field(0x12, sample(at, number)) for at, number in samples)
    return field(0x0A, labels_of(labels) + body)


def write_request(many: Iterable[Sampled]) -> bytes:
    """A request, not compressed yet."""
    return b"".join(series(labels, samples) for labels, samples in many)


def compressed(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def scraped(text: str, at: float, **target: str) -> list[Sampled]:
    """An exporter's text as Prometheus has it after a scrape: each series with its target."""
    found: list[Sampled] = []
    for line in sample_lines(text):
        split = split_sample(line)
        assert split is not None
        parsed, value = parse_series(split[0]), parse_value(split[1])
        assert parsed is not None and value is not None
        name, labels = parsed
        found.append(({"__name__": name, **labels, **target}, [(at, float(value))]))
    return found


def stale(many: Iterable[Sampled], at: float) -> list[Sampled]:
    """The end of the same series."""
    return [(labels, [(at, STALE)]) for labels, _ in many]


def push(client: httpx.Client, many: Iterable[Sampled]) -> httpx.Response:
    """Send one request."""
    body = compressed(write_request(many))
    return client.post("/api/v1/write", content=body, headers=HEADERS)


def replaced(text: str, series_name: str, number: float) -> str:
    """The text with another number behind one series."""
    changed, count = re.subn(rf"(?m)^({series_name}\{{.*\}}) \S+$", rf"\1 {number:g}", text)
    assert count
    return changed
