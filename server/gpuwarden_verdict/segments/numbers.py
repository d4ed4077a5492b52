"""Columns of numbers in as few bytes as their kind allows: constant, scaled integers, or XOR.

A block is float32 or float64 of shape (series, times). Each series takes the cheapest form that
gives back every bit:

- constant: its one value.
- integers: `rint(value * 10**k)`, for the least k where dividing again gives the same bits. Kept
  is the distance of the numbers, or of their steps, from the middle one, whichever is cheaper,
  over their greatest common divisor.
- XOR of each bit pattern with the one before.

The bytes are split by significance, equal ones of all series together, and compressed by zstd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.segments.packing import U8, U64, Packer, Unpacker

I64 = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]
Bool = npt.NDArray[np.bool_]

_CONSTANT, _XOR, _INTEGERS = range(3)
_ORDERS = (0, 1)
_MOST_DECIMALS = {4: 4, 8: 6}
"""Decimals tried, by item size: float32 carries seven digits in all."""
_LARGEST_INTEGER = 2.0**51
_PROBE = 8
"""Numbers of a series that are tried before all of them are."""


@dataclass(frozen=True, slots=True)
class _Residuals:
    """Distances of one order: `values` >= 0 (zigzag), shape (series, times - order)."""

    firsts: I64
    centres: I64
    values: U64


def pack_numbers(packer: Packer, block: AnyArray, absent: Bool | None) -> None:
    """Append a block.

    Args:
        packer: Where to.
        block: float32 or float64, shape (series, times), of at least one time.
        absent: Cells whose number does not matter, same shape; None for none. They come back as
            some number: who knows why they are absent puts NaN there.
    """
    if absent is not None and absent.any():
        block = _filled(block, absent)
    filled = np.ascontiguousarray(block)
    bits = filled.view(f"u{filled.dtype.itemsize}")
    if bits.shape[1] == 1:
        _pack_single(packer, bits)
        return
    decimals, integers = _as_integers(filled, bits)
    forms = np.where(decimals >= 0, _INTEGERS, _XOR).astype(np.uint8)
    forms[(bits == bits[:, :1]).all(axis=1)] = _CONSTANT
    packer.add(forms)
    packer.add_integers(bits[forms == _CONSTANT][:, :1].ravel().astype(np.uint64))
    _pack_xor(packer, bits[forms == _XOR])
    packer.add(decimals[forms == _INTEGERS].astype(np.uint8))
    _pack_integers(packer, integers)


def _pack_single(packer: Packer, bits: AnyArray) -> None:
    """Series of one number each: all are constant, and there is nothing to look for."""
    packer.add(np.full(len(bits), _CONSTANT, np.uint8))
    packer.add_integers(bits.ravel().astype(np.uint64))
    packer.add(b"")
    _pack_integers(packer, np.empty((0, 1), np.int64))


def unpack_numbers(unpacker: Unpacker, dtype: type[Any], series: int, times: int) -> AnyArray:
    """What `pack_numbers` appended, with some number where cells were absent.

    Raises:
        SegmentError: The bytes are not what it appended.
    """
    size = np.dtype(dtype).itemsize
    bits = np.empty((series, times), f"<u{size}")
    forms = unpacker.take_bytes(series, _INTEGERS)
    constant, xor, whole = (forms == form for form in (_CONSTANT, _XOR, _INTEGERS))
    bits[constant] = unpacker.take_integers(int(constant.sum()))[:, None].astype(bits.dtype)
    bits[xor] = _unpack_xor(unpacker, int(xor.sum()), times, size)
    decimals = unpacker.take_bytes(int(whole.sum()), _MOST_DECIMALS[size])
    integers = _unpack_integers(unpacker, int(whole.sum()), times)
    with np.errstate(over="ignore"):  # only of damaged bytes
        scaled = (integers / (10.0 ** decimals.astype(np.float64))[:, None]).astype(dtype)
    bits[whole] = scaled.view(bits.dtype)
    return bits.view(dtype)


def _filled(block: AnyArray, absent: Bool) -> AnyArray:
    """The block with the number before in each absent cell, else the first one, else 0."""
    place = np.where(absent, 0, np.arange(block.shape[1]))
    np.maximum.accumulate(place, axis=1, out=place)
    leading = place < (first := absent.argmin(axis=1))[:, None]
    place = np.where(leading, first[:, None], place)
    found = np.take_along_axis(block, place, axis=1)
    found[absent.all(axis=1)] = 0.0
    return found


def _as_integers(filled: AnyArray, bits: AnyArray) -> tuple[npt.NDArray[np.int8], I64]:
    """Decimals of each series, -1 where it is constant or no scaled integer; their integers."""
    decimals = np.full(len(bits), -1, np.int8)
    integers = np.empty(filled.shape, np.int64)
    left = np.flatnonzero((bits != bits[:, :1]).any(axis=1))
    for places in range(_MOST_DECIMALS[filled.dtype.itemsize] + 1):
        likely = _scaled(filled[left, :_PROBE], bits[left, :_PROBE], places)[0]
        tried = left[likely]
        exact, found = _scaled(filled[tried], bits[tried], places)
        integers[tried[exact]] = found[exact]
        decimals[tried[exact]] = places
        left = left[decimals[left] < 0]
        if not left.size:
            break
    return decimals, integers[decimals >= 0]


def _scaled(values: AnyArray, bits: AnyArray, places: int) -> tuple[Bool, I64]:
    """Which series are whole numbers of 10**-places, bit by bit, and these numbers."""
    scale = 10.0**places
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.rint(values.astype(np.float64) * scale) + 0.0  # no integer is -0.0
        back = (whole / scale).astype(values.dtype)
        exact = (back.view(bits.dtype) == bits) & (np.abs(whole) < _LARGEST_INTEGER)
        return exact.all(axis=1), whole.astype(np.int64)


def _pack_xor(packer: Packer, bits: AnyArray) -> None:
    if not bits.size:
        return
    changed = bits.copy()
    changed[:, 1:] ^= bits[:, :-1]
    packer.add_planes(changed.ravel(), bits.dtype.itemsize)


def _unpack_xor(unpacker: Unpacker, series: int, times: int, size: int) -> AnyArray:
    width = size if series else 0
    changed = unpacker.take_planes(series * times, width, size).reshape(series, times)
    return np.bitwise_xor.accumulate(changed, axis=1)


def _pack_integers(packer: Packer, integers: I64) -> None:
    series, times = integers.shape
    if not series:
        for nothing in (b"", b"", b"\0", b"\0", b"\0"):  # as below, of none
            packer.add(nothing)
        return
    tried = [_residuals(integers, order) for order in _ORDERS[:times]]
    costs = np.stack([np.log2(one.values + 1.0, dtype=np.float32).sum(axis=1) for one in tried])
    orders = costs.argmin(axis=0).astype(np.uint8)
    divisors = np.ones(series, np.int64)
    widths = np.zeros(series, np.uint8)
    packer.add(orders)
    chosen = []
    for order, one in enumerate(tried):
        rows = orders == order
        divisors[rows], values = _divided(one.values[rows])
        widths[rows] = _bytes_of(values)
        firsts, centres = one.firsts[rows], one.centres[rows]
        chosen.append((firsts, centres, values))
    packer.add(widths)
    packer.add_integers(divisors.astype(np.uint64))
    packer.add_integers(_zigzag(np.concatenate([firsts.ravel() for firsts, _, _ in chosen])))
    packer.add_integers(_zigzag(np.concatenate([centres for _, centres, _ in chosen])))
    for width in np.unique(widths[widths > 0]).tolist():
        parts = [
            values[widths[orders == order] == width].ravel()
            for order, (_, _, values) in enumerate(chosen)
        ]
        packer.add_planes(np.concatenate(parts), width)


def _unpack_integers(unpacker: Unpacker, series: int, times: int) -> I64:
    usable = _ORDERS[:times]
    orders = unpacker.take_bytes(series, usable[-1])
    widths = unpacker.take_bytes(series, 8)
    divisors = unpacker.take_integers(series).astype(np.int64)
    counts = [int((orders == order).sum()) for order in usable]
    heads = sum(order * count for order, count in enumerate(counts))
    firsts = _unzigzag(unpacker.take_integers(heads))
    centres = _unzigzag(unpacker.take_integers(series))
    values = [np.zeros((counts[order], times - order), np.uint64) for order in usable]
    for width in np.unique(widths[widths > 0]).tolist():
        rows = [widths[orders == order] == width for order in usable]
        sizes = [int(rows[order].sum()) * (times - order) for order in usable]
        flat = unpacker.take_planes(sum(sizes), width, 8)
        for order, part in zip(usable, np.split(flat, np.cumsum(sizes)[:-1]), strict=True):
            values[order][rows[order]] = part.reshape(-1, times - order)
    integers = np.empty((series, times), np.int64)
    first = head = 0
    for order, count in enumerate(counts):
        rows_of = orders == order
        steps = _unzigzag(values[order]) * divisors[rows_of][:, None]
        steps += centres[first : first + count, None]
        own = firsts[head : head + order * count].reshape(count, order)
        integers[rows_of] = _summed(steps, own)
        first, head = first + count, head + order * count
    return integers


def _residuals(integers: I64, order: int) -> _Residuals:
    firsts = np.empty((len(integers), order), np.int64)
    values = integers
    for place in range(order):
        firsts[:, place] = values[:, 0]
        values = np.diff(values, axis=1)
    middle = values.shape[1] // 2
    centres = np.partition(values, middle, axis=1)[:, middle] if values.size else values[:, 0]
    return _Residuals(firsts, centres, _zigzag(values - centres[:, None]))


def _summed(values: I64, firsts: I64) -> I64:
    for place in reversed(range(firsts.shape[1])):
        values = np.cumsum(np.concatenate([firsts[:, place : place + 1], values], axis=1), axis=1)
    return values


def _divided(values: U64) -> tuple[I64, U64]:
    """Greatest common divisor of each row's distances, and the distances over it."""
    divisors = np.ones(len(values), np.int64)
    wide = np.flatnonzero(values.max(axis=1, initial=0) > 255)  # else there is nothing to gain
    distances = _unzigzag(values[wide])
    found = np.maximum(np.gcd.reduce(distances, axis=1), 1)
    divisors[wide] = found
    divided = values.copy()
    divided[wide] = _zigzag(distances // found[:, None])
    return divisors, divided


def _bytes_of(values: U64) -> U8:
    """Bytes that each row's largest number takes."""
    largest = values.max(axis=1, initial=0)
    limits = np.uint64(1) << (np.arange(8, dtype=np.uint64) * np.uint64(8))
    found: U8 = np.sum(largest[:, None] >= limits, axis=1, dtype=np.uint8)
    return found


def _zigzag(values: I64) -> U64:
    """Small numbers of either sign as small ones: 0, -1, 1, -2 as 0, 1, 2, 3."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _unzigzag(values: U64) -> I64:
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
