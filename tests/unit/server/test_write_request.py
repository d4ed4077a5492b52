"""Remote write's bytes: what is read, and that nothing hostile gets far."""

from __future__ import annotations

import math
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_server.doors.write_request import (
    MAX_BODY_BYTES,
    MAX_SERIES,
    WriteRequestError,
    WriteRequestTooLarge,
    decompress,
    is_stale,
    read_labels,
    read_samples,
)
from tests.builders.remote_write import STALE, compressed, field, series, varint, write_request

LABELS = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "node-1", "gpu": "0"}
_TEXT = st.text(max_size=20)
_NUMBERS = st.floats(allow_nan=False)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(_TEXT, _TEXT, max_size=5),
            st.lists(st.tuples(st.integers(0, 2**40), _NUMBERS), max_size=3),
        ),
        max_size=5,
    )
)
def test_what_is_sent_is_read(many: list[tuple[dict[str, str], list[tuple[int, float]]]]) -> None:
    body = write_request([(la, [(at / 1000, n) for at, n in samples]) for la, samples in many])
    found = [(read_labels(labels), at, number) for labels, at, number in read_samples(body)]
    assert found == [(la, at, n) for la, samples in many for at, n in samples]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        for labels, _, _ in read_samples(body):
            read_labels(labels)
        decompress(body)
    except WriteRequestError:
        pass


@given(st.data())
def test_a_request_with_a_broken_byte_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(write_request([(LABELS, [(1000.0, 41.0), (1015.0, 42.0)])]))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    with suppress(WriteRequestError):
        list(read_samples(bytes(body)))


def test_other_fields_are_passed_over() -> None:
    metadata = field(0x1A, b"\x08\x01\x12\x04name")
    histogram = field(0x22, b"\x08\x05")
    body = metadata + field(0x0A, series(LABELS, [(1.0, 5.0)])[2:] + histogram)
    assert [(at, number) for _, at, number in read_samples(body)] == [(1000, 5.0)]


def test_labels_behind_samples_are_the_series_too() -> None:
    one, other = ({"__name__": "a"}, {"b": "c"})
    inner = series(one, [(1.0, 5.0)])[2:] + series(other, [])[2:]
    ((labels, _, _),) = read_samples(field(0x0A, inner))
    assert read_labels(labels) == one | other


def test_a_body_that_claims_too_much_is_never_made() -> None:
    tracemalloc.start()
    with pytest.raises(WriteRequestTooLarge):
        decompress(varint(MAX_BODY_BYTES + 1) + b"\x00" * 100)
    bomb = compressed(bytes(MAX_BODY_BYTES + 1))
    with pytest.raises(WriteRequestTooLarge):
        decompress(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MAX_BODY_BYTES + 4 * 1024 * 1024  # what this test itself made


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of more than 64 bits
        b"\x0a\x7f",  # longer than what is there
        b"\x0b",  # a group
        field(0x0A, field(0x12, b"\x09\x00")),  # half a number
        field(0x0A, b"\x0a\xff\x01"),
    ],
)
def test_broken_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(WriteRequestError):
        list(read_samples(body))


def test_too_many_series_and_labels_are_refused() -> None:
    with pytest.raises(WriteRequestTooLarge):
        list(read_samples(b"\x0a\x00" * (MAX_SERIES + 1)))
    ((labels, _, _),) = read_samples(series({f"l{n}": "x" for n in range(65)}, [(1.0, 1.0)]))
    with pytest.raises(WriteRequestError, match="at most 64"):
        read_labels(labels)
    with pytest.raises(WriteRequestError, match="bytes, at most"):
        list(read_samples(series({"l": "x" * 20_000}, [(1.0, 1.0)])))


def test_a_label_that_is_no_text_is_refused() -> None:
    with pytest.raises(WriteRequestError, match="UTF-8"):
        read_labels(field(0x0A, field(0x0A, b"\xff\xfe")))


def test_only_the_staleness_marker_ends_a_series() -> None:
    assert is_stale(STALE)
    assert not is_stale(math.nan)
    assert not is_stale(1.0)
    ((_, _, number),) = read_samples(series(LABELS, [(1.0, STALE)]))
    assert is_stale(number)
