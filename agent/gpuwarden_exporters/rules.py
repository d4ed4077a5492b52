"""What one series of an exporter says of a metric of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from gpuwarden_wire.metrics import EntityKind, MetricKind
from gpuwarden_wire.readings import Missing, Reading, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME

Parts = Mapping[str, Reading]
"""Readings of the series that make up one metric, by the name of the part."""

INCOMPLETE = Unavailable("incomplete_in_exporter")


class Scale(StrEnum):
    """How a series' number becomes ours."""

    FIXED = "fixed"  # by the rule's factor
    SHARE = "share"  # 0..1 or 0..100: its name does not prove which; see `ShareScale`


class Level(StrEnum):
    """Of what a row with a MIG instance speaks."""

    BOARD = "board"  # of the physical GPU: the instance cannot have a temperature of its own
    INSTANCE = "instance"  # perhaps of the instance alone: no reading of the GPU


def total(parts: Parts) -> Reading:
    """The sum of what is there; the first reason where no part is a number."""
    numbers = [reading for reading in parts.values() if isinstance(reading, float | int)]
    return sum(numbers) if numbers else next(iter(parts.values()), INCOMPLETE)


def worst(parts: Parts) -> Reading:
    """The largest of what is there; the first reason where no part is a number."""
    numbers = [reading for reading in parts.values() if isinstance(reading, float | int)]
    return max(numbers) if numbers else next(iter(parts.values()), INCOMPLETE)


def difference(parts: Parts) -> Reading:
    """Part "whole" less part "off"."""
    whole, off = parts.get("whole", INCOMPLETE), parts.get("off", INCOMPLETE)
    if not isinstance(whole, float | int):
        return whole
    if not isinstance(off, float | int):
        return off
    return whole - off if whole >= off else Unavailable("implausible_value")


@dataclass(frozen=True, slots=True)
class Rule:
    """From one series to one metric.

    Attributes:
        metric: Our metric.
        factor: To our base unit.
        scale: Whether the factor stands fast.
        level: What rows of MIG instances count for.
        rank: Where several series give the metric, the lowest rank that has a number is taken.
        part: This series' part in the metric.
        split_by: Labels whose values tell further parts apart (a link, a controller).
        combine: Makes the metric from its parts.
        counts: Only how many parts have one of these values is of interest.
        states: Readings by the series' number; None where its states are numbered as ours.
        at_most: Larger numbers are no readings, in the series' unit.
        sticks_at: Where the counter stops for lack of bits, in the series' unit.
        zero_is_missing: The exporter writes 0 for what it could not read.
    """

    metric: str
    factor: float = 1.0
    scale: Scale = Scale.FIXED
    level: Level = Level.BOARD
    rank: int = 0
    part: str = ""
    split_by: tuple[str, ...] = ()
    combine: Callable[[Parts], Reading] = total
    counts: frozenset[int] = frozenset()
    states: Mapping[int, Reading] | None = None
    at_most: float = float("inf")
    sticks_at: int = -1
    zero_is_missing: bool = False

    @property
    def is_counter(self) -> bool:
        """The metric only rises."""
        return METRIC_BY_NAME[self.metric].kind is MetricKind.COUNTER

    def convert(self, value: float) -> Reading:
        """A number of the series in our unit, or why it is none."""
        if not isfinite(value):
            return Unavailable("not_finite")
        if value > self.at_most or (value < 0 and self.is_counter):
            return Unavailable("implausible_value")
        if value == self.sticks_at:
            return Unavailable("saturated")
        if value == 0 and self.zero_is_missing:
            return Unavailable("zero_for_unknown")
        if self.counts:
            return float(value in self.counts)
        if self.states is not None:
            return self.states.get(int(value), Unavailable("not_a_known_state"))
        return value if self.factor == 1.0 else value * self.factor


@dataclass(frozen=True, slots=True)
class Target:
    """Where the number of one series goes.

    Attributes:
        kind: Kind of entity.
        entity: Entity's key.
        rule: How.
        part: The part, with the values of the labels that split it.
        of_instance: The row names a MIG instance.
        constant: What is said by the labels alone; None where it is the number.
        made_by: Part of the exporter that makes the series, "" where it has no parts.
    """

    kind: EntityKind
    entity: str
    rule: Rule
    part: str = ""
    of_instance: bool = False
    constant: float | None = None
    made_by: str = ""


class XidForm(StrEnum):
    """How an exporter tells of XIDs."""

    LAST_CODE = "last_code"  # a gauge that keeps the last code until the driver is reloaded
    IN_WINDOW = "in_window"  # a gauge of how many in the last minutes, by code
    COUNTED = "counted"  # a counter by code since the exporter's start
    SEEN_AT = "seen_at"  # epoch seconds of the last, by code


@dataclass(frozen=True, slots=True)
class XidSeries:
    """A series about XIDs.

    Attributes:
        form: What its number means.
        gpu_uuid: The GPU.
        code: The XID by label; None where the number is the code, or where there was none.
    """

    form: XidForm
    gpu_uuid: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What the labels of a series tell of a GPU; "" where they do not."""

    gpu_uuid: str
    pci_bus_id: str = ""
    index: int | None = None
    model: str = ""
    serial: str = ""
    driver_version: str = ""
    vbios_version: str = ""

    def merged(self, other: GpuFacts) -> GpuFacts:
        """These facts, completed by another series'."""
        return GpuFacts(
            self.gpu_uuid,
            self.pci_bus_id or other.pci_bus_id,
            other.index if self.index is None else self.index,
            self.model or other.model,
            self.serial or other.serial,
            self.driver_version or other.driver_version,
            self.vbios_version or other.vbios_version,
        )


@dataclass(frozen=True, slots=True)
class Meaning:
    """All that one series means to us.

    Attributes:
        targets: Readings made from it.
        xid: What it says of XIDs.
        gpu: GPU that its labels tell of.
        host: Host name in its labels.
        success_of: Part of the exporter of which it tells whether it works, 0 where not.
        missing: Which numbers stand for no number.
        mounted: An export, and the mount point where its labels say that it is mounted.
    """

    targets: tuple[Target, ...] = ()
    xid: XidSeries | None = None
    gpu: GpuFacts | None = None
    host: str = ""
    success_of: str = ""
    missing: Callable[[float], Missing | None] = lambda _: None
    mounted: tuple[str, str] | None = None

    @property
    def tells(self) -> bool:
        """It says anything of readings, XIDs, GPUs, mounts or the exporter itself."""
        return bool(self.targets or self.xid or self.gpu or self.mounted or self.success_of)


NOTHING = Meaning()
