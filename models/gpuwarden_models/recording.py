"""Reads a recording, the neutral folder that anyone can make, back into frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from gpuwarden_models.frames import Frame, NodeEvent
from gpuwarden_models.recording_events import KnownEntities, kernel_logs, read_events
from gpuwarden_models.recording_grid import Gridder, Moment
from gpuwarden_models.recording_jobs import JobTimeline
from gpuwarden_models.recording_nodes import RecordedNodes, expected_gpus
from gpuwarden_models.recording_openmetrics import OpenMetricsSource, openmetrics_files
from gpuwarden_models.recording_parquet import ParquetSource, files_of
from gpuwarden_models.recording_series import Block, Catalogue, Layout, SampleSource, Span
from gpuwarden_models.recording_tables import (
    FleetRow,
    JobRow,
    LabelRow,
    RecordingError,
    read_fleet,
    read_jobs,
    read_labels,
)
from gpuwarden_models.recording_times import usual_step
from gpuwarden_models.recording_xids import RecordedXids
from gpuwarden_verdict.context import NodePlace
from gpuwarden_wire.metrics import EntityKind

__all__ = ["History", "Recording", "RecordingError", "Tables"]

_NUMBERS_AT_ONCE = 2_000_000
_MOST_FRAMES = 4096
_FIRST_LOOK_S = 1800.0


@dataclass(frozen=True, slots=True)
class Tables:
    """What is known of a fleet beside its metrics; all of it may be missing.

    Attributes:
        fleet: Rows of fleet.csv.
        jobs: Rows of jobs.csv.
        labels: Rows of labels.csv.
        kernel: Folder of kernel logs; need not exist.
    """

    fleet: tuple[FleetRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    labels: tuple[LabelRow, ...] = ()
    kernel: Path = Path("kernel")


class History:
    """What a fleet showed over some time, as frames. Reading it again gives the same again.

    Attributes:
        start: Epoch seconds of the first reading.
        end: Epoch seconds of the last.
        interval_s: Time between frames.
        nodes: Names, sorted.
        kinds: Kinds of entities that any series speaks of.
        metrics: Metrics that any series gives, by kind.
        fleet: Rows of fleet.csv.
        jobs: Rows of jobs.csv.
        labels: Rows of labels.csv.
        places: Where nodes stand, by node.
        gpus_expected: GPUs that nodes should have, by node: as fleet.csv says.
        kernel_logs: How many kernel logs there are.
    """

    def __init__(
        self,
        source: SampleSource,
        catalogue: Catalogue,
        span: Span,
        tables: Tables,
        interval_s: float | None,
    ) -> None:
        """Take what a survey of the samples has found."""
        self._source, self._catalogue = source, catalogue
        self._tables = tables
        self.start, self.end = span.first, span.last
        self.fleet, self.jobs, self.labels = tables.fleet, tables.jobs, tables.labels
        self._layout: Layout = catalogue.layout()
        self._series = max(span.series, 1)
        self.interval_s = interval_s or usual_step(
            source.blocks(span.first, span.first + _FIRST_LOOK_S)
        )
        self.nodes: tuple[str, ...] = self._layout.nodes
        self.kinds: tuple[EntityKind, ...] = tuple(self._layout.kinds)
        self.metrics: Mapping[EntityKind, tuple[str, ...]] = MappingProxyType(
            {kind: item.schema.names for kind, item in self._layout.kinds.items()}
        )
        self.places: Mapping[str, NodePlace] = MappingProxyType(
            {row.node: NodePlace(row.rack, row.leaf, row.power, row.mounts) for row in tables.fleet}
        )
        self.gpus_expected: Mapping[str, int] = MappingProxyType(expected_gpus(tables.fleet))
        self.kernel_logs: int = len(kernel_logs(tables.kernel))

    def frames(self) -> Iterator[Frame]:
        """All readings, one frame an interval, with what happened since the frame before.

        Readings off the common grid belong to the nearest frame. A frame's time is that of its
        latest reading. Intervals without any reading make no frame.

        Raises:
            RecordingError: A file broke off in the middle.
        """
        teller = _Teller(self._layout, self._catalogue, self._tables, self)
        for moment in self._moments():
            yield teller.frame(moment)

    def _moments(self) -> Iterator[Moment]:
        gridder = Gridder(self._layout, self._catalogue.channels, self.start, self.interval_s)
        total = round((self.end - self.start) / self.interval_s) + 1
        step = max(1, min(_NUMBERS_AT_ONCE // self._series, _MOST_FRAMES))
        for first in range(0, total, step):
            last = min(first + step, total)
            blocks = self._source.blocks(*gridder.bounds(first, last))
            yield from gridder.moments(blocks, first, last)


class Recording(History):
    """An opened recording.

    Attributes:
        folder: Where it lies.
        origin: "simulated" or what else made it, "" where it does not say.
        seed: Seed of a simulated one, None where it does not say.
        common_causes: Whether what many entities show together was simulated too.
        generator: Program that made it up, "gpuwarden-simulator" for ours, "" where it does not
            say, or where nothing is made up.
        parameters_hash: SHA-256 of that program's parameters, "" where it does not say.
        variation: How a simulated one departs from the usual, by the simulator's words.
    """

    def __init__(
        self, folder: Path, kinds: Sequence[EntityKind] = (EntityKind.GPU, EntityKind.NODE)
    ) -> None:
        """Open a recording and look over its files; readings come with `frames`.

        Args:
            folder: The recording.
            kinds: What to read; the others are left alone.

        Raises:
            RecordingError: No recording, or a file that cannot be read; names it and the mend.
        """
        if not folder.is_dir():
            raise RecordingError(
                f"{folder}: no such folder; make one with `gpuwarden simulate --out {folder}`"
            )
        self.folder = folder
        described = _read_description(folder / "recording.json")
        self.origin = described.origin
        self.seed = described.seed
        self.common_causes = described.common_causes
        self.generator = described.generator
        self.parameters_hash = described.parameters_sha256
        self.variation: Mapping[str, Any] = described.variation
        tables = read_tables(folder)
        catalogue = Catalogue(tuple(kinds))
        source = _Files(folder, kinds)
        span = source.survey(catalogue)
        if span is None:
            raise RecordingError(_no_numbers(folder, catalogue))
        span = Span(
            span.first if described.start is None else described.start,
            span.last if described.end is None else described.end,
            span.series,
        )
        super().__init__(source, catalogue, span, tables, described.interval_s)


class Description(msgspec.Struct, frozen=True):
    """recording.json; what is absent is taken from the metrics."""

    format: str = "gpuwarden-recording"
    version: int = 1
    start: float | None = None
    end: float | None = None
    interval_s: float | None = None
    origin: str = ""
    seed: int | None = None
    common_causes: bool = False
    generator: str = ""
    parameters_sha256: str = ""
    variation: dict[str, Any] = {}


class _Files:
    """Parquet and OpenMetrics files of a recording, as one source."""

    def __init__(self, folder: Path, kinds: Sequence[EntityKind]) -> None:
        files = {kind: files_of(folder, kind) for kind in kinds}
        text = openmetrics_files(folder)
        self._sources: list[SampleSource] = [ParquetSource(files)]
        if text:
            self._sources.append(OpenMetricsSource(text))
        if not text and not any(files.values()):
            raise RecordingError(_no_metrics(folder))

    def survey(self, catalogue: Catalogue) -> Span | None:
        """Look over all files."""
        spans = [span for one in self._sources if (span := one.survey(catalogue)) is not None]
        if not spans:
            return None
        return Span(
            min(span.first for span in spans),
            max(span.last for span in spans),
            sum(span.series for span in spans),
        )

    def blocks(self, begin: float, until: float) -> list[Block]:
        """Samples of a stretch of time."""
        return [block for one in self._sources for block in one.blocks(begin, until)]


class _Teller:
    """Puts to each moment what happened: boots, inventories, kernel lines, XIDs of series."""

    def __init__(
        self, layout: Layout, catalogue: Catalogue, tables: Tables, history: History
    ) -> None:
        self._nodes = RecordedNodes(
            layout, tables.fleet, catalogue.facts, JobTimeline(tables.jobs), history.interval_s
        )
        gpus = layout.kinds.get(EntityKind.GPU)
        self._xids = RecordedXids(gpus, layout.nodes, catalogue.channels) if gpus else None
        slots: dict[tuple[str, str], tuple[tuple[float, str], ...]] = {
            (node, facts.pci_bus_id): ((-inf, uuid),)
            for (node, uuid), facts in catalogue.facts.items()
            if facts.pci_bus_id
        }
        slots |= _slots(tables.fleet)
        self._names = layout.nodes
        self._before = history.start - history.interval_s
        known = KnownEntities(slots, layout.entities())
        self._lines = read_events(tables.kernel, known, history.start, history.end)
        self._waiting = next(self._lines, None)

    def frame(self, moment: Moment) -> Frame:
        """A moment with its events."""
        lines = list(self._due(moment.at))
        first = min((line.event.observed_at for line in lines), default=moment.at)
        told_at = min(max(first, self._before), moment.at)
        self._before = moment.at
        told = [*self._nodes.events(moment.at, moment.tables, told_at), *lines]
        if self._xids is not None:
            self._xids.note(lines)
            gpus = next(table for table in moment.tables if table.kind is EntityKind.GPU)
            told += self._xids.events(moment.at, moment.xids, gpus.reported)
        boots = self._nodes.boot_ids
        place = {node: number for number, node in enumerate(self._names)} if told else {}
        events = tuple(
            NodeEvent(
                one.node_id, boots[place[one.node_id]] if one.node_id in place else "", one.event
            )
            for one in told
        )
        return Frame(moment.at, self._names, boots, moment.tables, events)

    def _due(self, at: float) -> Iterator[NodeEvent]:
        while self._waiting is not None and self._waiting.event.observed_at <= at:
            yield self._waiting
            self._waiting = next(self._lines, None)


def _slots(fleet: Sequence[FleetRow]) -> dict[tuple[str, str], tuple[tuple[float, str], ...]]:
    """Who is in each slot and who was; of two that say no time the later line holds."""
    found: dict[tuple[str, str], dict[float, str]] = {}
    for row in fleet:
        if row.pci_bus_id:
            since = -inf if row.since is None else row.since
            found.setdefault((row.node, row.pci_bus_id), {})[since] = row.gpu_uuid
    return {place: tuple(sorted(there.items())) for place, there in found.items()}


def read_tables(folder: Path) -> Tables:
    """What a recording says beside its metrics.

    Raises:
        RecordingError: A file cannot be read; names it, the line and the mend.
    """
    return Tables(
        read_fleet(folder / "fleet.csv"),
        read_jobs(folder / "jobs.csv"),
        read_labels(folder / "labels.csv"),
        folder / "kernel",
    )


def _no_metrics(folder: Path) -> str:
    return (
        f"{folder}: neither metrics/gpu*.parquet or node*.parquet nor metrics/*.om in it, so it is"
        f" not a recording; make one with `gpuwarden simulate --out {folder}`"
    )


def _no_numbers(folder: Path, catalogue: Catalogue) -> str:
    if catalogue.nameless:
        return (
            f"{folder / 'metrics'}: series {catalogue.nameless} names no node; give it a label"
            " node, Hostname or instance"
        )
    return (
        f"{folder / 'metrics'}: no rows of any metric that we know; names are those of"
        " dcgm-exporter and node_exporter, or gpuwarden_ and ours"
    )


def _read_description(path: Path) -> Description:
    if not path.exists():
        return Description()
    try:
        described = msgspec.json.decode(path.read_bytes(), type=Description)
    except msgspec.DecodeError as error:
        raise RecordingError(f"{path}: {error}; mend it, or delete it: it is optional") from error
    if described.version != 1 or described.format != "gpuwarden-recording":
        raise RecordingError(
            f"{path}: format {described.format!r} version {described.version};"
            " this command reads gpuwarden-recording version 1"
        )
    start, end = described.start, described.end
    if start is not None and end is not None and end < start:
        raise RecordingError(f"{path}: end is before start; mend it, or leave both out")
    if described.interval_s is not None and not described.interval_s > 0:
        raise RecordingError(
            f"{path}: interval_s is {described.interval_s}; a positive number, or leave it out"
        )
    return described
