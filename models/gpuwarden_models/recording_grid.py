"""From samples at any moment to tables of all entities at common moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gpuwarden_exporters.dcgm import BLANK_WIDTH, BLANKS, INT64_BLANK
from gpuwarden_exporters.mounts import ASKED, SENT, transmitted_again
from gpuwarden_exporters.rules import INCOMPLETE, Parts, Rule, Scale, difference, total, worst
from gpuwarden_exporters.share import ShareScale
from gpuwarden_models.frames import FrameTable
from gpuwarden_models.recording_series import Block, Channel, Floats, KindLayout, Layout, Rows
from gpuwarden_wire.metrics import EntityKind

Flags = NDArray[np.bool_]
_Planes = Mapping[str, Floats]
_NO_NUMBER = -np.finfo(np.float64).max  # NaN equals nothing, not even itself


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """All readings of one moment.

    Attributes:
        at: Time of the latest of them, epoch seconds.
        tables: One a kind of entity.
        xids: What series about XIDs say, by channel: shape (GPUs,), NaN where there is none.
    """

    at: float
    tables: tuple[FrameTable, ...]
    xids: Mapping[int, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """Samples of one channel with their frame and row, in order of time."""

    frame: Rows
    row: Rows
    value: Floats


class Gridder:
    """Puts samples on a grid, one stretch of time after the other.

    Each exporter is scraped at a moment of its own and a little off it: a sample belongs to the
    frame whose moment is nearest, by the moment at which its exporter was scraped first.
    """

    def __init__(
        self, layout: Layout, channels: Sequence[Channel], start: float, interval_s: float
    ) -> None:
        self._layout, self._channels = layout, channels
        self._start, self._interval_s = start, interval_s
        self._phases: dict[tuple[EntityKind, str], Floats] = {}
        self._held: dict[int, Floats] = {}
        self._shares: dict[int, ShareScale] = {}

    def bounds(self, first: int, last: int) -> tuple[float, float]:
        """Times that samples of frames first..last-1 may have."""
        step = self._interval_s
        return self._start + (first - 1) * step, self._start + (last + 1.5) * step

    def moments(self, blocks: Sequence[Block], first: int, last: int) -> list[Moment]:
        """Frames first..last-1 that have any sample."""
        count = last - first
        latest = np.full(count, -np.inf)
        reported = {
            kind: np.zeros((count, len(item.keys)), dtype=np.bool_)
            for kind, item in self._layout.kinds.items()
        }
        placed: dict[int, _Placed] = {}
        for number in sorted({block.channel for block in blocks}):
            channel = self._channels[number]
            own = [block for block in blocks if block.channel == number]
            placed[number], at = self._place(channel, own, first, count)
            np.maximum.at(latest, placed[number].frame, at)
            reported[channel.kind][placed[number].frame, placed[number].row] = True
        values = {
            kind: self._values(item, placed, count) for kind, item in self._layout.kinds.items()
        }
        xids = {
            number: self._plane(number, placed, count)
            for number, channel in enumerate(self._channels)
            if channel.xid is not None
        }
        return [
            Moment(
                float(latest[frame]),
                tuple(
                    FrameTable(
                        item.schema,
                        item.keys,
                        item.wire_keys,
                        item.node_of,
                        values[kind][:, frame],
                        reported[kind][frame],
                    )
                    for kind, item in self._layout.kinds.items()
                ),
                {number: plane[frame] for number, plane in xids.items()},
            )
            for frame in np.flatnonzero(np.isfinite(latest)).tolist()
        ]

    def _place(
        self, channel: Channel, blocks: Sequence[Block], first: int, count: int
    ) -> tuple[_Placed, Floats]:
        layout = self._layout.kinds[channel.kind]
        row = layout.order[np.concatenate([block.row for block in blocks])]
        at = np.concatenate([block.at for block in blocks])
        value = np.concatenate([block.value for block in blocks])
        if at.size and (np.diff(at) < 0).any():
            order = np.argsort(at, kind="stable")
            row, at, value = row[order], at[order], value[order]
        phase = self._phase(channel, layout, row, at)
        frame = np.rint((at - self._start - phase) / self._interval_s).astype(np.int64) - first
        inside = (frame >= 0) & (frame < count)
        return _Placed(frame[inside], row[inside], value[inside]), at[inside]

    def _phase(self, channel: Channel, layout: KindLayout, row: Rows, at: Floats) -> Floats:
        """Seconds after a frame's moment at which each row's exporter is scraped."""
        key = (channel.kind, channel.origin)
        phases = self._phases.setdefault(key, np.full(len(layout.keys), np.nan))
        fresh = np.isnan(phases[row])
        if fresh.any():
            # A mean on the circle: scrapes come early and late.
            turn = 2j * np.pi * (at[fresh] - self._start) / self._interval_s
            mean = np.zeros(phases.size, dtype=np.complex128)
            np.add.at(mean, row[fresh], np.exp(turn))
            rows = np.unique(row[fresh])
            phases[rows] = np.angle(mean[rows]) / (2 * np.pi) * self._interval_s
        known: Floats = phases[row]
        return known

    def _values(self, layout: KindLayout, placed: Mapping[int, _Placed], count: int) -> Floats:
        columns = layout.schema.columns
        values = np.full((len(columns), count, len(layout.keys)), np.nan)
        for place, column in enumerate(columns):
            numbers = [n for n in layout.channels[column.name] if n in placed or n in self._held]
            ranks = sorted({self._channels[number].rank for number in numbers})
            for rank in ranks:
                same = [n for n in numbers if self._channels[n].rank == rank]
                made = self._combined(same, placed, count)
                values[place] = np.where(np.isnan(values[place]), made, values[place])
        return values

    def _combined(
        self, numbers: Sequence[int], placed: Mapping[int, _Placed], count: int
    ) -> Floats:
        planes: dict[str, Floats] = {}
        for number in numbers:
            plane = self._plane(number, placed, count)
            part = self._channels[number].part
            known = planes.get(part)
            planes[part] = plane if known is None else np.where(np.isnan(known), plane, known)
        rule = self._channels[numbers[0]].rule
        if rule is None or (len(planes) == 1 and rule.combine in (total, worst)):
            return next(iter(planes.values()))
        if rule.is_counter and len(planes) > 1:
            return self._sum_held(rule, numbers, planes)
        return _combine(rule, planes)

    def _sum_held(self, rule: Rule, numbers: Sequence[int], planes: _Planes) -> Floats:
        """A part that is missing counts as it was last: else the sum would fall and later rise."""
        there = np.any([~np.isnan(plane) for plane in planes.values()], axis=0)
        held: dict[str, Floats] = {}
        for number in numbers:
            part = self._channels[number].part
            if part not in held:
                last = self._held.get(number, np.full(there.shape[1], np.nan))
                held[part] = _filled(planes[part], last)
                self._held[number] = held[part][-1]
        return np.where(there, _combine(rule, held), np.nan)

    def _plane(self, number: int, placed: Mapping[int, _Placed], count: int) -> Floats:
        """Readings of one channel, shape (frames, rows)."""
        channel = self._channels[number]
        plane = np.full((count, len(self._layout.kinds[channel.kind].keys)), np.nan)
        own = placed.get(number)
        if own is not None:
            readings = self._converted(number, own.value)
            there = ~np.isnan(readings)
            plane[own.frame[there], own.row[there]] = readings[there]
        return plane

    def _converted(self, number: int, value: Floats) -> Floats:
        channel = self._channels[number]
        if channel.origin == "dcgm":
            value = np.where(_blank(value), np.nan, value)
        rule = channel.rule
        if rule is None:
            return value
        if rule.scale is Scale.SHARE:
            return self._shared(number, value)
        if rule.counts or rule.states is not None:
            return _one_by_one(value, lambda numbers: rule.convert(numbers[0]))
        out = value > rule.at_most
        out |= ~np.isfinite(value)
        if rule.is_counter:
            out |= value < 0
        if rule.sticks_at >= 0:
            out |= value == rule.sticks_at
        if rule.zero_is_missing:
            out |= value == 0
        return np.where(out, np.nan, value * rule.factor)

    def _shared(self, number: int, value: Floats) -> Floats:
        """As an agent guesses the scale, but from all that a stretch of time shows."""
        scale = self._shares.setdefault(number, ShareScale())
        plausible = value[(value >= 0) & (value <= 100)]
        if plausible.size:
            scale.read(float(plausible.max()))
            between = plausible[(plausible > 0) & (plausible < 1)]
            if between.size:
                scale.read(float(between[0]))
        return _one_by_one(value, lambda numbers: scale.read(numbers[0]))


def _blank(value: Floats) -> Flags:
    """Numbers by which DCGM says that it has none."""
    blank = value >= INT64_BLANK
    for first in BLANKS:
        blank |= (value >= first) & (value < first + BLANK_WIDTH)
    return np.asarray(blank, dtype=np.bool_)


def _filled(plane: Floats, last: Floats) -> Floats:
    """Each row's gaps filled with its last number, `last` before the first frame."""
    whole = np.concatenate([last[None, :], plane])
    there = ~np.isnan(whole)
    index = np.where(there, np.arange(whole.shape[0])[:, None], 0)
    np.maximum.accumulate(index, axis=0, out=index)
    filled: Floats = np.take_along_axis(whole, index, axis=0)[1:]
    return filled


def _total(planes: _Planes) -> Floats:
    stack = np.stack(list(planes.values()))
    return np.where(np.isnan(stack).all(axis=0), np.nan, np.nansum(stack, axis=0))


def _worst(planes: _Planes) -> Floats:
    found: Floats = np.fmax.reduce(np.stack(list(planes.values())))
    return found


def _difference(planes: _Planes) -> Floats:
    whole, off = planes.get("whole"), planes.get("off")
    if whole is None or off is None:
        return np.full_like(next(iter(planes.values())), np.nan)
    return np.where(whole >= off, whole - off, np.nan)


def _transmitted_again(planes: _Planes) -> Floats:
    again: dict[str, Floats] = {}
    for name, sent in planes.items():
        kind, _, operation = name.partition("/")
        asked = planes.get(f"{ASKED}/{operation}")
        if kind == SENT and asked is not None:
            again[operation] = np.maximum(sent - asked, 0.0)
    return _total(again) if again else np.full_like(next(iter(planes.values())), np.nan)


_COMBINED: Mapping[Callable[[Parts], object], Callable[[_Planes], Floats]] = MappingProxyType(
    {
        total: _total,
        worst: _worst,
        difference: _difference,
        transmitted_again: _transmitted_again,
    }
)


def _combine(rule: Rule, planes: _Planes) -> Floats:
    quick = _COMBINED.get(rule.combine)
    if quick is not None:
        return quick(planes)
    names = tuple(planes)

    def read(numbers: Sequence[float]) -> object:
        parts = {
            name: INCOMPLETE if np.isnan(number) else number
            for name, number in zip(names, numbers, strict=True)
        }
        return rule.combine({name: part for name, part in parts.items() if part is not INCOMPLETE})

    stack = np.stack([planes[name] for name in names])
    return _one_by_one(stack.reshape(len(names), -1), read).reshape(stack.shape[1:])


def _one_by_one(values: Floats, read: Callable[[Sequence[float]], object]) -> Floats:
    """A rule's own reading of each different (column of) numbers: for states, which are few."""
    table = np.where(np.isnan(values), _NO_NUMBER, values).reshape(-1, values.shape[-1])
    different, which = np.unique(table, axis=1, return_inverse=True)
    made = np.full(different.shape[1], np.nan)
    for place in range(different.shape[1]):
        numbers = [np.nan if one == _NO_NUMBER else one for one in different[:, place].tolist()]
        reading = None if all(np.isnan(numbers)) else read(numbers)
        if isinstance(reading, float | int):
            made[place] = reading
    found: Floats = made[which.reshape(-1)]
    return found
