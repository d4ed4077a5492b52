"""Whatever bytes come to POST /v1/ingest: an answer that is no 5xx, and bounded memory.

hypothesis makes the bytes, the same in every run; a real server process takes them over real HTTP,
and the kernel says how far its memory rose meanwhile.
"""

from __future__ import annotations

import gzip
import math
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwarden_wire.batches import CONTENT_TYPE, WIRE_VERSION, Batch, Stream, Table
from gpuwarden_wire.codec import MAX_BODY_BYTES, Encoding, compress, decode_problem, encode_batch
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import METRICS
from gpuwarden_wire.schema import schema_for
from tests.builders.server import Feeder, ServerProcess, make_client, make_event, make_settings

MIB = 1024 * 1024
NODE = "target"
# A body of 8 MiB, its content, and the objects that decoding makes of it before they are refused.
MOST_RISE_BYTES = 24 * MAX_BODY_BYTES


class Door:
    """POST /v1/ingest of a server process."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.server = process.start()
        self.client = make_client(self.server.url, self.server.mint("agent", NODE))
        self.codes: set[str] = set()

    def post(self, body: bytes, encoding: str = "identity") -> int:
        """The answer's status; every refusal is a problem."""
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": encoding}
        answer = self.client.post("/v1/ingest", content=body, headers=headers, timeout=60.0)
        assert answer.status_code < 500, answer.text
        if answer.status_code != 200:
            problem = decode_problem(answer.content)
            assert problem is not None
            assert problem.detail
            self.codes.add(problem.code)
        return answer.status_code

    def memory(self, field: str) -> int:
        """Bytes of VmRSS (now) or VmHWM (most since `forget_peak`) of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(field)

    def forget_peak(self) -> None:
        """Let VmHWM begin anew (proc(5), clear_refs)."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    process = ServerProcess(make_settings(tmp_path_factory.mktemp("fuzz")))
    try:
        opened = Door(process)
        yield opened
        opened.client.close()
        opened.server.admin.close()
    finally:
        process.close()


def batch_of(stream: Stream, **fields: Any) -> Batch:
    header: dict[str, Any] = {
        "version": WIRE_VERSION,
        "node_id": NODE,
        "spool_id": "0" * 32,
        "seq": 1,
        "boot_id": "boot",
        "agent_version": "0",
        "sent_at": 1.0,
        "interval_s": 5.0,
    }
    return Batch(stream=stream, **(header | fields))


def million_names() -> Batch:
    """As many entities as fit, without the numbers that would belong to them."""
    (table,) = table_of(1, 0.0).tables
    names = tuple(f"{n:x}" for n in range(1_000_000))
    return batch_of(Stream.TELEMETRY, tables=(msgspec.structs.replace(table, entities=names),))


def table_of(entities: int, value: float, metrics: int = 8) -> Batch:
    names = [m.name for m in METRICS if m.entity_kind is EntityKind.GPU][:metrics]
    schema = schema_for(EntityKind.GPU, names)
    wide = len(schema.columns) - schema.f32_count
    table = Table(
        schema=schema.hash,
        observed_at=1.0,
        entities=tuple(f"G{n}" for n in range(entities)),
        f32=struct.pack("<f", value) * (schema.f32_count * entities),
        f64=struct.pack("<d", value) * (wide * entities),
    )
    return batch_of(Stream.TELEMETRY, tables=(table,), schemas=(schema,))


# Random bytes, values and mutations

SAMPLES = [
    encode_batch(batch_of(Stream.EVENTS, events=(make_event("e"),))),
    encode_batch(table_of(2, math.nan)),
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


LIKE: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(),
    str: st.text(max_size=300),
    bytes: st.binary(max_size=300),
}


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good batch with one value, anywhere in it, replaced: by any, or by one of its own type."""
    content = msgspec.msgpack.decode(draw(st.sampled_from(SAMPLES)))
    place: Any = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        deeper = isinstance(place[key], dict | list) and len(place[key]) > 0
        if not deeper or draw(st.booleans()):
            alike = LIKE.get(type(place[key]), VALUES)
            place[key] = draw(alike if draw(st.booleans()) else VALUES)
            return msgspec.msgpack.encode(content)
        place = place[key]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good batch, packed or not, with bytes changed, or cut short."""
    body = bytearray(compress(draw(st.sampled_from(SAMPLES)), draw(st.sampled_from(Encoding))))
    for place in draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[place] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.integers(0, len(body)))])


BODIES = (
    st.binary(max_size=200) | VALUES.map(msgspec.msgpack.encode) | mutated() | mutated() | damaged()
)
ENCODINGS = st.sampled_from([*Encoding, "br"])


def fuzz(door: Door, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(body=BODIES, encoding=ENCODINGS, packed=st.booleans())
    def send(body: bytes, encoding: str, packed: bool) -> None:
        if packed and encoding != "br":
            body = compress(body, Encoding(encoding))
        door.post(body, encoding)

    send()


def test_no_bytes_crash_the_door(door: Door) -> None:
    fuzz(door, 300)
    assert {"not_a_batch", "invalid_value", "wrong_encoding"} <= door.codes


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_bytes_crash_the_door_in_a_long_run(door: Door) -> None:
    fuzz(door, 20_000)


# Hostile sizes


def zstd_bomb(size: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


def wide_window() -> bytes:
    """A frame that asks the reader for a window of 2 GiB (RFC 8878, 3.1.1.1.2)."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + b"\x03\x00\x00" + b"\0"


def with_field(name: str, value: bytes) -> bytes:
    """A good batch with one more field, whose value is given as msgpack."""
    body = SAMPLES[0]
    assert body[0] & 0xF0 == 0x80 or body[0] == 0xDE
    packed = msgspec.msgpack.encode(name) + value
    if body[0] == 0xDE:
        return (
            b"\xde" + struct.pack(">H", struct.unpack(">H", body[1:3])[0] + 1) + body[3:] + packed
        )
    return bytes([body[0] + 1]) + body[1:] + packed


def flood(kind: int, count: int, item: bytes) -> bytes:
    """An array (0xdd) or map (0xdf) with a 32-bit length, and that many items."""
    return bytes([kind]) + struct.pack(">I", count) + item * count


FITS = MAX_BODY_BYTES - 4096
HOSTILE: dict[str, Callable[[], tuple[bytes, str]]] = {
    "zstd bomb of 512 MiB": lambda: (zstd_bomb(512 * MIB), "zstd"),
    "zstd bomb in many frames": lambda: (zstd_bomb(MIB) * 300, "zstd"),
    "zstd window of 2 GiB": lambda: (wide_window(), "zstd"),
    "gzip bomb of 256 MiB": lambda: (gzip.compress(bytes(256 * MIB), 1), "gzip"),
    "gzip bombs behind each other": lambda: (gzip.compress(bytes(MIB), 1) * 300, "gzip"),
    "nested arrays": lambda: (b"\x91" * FITS, "identity"),
    "nested maps": lambda: (b"\x81\xa1a" * (FITS // 3), "identity"),
    "nesting in a field of a later version": lambda: (
        with_field("later", b"\x91" * FITS),
        "identity",
    ),
    "an array that says it has four billion": lambda: (b"\xdd\xff\xff\xff\xff", "identity"),
    "bytes that say they are four gigabytes": lambda: (
        with_field("tables", b"\xc6\xff\xff\xff\xff"),
        "identity",
    ),
    "four billion tables that are not there": lambda: (
        with_field("tables", b"\xdd\xff\xff\xff\xff"),
        "identity",
    ),
    "a million unknown fields": lambda: (
        flood(0xDF, 1_000_000, b"\xa3abc\x00"),
        "identity",
    ),
    "a million nothings in a later field": lambda: (
        with_field("later", flood(0xDD, 8_000_000, b"\xc0")),
        "identity",
    ),
    "events that are a million empty maps": lambda: (
        with_field("events", flood(0xDD, 1_000_000, b"\x80")),
        "identity",
    ),
    "a name of 8 MiB": lambda: (
        encode_batch(batch_of(Stream.EVENTS, boot_id="x" * FITS)),
        "identity",
    ),
    "a million entities": lambda: (
        compress(encode_batch(million_names()), Encoding.ZSTD),
        "zstd",
    ),
    "a flood of NaN": lambda: (
        compress(encode_batch(table_of(4_096, math.nan, metrics=200)), Encoding.ZSTD),
        "zstd",
    ),
    "noise of 8 MiB": lambda: (random.Random(1).randbytes(FITS), "identity"),
    "9 MiB": lambda: (bytes(9 * MIB), "identity"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sizes_cost_bounded_memory(
    door: Door, name: str, record_property: Callable[[str, object], None]
) -> None:
    body, encoding = HOSTILE[name]()
    door.forget_peak()
    before = door.memory("VmRSS")
    try:
        door.post(body, encoding)
    except httpx.TransportError:
        # Refused by its length before the body was read: the answer may be lost to the writing.
        assert len(body) > MAX_BODY_BYTES
    rise = door.memory("VmHWM") - before
    record_property(
        "figure", f"ingest, {name}: {len(body):,} bytes, memory rose {rise / MIB:.0f} MiB"
    )
    assert rise < MOST_RISE_BYTES


def test_the_door_works_after_all_of_it(door: Door) -> None:
    feeder = Feeder(door.server, door.server.mint("agent", "other"), "other")
    assert feeder.introduce().applied_seq == 1
    feeder.close()
    assert door.server.admin.get("/readyz").json()["state"] == "ready"
