"""From the text of one exporter to rows of readings, one scrape after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_exporters.dcgm import dcgm_meaning
from gpuwarden_exporters.exposition import (
    parse_series,
    parse_value,
    sample_lines,
    split_sample,
)
from gpuwarden_exporters.job import JOB, job_meaning
from gpuwarden_exporters.memory import SeriesMemory
from gpuwarden_exporters.node import NODE, node_meaning
from gpuwarden_exporters.rules import (
    NOTHING,
    GpuFacts,
    Level,
    Meaning,
    Parts,
    Rule,
    Scale,
    Target,
    XidSeries,
)
from gpuwarden_exporters.share import ShareScale
from gpuwarden_exporters.smi import (
    ALL_SMI,
    NVIDIA_SMI,
    all_smi_meaning,
    nvidia_smi_meaning,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Rows, Stale, Unavailable

_SPARE_PLANS = 256
"""Series remembered beyond twice those of one text: labels of pods and jobs come and go."""

_OF_INSTANCE = 10
"""Added to the rank of what a MIG row says of its GPU: a row of the GPU itself goes before."""

_ONLY_OF_INSTANCES = Unavailable("only_of_mig_instances")


class ExporterKind(StrEnum):
    """What stands at an address; AUTO goes by the names of the series."""

    AUTO = "auto"
    DCGM = "dcgm"
    NVIDIA_SMI = "nvidia_smi"
    NODE = "node"
    ALL_SMI = "all_smi"


_MEANINGS: Mapping[str, tuple[ExporterKind, Callable[[str, dict[str, str]], Meaning]]] = (
    MappingProxyType(
        {
            "DCGM_": (ExporterKind.DCGM, dcgm_meaning),
            "dcgm_": (ExporterKind.DCGM, dcgm_meaning),
            NVIDIA_SMI: (ExporterKind.NVIDIA_SMI, nvidia_smi_meaning),
            ALL_SMI: (ExporterKind.ALL_SMI, all_smi_meaning),
            NODE: (ExporterKind.NODE, node_meaning),
            JOB: (ExporterKind.NODE, job_meaning),
        }
    )
)


@dataclass(slots=True)
class Gathered:
    """What one text said.

    Attributes:
        rows: Readings; what was there before and is missing now says so.
        gpus: GPUs that the text names.
        xids: Numbers of series about XIDs.
        hosts: Host names in labels.
        known: Series that mean something to us.
        broken: Lines that are no samples.
        first_broken: The first of them, cut short.
        duplicates: Series that came twice; the first counts.
        first_duplicate: The first of them, cut short.
    """

    rows: dict[EntityKind, Rows] = field(default_factory=dict)
    gpus: dict[str, GpuFacts] = field(default_factory=dict)
    xids: list[tuple[XidSeries, float]] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    known: int = 0
    broken: int = 0
    first_broken: str = ""
    duplicates: int = 0
    first_duplicate: str = ""

    def note_broken(self, line: str) -> None:
        """A line is no sample."""
        self.broken += 1
        self.first_broken = self.first_broken or line[:120]

    def note_duplicate(self, series: str) -> None:
        """A series came again."""
        self.duplicates += 1
        self.first_duplicate = self.first_duplicate or series[:120]


def meaning_of(
    name: str, labels: dict[str, str], kind: ExporterKind = ExporterKind.AUTO
) -> Meaning:
    """What a series means; NOTHING where we do not know it or its exporter is of another kind."""
    for prefix, (made_by, read) in _MEANINGS.items():
        if name.startswith(prefix) and kind in (ExporterKind.AUTO, made_by):
            return read(name, labels)
    return NOTHING


_Cells = dict[tuple[EntityKind, str], dict[str, dict[int, tuple[Rule, dict[str, Reading]]]]]


class Gatherer:
    """Reads the texts of one exporter. Not thread-safe.

    Args:
        kind: What the exporter is; series of other kinds are passed over.
    """

    def __init__(self, kind: ExporterKind = ExporterKind.AUTO) -> None:
        self._kind = kind
        self._plan: dict[str, Meaning] = {}
        self._former_plan: dict[str, Meaning] = {}
        self._most_planned = _SPARE_PLANS
        self._memory = SeriesMemory()
        self._shares: dict[str, ShareScale] = {}

    def take(self, text: str, clock: float) -> Gathered:
        """Read one text.

        Args:
            text: In Prometheus' text format; each line that is none costs itself only.
            clock: Monotonic seconds.
        """
        gathered = Gathered()
        taken: dict[str, tuple[Meaning, float]] = {}
        for series, meaning, value in self._samples(text, gathered):
            if series in taken:
                gathered.note_duplicate(series)
            else:
                taken[series] = (meaning, value)
        return self._look(taken.values(), gathered, clock)

    def look(self, samples: Iterable[tuple[Meaning, float]], clock: float) -> Gathered:
        """Take one look at samples that somebody else has parsed; each series once.

        Args:
            samples: What each series means (`meaning_of`), and its number.
            clock: Seconds that only rise.
        """
        return self._look(samples, Gathered(), clock)

    def without_frozen(self, rows: Rows, clock: float) -> Rows:
        """Rows of GPUs: where the exporter repeats itself about one, its numbers are stale."""
        frozen = {uuid: self._memory.frozen_for_s(uuid, clock) for uuid in rows}
        return {
            uuid: _stale(row, frozen[uuid]) if frozen[uuid] else row for uuid, row in rows.items()
        }

    def _look(
        self, samples: Iterable[tuple[Meaning, float]], gathered: Gathered, clock: float
    ) -> Gathered:
        cells, failed = _Cells(), set[str]()
        shown = list(samples)
        points = _mount_points(meaning for meaning, _ in shown)
        for meaning, value in shown:
            self._note(meaning, value, gathered, cells, failed, points)
            gathered.known += 1
        gathered.rows = self._memory.complete(self._rows(cells), failed, clock)
        return gathered

    def _samples(self, text: str, gathered: Gathered) -> Iterator[tuple[str, Meaning, float]]:
        if len(self._plan) > self._most_planned:
            self._former_plan, self._plan = self._plan, {}
        plan = self._plan
        lines = list(sample_lines(text))
        self._most_planned = 2 * len(lines) + _SPARE_PLANS
        for line in lines:
            series, _, written = line.rpartition(" ")
            meaning = plan.get(series)
            if meaning is NOTHING:
                continue
            if meaning is None:
                sample = self._first_look(line)
                if sample is None:
                    gathered.note_broken(line)
                    continue
                series, written, meaning = sample
                if meaning is NOTHING:
                    continue
            value = parse_value(written)
            if value is None:
                gathered.note_broken(line)
                continue
            yield series, meaning, value

    def _first_look(self, line: str) -> tuple[str, str, Meaning] | None:
        """Series, value and meaning of a line whose series is not in the plan as it stands."""
        split = split_sample(line)
        if split is None:
            return None
        series, written = split
        meaning = self._plan.get(series)
        if meaning is None and (meaning := self._former_plan.get(series)) is not None:
            self._plan[series] = meaning
        if meaning is None:
            parsed = parse_series(series)
            if parsed is None or parse_value(written) is None:
                return None
            meaning = self._plan[series] = meaning_of(*parsed, self._kind)
        return series, written, meaning

    def _note(
        self,
        meaning: Meaning,
        value: float,
        gathered: Gathered,
        cells: _Cells,
        failed: set[str],
        points: Mapping[str, str],
    ) -> None:
        if meaning.host:
            gathered.hosts.add(meaning.host)
        if (gpu := meaning.gpu) is not None:
            known = gathered.gpus.get(gpu.gpu_uuid)
            gathered.gpus[gpu.gpu_uuid] = known.merged(gpu) if known else gpu
        if meaning.success_of and value == 0:
            failed.add(meaning.success_of)
        missing = meaning.missing(value)
        if meaning.xid is not None and missing is None:
            gathered.xids.append((meaning.xid, value))
        for target in meaning.targets:
            reading = self._reading(target, value) if missing is None else missing
            self._put(cells, target, points.get(target.entity, target.entity), reading)

    def _reading(self, target: Target, value: float) -> Reading:
        if target.constant is not None:
            return target.constant
        if target.rule.scale is Scale.SHARE:
            share = self._shares.setdefault(target.rule.metric, ShareScale())
            return share.read(value)
        return target.rule.convert(value)

    def _put(self, cells: _Cells, target: Target, entity: str, reading: Reading) -> None:
        rule, rank = target.rule, target.rule.rank
        if target.of_instance:
            rank += _OF_INSTANCE
            if rule.level is Level.INSTANCE:
                reading = _ONLY_OF_INSTANCES
        key = (target.kind, entity)
        self._memory.note_maker(key, rule.metric, target.made_by)
        by_rank = cells.setdefault(key, {}).setdefault(rule.metric, {})
        _, parts = by_rank.setdefault(rank, (rule, {}))
        if not isinstance(parts.get(target.part), float | int):
            parts[target.part] = reading

    def _rows(self, cells: _Cells) -> dict[EntityKind, dict[str, dict[str, Reading]]]:
        rows: dict[EntityKind, dict[str, dict[str, Reading]]] = {}
        for (kind, entity), metrics in cells.items():
            rows.setdefault(kind, {})[entity] = {
                metric: self._choose((kind, entity), metric, by_rank)
                for metric, by_rank in metrics.items()
            }
        return rows

    def _choose(
        self,
        key: tuple[EntityKind, str],
        metric: str,
        by_rank: Mapping[int, tuple[Rule, Parts]],
    ) -> Reading:
        """The number of the lowest rank that has one, else the reason of the lowest."""
        reason: Reading | None = None
        for rank in sorted(by_rank):
            rule, parts = by_rank[rank]
            if rule.is_counter:
                parts = self._memory.with_last_parts((*key, metric, rank), parts)
            reading = rule.combine(parts)
            if isinstance(reading, float | int):
                return reading
            reason = reason or reading
        return reason or _ONLY_OF_INSTANCES


def _mount_points(meanings: Iterable[Meaning]) -> dict[str, str]:
    """Where exports are mounted, as a text says it; of several places the first by name."""
    said = sorted((one.mounted for one in meanings if one.mounted is not None), reverse=True)
    return dict(said)


def _stale(row: Mapping[str, Reading], age_s: float) -> Mapping[str, Reading]:
    return {
        metric: Stale(round(age_s, 3)) if isinstance(reading, float | int) else reading
        for metric, reading in row.items()
    }
