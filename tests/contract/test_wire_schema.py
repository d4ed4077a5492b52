"""The wire contract: its golden form, and a decoder that holds on any input."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_wire.acknowledgement import Acknowledgement, Problem
from gpuwarden_wire.batches import Batch, MissingCell, MissingKind, ShedRange, Stream, Table
from gpuwarden_wire.codec import (
    MAX_BODY_BYTES,
    BatchTooLarge,
    Encoding,
    WireError,
    compress,
    content_digest,
    decode_acknowledgement,
    decode_batch,
    decode_problem,
    decompress,
    encode_batch,
    encode_json,
)
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.json_schema import FILE_NAME, schema_text
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for

GOLDEN = files("gpuwarden_wire").joinpath(FILE_NAME).read_text(encoding="utf-8")

texts = st.text(max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
attributes = st.dictionaries(
    texts,
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | numbers | texts,
    max_size=3,
)
events = st.builds(
    Event,
    id=texts,
    kind=st.sampled_from(EventKind),
    observed_at=numbers,
    entity_kind=st.sampled_from(EntityKind),
    count=st.integers(1, 2**31),
    xid=st.none() | st.integers(0, 999),
    text=texts,
    attributes=attributes,
    inventory=st.none()
    | st.builds(
        Inventory,
        gpus=st.tuples(st.builds(GpuIdentity, gpu_uuid=texts, pci_bus_id=texts)),
        labels=st.dictionaries(texts, texts, max_size=2),
    ),
)
tables = st.builds(
    Table,
    schema=texts,
    observed_at=numbers,
    entities=st.tuples(texts),
    f32=st.binary(max_size=16),
    f64=st.binary(max_size=16),
    missing=st.tuples(
        st.builds(
            MissingCell,
            row=st.integers(0, 9),
            column=st.integers(0, 9),
            kind=st.sampled_from(MissingKind),
            reason=texts,
        )
    ),
)
batches = st.builds(
    Batch,
    version=st.just(1),
    node_id=texts,
    spool_id=texts,
    stream=st.sampled_from(Stream),
    seq=st.integers(1, 2**63 - 1),
    boot_id=texts,
    agent_version=texts,
    sent_at=numbers,
    interval_s=numbers,
    more_events=st.booleans(),
    late=st.booleans(),
    shed=st.tuples(
        st.builds(
            ShedRange,
            stream=st.sampled_from(Stream),
            first_seq=st.integers(1, 9),
            last_seq=st.integers(1, 9),
        )
    ),
    schemas=st.just((schema_for(EntityKind.NODE, ["node_load1", "node_interrupts_total"]),)),
    tables=st.lists(tables, max_size=2).map(tuple),
    events=st.lists(events, max_size=2).map(tuple),
)


def test_the_golden_schema_is_what_the_code_says() -> None:
    assert schema_text() == GOLDEN, (
        "the wire contract changed: if it is additive, write the file anew with "
        "`python -m gpuwarden_wire.json_schema > agent/gpuwarden_wire/batch.schema.json`"
    )


def test_the_golden_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(GOLDEN))


def validate(value: msgspec.Struct, name: str) -> None:
    schema = json.loads(GOLDEN)
    wanted = {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}
    jsonschema.Draft202012Validator(wanted).validate(json.loads(msgspec.json.encode(value)))


@given(batches)
@settings(max_examples=40)
def test_every_batch_fits_the_schema(batch: Batch) -> None:
    validate(batch, "Batch")


def test_answers_fit_the_schema() -> None:
    validate(Acknowledgement(stream=Stream.EVENTS, applied_seq=1, durable_seq=1), "Acknowledgement")
    validate(Problem(type="t", title="t", status=428, code="c", schemas=("a",)), "Problem")


@given(batches, st.sampled_from(Encoding))
@settings(max_examples=60)
def test_a_batch_comes_back_as_it_went(batch: Batch, encoding: Encoding) -> None:
    assert decode_batch(decompress(compress(encode_batch(batch), encoding), encoding)) == batch


@given(batches, batches)
@settings(max_examples=60)
def test_a_digest_tells_content_and_only_content(one: Batch, other: Batch) -> None:
    same = (one.boot_id, one.tables, one.events) == (other.boot_id, other.tables, other.events)
    if not same:
        assert content_digest(one) != content_digest(other)
    resent = msgspec.structs.replace(
        one, schemas=(), more_events=not one.more_events, late=not one.late, shed=()
    )
    assert content_digest(resent) == content_digest(one)
    assert content_digest(decode_batch(encode_batch(one))) == content_digest(one)


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_random_bytes_never_crash_the_decoder(body: bytes) -> None:
    for encoding in Encoding:
        try:
            decode_batch(decompress(body, encoding))
        except WireError as error:
            assert str(error)


@given(batches, st.data())
@settings(max_examples=120)
def test_a_spoilt_batch_never_crashes_the_decoder(batch: Batch, data: st.DataObject) -> None:
    body = bytearray(encode_batch(batch))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for spoilt in (bytes(body), bytes(body[:cut])):
        try:
            decode_batch(spoilt)
        except WireError as error:
            assert str(error)


@given(batches, st.data())
@settings(max_examples=60)
def test_a_spoilt_compressed_body_never_crashes(batch: Batch, data: st.DataObject) -> None:
    for encoding in (Encoding.GZIP, Encoding.ZSTD):
        body = bytearray(compress(encode_batch(batch), encoding))
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        try:
            decode_batch(decompress(bytes(body), encoding))
        except WireError as error:
            assert str(error)


@pytest.mark.parametrize("encoding", [Encoding.GZIP, Encoding.ZSTD])
def test_a_body_cut_short_or_padded_is_refused(encoding: Encoding) -> None:
    body = compress(b"x" * 5_000, encoding)
    for spoilt in (body[:-1], body[: len(body) // 2], body[:3], b"", body + b"x", body * 2):
        with pytest.raises(WireError):
            decompress(spoilt, encoding)


def test_unknown_fields_are_ignored() -> None:
    batch = msgspec.msgpack.decode(encode_batch(_batch()))
    later = batch | {"invented_later": [1, 2]}
    assert decode_batch(msgspec.msgpack.encode(later)) == _batch()


def test_oversized_bodies_are_refused_before_they_are_looked_at() -> None:
    for encoding in Encoding:
        body = compress(b"\0" * (MAX_BODY_BYTES + 1), encoding)
        with pytest.raises(BatchTooLarge):
            decompress(body, encoding)
    with pytest.raises(BatchTooLarge):
        decode_batch(b"\0" * (MAX_BODY_BYTES + 1))
    assert len(decompress(compress(b"\0" * MAX_BODY_BYTES, Encoding.ZSTD), Encoding.ZSTD))


def _batch(**fields: Any) -> Batch:
    empty: dict[str, Any] = {
        "version": 1,
        "node_id": "n",
        "spool_id": "0" * 32,
        "stream": Stream.EVENTS,
        "seq": 1,
        "boot_id": "b",
        "agent_version": "1",
        "sent_at": 1.0,
    }
    return Batch(**(empty | fields))


def _with_attribute(raw: bytes) -> bytes:
    """A batch with one event with one attribute whose value is `raw` msgpack."""
    event = Event(id="x", kind=EventKind.KERNEL_LOG, observed_at=1.0, attributes={"MARK": 1})
    return encode_batch(_batch(events=(event,))).replace(b"\xa4MARK\x01", b"\xa4MARK" + raw)


_ROOM = MAX_BODY_BYTES - 1_000
_ARRAY32 = b"\xdd" + struct.pack(">I", _ROOM)


def _zeroes(compressor: Any, mebibytes: int) -> bytes:
    parts = [compressor.compress(bytes(2**20)) for _ in range(mebibytes)]
    return b"".join([*parts, compressor.flush()])


BOMBS: dict[str, tuple[Encoding, Callable[[], bytes]]] = {
    "zstd of zeroes": (
        Encoding.ZSTD,
        lambda: _zeroes(zstandard.ZstdCompressor(level=1).compressobj(), 512),
    ),
    "gzip of zeroes": (Encoding.GZIP, lambda: _zeroes(zlib.compressobj(1, wbits=31), 128)),
    "empty lists in a list": (
        Encoding.IDENTITY,
        lambda: _with_attribute(_ARRAY32 + b"\x90" * _ROOM),
    ),
    "empty maps in a list": (
        Encoding.IDENTITY,
        lambda: _with_attribute(_ARRAY32 + b"\x80" * _ROOM),
    ),
    "a list in a list in a list": (
        Encoding.IDENTITY,
        lambda: _with_attribute(b"\x91" * _ROOM + b"\xc0"),
    ),
    "a length without content": (
        Encoding.IDENTITY,
        lambda: _with_attribute(b"\xdd\xff\xff\xff\xff"),
    ),
    "a string without content": (
        Encoding.IDENTITY,
        lambda: _with_attribute(b"\xdb\xff\xff\xff\xff"),
    ),
}

_MEASURE = """
import resource, sys
from gpuwarden_wire.codec import Encoding, WireError, decode_batch, decompress
body = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_batch(decompress(body, Encoding(sys.argv[1])))
except WireError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_bounded_memory(name: str) -> None:
    encoding, make = BOMBS[name]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, encoding.value],
        input=make(),
        capture_output=True,
        check=True,
        timeout=30,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "agent")},
    )
    grown_kib = int(done.stdout)
    assert grown_kib < 5 * MAX_BODY_BYTES / 1024, f"{grown_kib} KiB"


def test_what_is_no_acknowledgement_says_so() -> None:
    for body in (b"", b"{}", b"<html>", b"\xff", b'{"stream":"x","applied_seq":1}'):
        with pytest.raises(WireError):
            decode_acknowledgement(body)


def test_what_is_no_problem_is_none() -> None:
    for body in (b"", b"{}", b"<html>", b"\xff", b"[" * 100_000):
        assert decode_problem(body) is None
    problem = Problem(type="t", title="t", status=409, code="node_claimed")
    assert decode_problem(encode_json(problem)) == problem


def test_nan_has_no_place_in_json() -> None:
    assert b"null" in encode_json(
        Acknowledgement(stream=Stream.EVENTS, applied_seq=1, durable_seq=1)
    )
    assert math.isnan(msgspec.msgpack.decode(msgspec.msgpack.encode(math.nan)))
