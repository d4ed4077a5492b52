"""Segments: every bit comes back, whatever the numbers; hostile bytes are refused."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gpuwarden_verdict.segments import Block, Reason, SegmentError, decode_segment, encode_segment
from gpuwarden_verdict.segments.blocks import NARROW, WIDE, Row, merged, side_by_side
from gpuwarden_verdict.segments.codec import FAST
from gpuwarden_verdict.segments.rollup import roll_up_further, roll_up_readings
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column

AnyArray = npt.NDArray[Any]
LOST = Reason(MissingKind.UNAVAILABLE, "gpu_lost")
MINUTE = 60.0 * 29_000_000


def columns_for(narrow: int, wide: int) -> tuple[Column, ...]:
    gauges = [Column(f"g{i}", Storage.F32, MetricKind.GAUGE, "watts") for i in range(narrow)]
    counters = [Column(f"c{i}", Storage.COUNTER, MetricKind.COUNTER, "") for i in range(wide)]
    return (*gauges, *counters)


def block_of(
    narrow: AnyArray, wide: AnyArray, times: AnyArray | None = None, node: str = "n1"
) -> Block:
    """A block of planes of shape (times, columns, rows); NaN is a lost GPU."""
    why = np.isnan(np.concatenate([narrow, wide.astype(np.float64)], axis=1)).astype(np.uint8)
    at = MINUTE + 5.0 * np.arange(narrow.shape[0]) if times is None else times
    return Block(
        kind=EntityKind.GPU,
        columns=columns_for(narrow.shape[1], wide.shape[1]),
        rows=tuple(Row(node, f"GPU-{i}") for i in range(narrow.shape[2])),
        times=at.astype(np.float64),
        planes={NARROW: narrow.astype(np.float32), WIDE: wide.astype(np.float64)},
        why=why,
        reasons=(LOST,),
    )


def same(one: Block, other: Block) -> bool:
    """Whether two blocks are equal bit by bit, NaNs as NaNs."""
    facts = (one.kind, one.columns, one.rows, one.reasons)
    return (
        facts == (other.kind, other.columns, other.rows, other.reasons)
        and one.times.tobytes() == other.times.tobytes()
        and np.array_equal(one.why, other.why)
        and one.planes.keys() == other.planes.keys()
        and all(_bits(one.planes[name]) == _bits(other.planes[name]) for name in one.planes)
    )


def _bits(plane: AnyArray) -> bytes:
    return np.where(np.isnan(plane), np.array(np.nan, plane.dtype), plane).tobytes()


def numbers(width: int, times: int, columns: int, rows: int) -> st.SearchStrategy[AnyArray]:
    floats = st.floats(width=width, allow_infinity=False)  # type: ignore[arg-type]  # 32 or 64
    decimals = st.integers(-(10**6), 10**6).map(lambda n: float(np.float32(n / 1000)))
    whole = st.integers(-(2**20), 2**20).map(float)
    dtype = np.float32 if width == 32 else np.float64
    shape = (times, columns, rows)
    kinds = (floats, decimals, whole, st.just(7.25))
    return st.sampled_from(kinds).flatmap(
        lambda elements: arrays.arrays(dtype, shape, elements=elements)
    )


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    times, narrow, wide, rows = (draw(st.integers(low, 5)) for low in (1, 0, 0, 0))
    block = block_of(draw(numbers(32, times, narrow, rows)), draw(numbers(64, times, wide, rows)))
    steps = draw(arrays.arrays(np.float64, times, elements=st.floats(0.0, 1e6)))
    return block_of(block.planes[NARROW], block.planes[WIDE], np.cumsum(steps))


@given(st.lists(blocks(), max_size=4))
@settings(max_examples=50)
def test_every_bit_comes_back(given_blocks: list[Block]) -> None:
    found = decode_segment(encode_segment(given_blocks, FAST))
    assert len(found) == len(given_blocks)
    assert all(map(same, found, given_blocks))


@pytest.mark.parametrize(
    "series",
    [
        2.0**53 + np.arange(50) * 2,  # counters beyond float32
        np.cumsum(np.random.default_rng(1).integers(0, 1 << 40, 50)).astype(float),
        np.array([1.5e300, -1.5e300, 5e-324, -0.0, 0.0, 1e16] * 3),
        np.where(np.arange(50) % 7 == 3, np.nan, 61.0),
        np.where(np.arange(50) < 49, np.nan, 61.5),
        np.full(50, np.nan),
        np.array([1.98e9, 1.95e9, 345e6, 1.98e9] * 9),
    ],
)
def test_counters_beyond_float32_gaps_and_odd_numbers_come_back(series: AnyArray) -> None:
    wide = series.reshape(-1, 1, 1)
    block = block_of(np.empty((wide.shape[0], 0, 1), np.float32), wide)
    assert same(decode_segment(encode_segment([block]))[0], block)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=9))
@settings(max_examples=80)
def test_damaged_bytes_are_refused_even_with_a_right_checksum(place: int, noise: bytes) -> None:
    rng = np.random.default_rng(7)
    narrow = rng.normal(400, 20, (12, 2, 3)).astype(np.float32)
    body = bytearray(encode_segment([block_of(narrow, np.cumsum(np.ones((12, 2, 3)), axis=0))]))
    at = 10 + place % (len(body) - 10)
    body[at : at + len(noise)] = noise
    with pytest.raises(SegmentError, match="checksum"):
        decode_segment(bytes(body) + b"!")
    try:
        found = decode_segment(
            bytes(body[:6]) + struct.pack("<I", zlib.crc32(body[10:])) + body[10:]
        )
    except SegmentError:
        return
    for block in found:  # other numbers, but whole blocks
        assert all(plane.shape[0] == block.times.size for plane in block.planes.values())


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(noise: bytes) -> None:
    for body in (noise, b"GWHS\x01\x00" + struct.pack("<I", zlib.crc32(noise)) + noise):
        with pytest.raises(SegmentError):
            decode_segment(body)


def test_a_bomb_is_refused_before_it_unpacks() -> None:
    claims = struct.pack("<III", 1, 1 << 31, 10) + b"x" * 10
    with pytest.raises(SegmentError, match="more than"):
        decode_segment(b"GWHS\x01\x00" + struct.pack("<I", zlib.crc32(claims)) + claims)


def test_a_minute_is_rolled_up_by_series() -> None:
    narrow = np.array([[[60.0, 1.0]], [[np.nan, np.nan]], [[66.0, np.nan]]])
    wide = np.array([[[100.0, 5.0]], [[130.0, np.nan]], [[10.0, np.nan]]])  # the first was reset
    rolled = roll_up_readings(block_of(narrow, wide), 60.0, np.array([[90.0, np.nan]]))
    told = {name: plane[0, 0].tolist() for name, plane in rolled.planes.items()}
    assert rolled.times.tolist() == [MINUTE]
    assert (told["min"][0], told["max"][0], told["sum"][0], told["last"][0]) == (60, 66, 126, 66)
    assert told["last"][1] == 1.0
    assert told["counter"] == [10.0, 5.0]
    assert told["increase"] == [50.0, 0.0]  # 90 -> 130, then 10 since the reset; unknown before 5
    assert rolled.planes["count"][0].tolist() == [[2.0, 1.0], [3.0, 1.0]]


def test_a_minute_without_numbers_says_why() -> None:
    block = block_of(np.full((3, 1, 1), np.nan), np.full((3, 1, 1), np.nan))
    rolled = roll_up_readings(block, 60.0)
    assert rolled.why[0].tolist() == [[1], [1]]
    assert rolled.reasons == (LOST,)
    assert all(np.isnan(rolled.planes[name]).all() for name in ("min", "sum", "increase"))
    further = roll_up_further(rolled, 900.0)
    assert further.why[0].tolist() == [[1], [1]]


@given(arrays.arrays(np.float64, (40, 1, 2), elements=st.integers(0, 1000).map(float)))
def test_quarters_made_of_minutes_are_those_made_of_readings(steps: AnyArray) -> None:
    counters = np.cumsum(steps, axis=0)
    block = block_of(steps, counters, MINUTE // 900 * 900 + 20.0 * np.arange(40))
    minutes, before = [], None
    for at in np.unique(block.times // 60 * 60).tolist():
        part = block.between(at, at + 60)
        assert part is not None
        minutes.append(roll_up_readings(part, 60.0, before))
        before = minutes[-1].planes["counter"][0]
    (whole,) = merged(minutes)
    quarter = roll_up_further(whole, 900.0)
    direct = roll_up_readings(block, 900.0)
    for name in ("min", "max", "sum", "last", "counter", "increase", "count"):
        assert quarter.planes[name].tolist() == direct.planes[name].tolist()


def test_of_a_time_that_comes_twice_the_fuller_one_holds() -> None:
    full = roll_up_readings(block_of(np.full((3, 1, 1), 9.0), np.ones((3, 1, 1))), 60.0)
    part = roll_up_readings(block_of(np.full((1, 1, 1), 5.0), np.ones((1, 1, 1))), 60.0)
    for order in ([full, part], [part, full]):
        (found,) = merged(order)
        assert found.times.tolist() == [MINUTE]
        assert found.planes["max"].tolist() == [[[9.0]]]


def test_rows_of_each_node_come_apart_again() -> None:
    one = block_of(np.ones((1, 1, 2)), np.ones((1, 1, 2)), node="n1")
    two = block_of(np.full((1, 1, 3), 2.0), np.ones((1, 1, 3)), node="n2")
    both = side_by_side([one, two])
    assert [own.rows[0].node_id for own in both.by_node()] == ["n1", "n2"]
    found = both.of_node("n2")
    assert found is not None and same(found, two)
    assert both.of_node("n3") is None
