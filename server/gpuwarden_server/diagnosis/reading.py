"""From history to what a diagnosis reads: all planes of some nodes on one grid of minutes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.history.domain import Level
from gpuwarden_server.history.reading import HistoryReader, Series, Wanted
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.jobs.domain import JobRun
from gpuwarden_verdict.diagnosis.window import NEEDED, Floats, Ints, JobSpan, Strip, Window
from gpuwarden_verdict.places import PlaceKind, place_ref
from gpuwarden_wire.metrics import EntityKind, MetricKind

MOST_NODES = 512
"""Nodes of one answer: the job's own first, then others that stand behind the same things."""
_KEPT = re.compile(r"_(limit_watts|max|rate_bytes_per_second)$")
_DIGITS = re.compile(r"\d+")


StepSource = Callable[[str, Floats, float], Floats | None]
"""Given a job, the begins of a grid's steps (epoch seconds) and their length (s): what one of the
job's own steps took, NaN where it did not say; None where it never did."""


def no_steps(job: str, times: Floats, step_s: float) -> Floats | None:
    """Where no job tells."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked.

    Attributes:
        nodes: Names, the job's own first; at most MOST_NODES.
        runs: Jobs on these nodes meanwhile.
        past: Epoch seconds from which the past is read.
        begin: Epoch seconds.
        end: Epoch seconds.
        level: How fine.
        step_s: Length of a step, seconds.
        kinds: Of which readings are wanted.
    """

    nodes: tuple[str, ...]
    runs: tuple[JobRun, ...]
    past: float
    begin: float
    end: float
    level: Level
    step_s: int
    kinds: tuple[EntityKind, ...] = tuple(NEEDED)


class WindowReader:
    """Makes windows; any thread."""

    def __init__(
        self,
        reader: HistoryReader,
        directory: FleetDirectory,
        placements: Placements,
        steps: StepSource = no_steps,
    ) -> None:
        """Read from these.

        Args:
            reader: History.
            directory: Names of parts.
            placements: Where nodes are.
            steps: What jobs told of their steps.
        """
        self._steps = steps
        self._reader = reader
        self._directory = directory
        self._placements = placements

    def read(self, asked: Asked) -> Window:
        """All planes of the nodes."""
        rows = {name: row for row, name in enumerate(asked.nodes)}
        strips: dict[EntityKind, Strip] = {}
        times: Floats = np.empty(0)
        for kind in asked.kinds:
            times, series = self._series(kind, asked)
            if series:
                strips[kind] = self._strip(kind, series, rows, times, asked.step_s)
        return Window(
            times=times,
            step_s=float(asked.step_s),
            first=int(np.searchsorted(times, asked.begin)),
            nodes=asked.nodes,
            strips=strips,
            places=self._places(rows),
            jobs=tuple(
                replace(one, step_seconds=self._steps(one.job, times, float(asked.step_s)))
                for one in _spans(asked.runs, rows)
            ),
        )

    def _series(self, kind: EntityKind, asked: Asked) -> tuple[Floats, list[Series]]:
        wanted = Wanted(
            kind=kind,
            places=tuple((node, None) for node in asked.nodes),
            metrics=NEEDED[kind],
            begin=asked.past,
            end=asked.end,
            level=asked.level,
            step_s=asked.step_s,
        )
        return self._reader.read(wanted)

    def _strip(
        self,
        kind: EntityKind,
        series: Sequence[Series],
        rows: Mapping[str, int],
        times: Floats,
        step_s: int,
    ) -> Strip:
        entities = sorted({(one.node_id, one.entity) for one in series})
        at = {entity: row for row, entity in enumerate(entities)}
        values: dict[str, Floats] = {}
        for one in series:
            name = one.metric.name
            table = values.setdefault(name, np.full((len(entities), times.size), np.nan))
            table[at[one.node_id, one.entity]] = _numbers(one, step_s)
        return Strip(
            kind=kind,
            keys=tuple(_key(kind, node, entity) for node, entity in entities),
            node=np.array([rows[node] for node, _ in entities], dtype=np.int64),
            rail=np.fromiter(_numbered(entities, self._index(kind)), dtype=np.int64),
            values=values,
        )

    def _index(self, kind: EntityKind) -> Callable[[str], int | None]:
        """The number of a GPU by its driver; of others the order of their names tells."""

        def of_gpu(entity: str) -> int | None:
            known = self._directory.gpu(entity)
            return None if known is None else known.gpu_index

        return of_gpu if kind is EntityKind.GPU else lambda _entity: None

    def _places(self, rows: Mapping[str, int]) -> Mapping[str, Ints]:
        behind: dict[str, list[int]] = {}
        for node, row in rows.items():
            leaf = self._placements.placement(node).entry.leaf
            if leaf:
                behind.setdefault(place_ref(PlaceKind.LEAF, leaf).key, []).append(row)
        return {key: np.array(nodes, dtype=np.int64) for key, nodes in behind.items()}


def _numbers(one: Series, step_s: int) -> Floats:
    """A gauge's mean, a counter's growth a second; what hardly changes holds until read anew."""
    metric = one.metric
    if metric.kind is MetricKind.COUNTER:
        return one.numbers["increase"] / step_s
    if metric.kind is MetricKind.STATE or _KEPT.search(metric.name):
        return _held(one.numbers["last"])
    return one.numbers["mean"]


def _held(values: Floats) -> Floats:
    """The last reading before each step, itself included."""
    at = np.where(np.isfinite(values), np.arange(values.size), -1)
    latest = np.maximum.accumulate(at)
    held: Floats = np.where(latest >= 0, values[latest], np.nan)
    return held


def _key(kind: EntityKind, node: str, entity: str) -> str:
    match kind:
        case EntityKind.NODE:
            return node
        case EntityKind.GPU:
            return entity
        case EntityKind.NIC | EntityKind.DISK | EntityKind.MOUNT | EntityKind.PLACE:
            return f"{node}/{entity}"


def _numbered(
    entities: Sequence[tuple[str, str]], index: Callable[[str], int | None]
) -> Iterable[int]:
    """Numbers of entities in their nodes: as told, else by the natural order of their names."""
    own: dict[str, list[str]] = {}
    for node, entity in entities:
        own.setdefault(node, []).append(entity)
    for names in own.values():
        names.sort(key=_natural)
    for node, entity in entities:
        told = index(entity)
        yield own[node].index(entity) if told is None else told


def _natural(name: str) -> tuple[str, tuple[int, ...]]:
    return _DIGITS.sub("#", name), tuple(int(digits) for digits in _DIGITS.findall(name))


def _spans(runs: Iterable[JobRun], rows: Mapping[str, int]) -> Iterable[JobSpan]:
    """Jobs over their nodes."""
    by_job: dict[str, list[JobRun]] = {}
    for run in runs:
        if run.node_id in rows:
            by_job.setdefault(run.job, []).append(run)
    for job, own in sorted(by_job.items()):
        until = [run.until for run in own if run.until is not None]
        yield JobSpan(
            job=job,
            nodes=np.array(sorted({rows[run.node_id] for run in own}), dtype=np.int64),
            gpus=frozenset(uuid for run in own for uuid in run.gpu_uuids),
            since=min(run.since for run in own),
            until=max(until) if len(until) == len(own) else None,
        )
