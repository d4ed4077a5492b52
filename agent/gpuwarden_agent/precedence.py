"""Which of several sources speaks, where they read the same metric of the same thing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpuwarden_agent.collectors.exporter_names import is_exporter
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Rows

Kinds = Mapping[EntityKind, Rows]

FRESH_INTERVALS = 3
"""A source that has given nothing for so many of its intervals does not keep others silent."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a source has to say beside the others.

    Attributes:
        rows: Its rows without what another source has better.
        shared: Things that another source speaks of too: of these, what is not in `rows` is for the
            other to tell, and is not said to be unsupported.
    """

    rows: Kinds
    shared: frozenset[tuple[EntityKind, str]] = frozenset()


class SourceOrder:
    """Native collectors before exporters, exporters in the order of the settings.

    Args:
        collectors: Names, in the order in which they are built.
        exporter_first: Metrics, or patterns such as "gpu_*", of which exporters go before.
    """

    def __init__(self, collectors: Iterable[str], exporter_first: Collection[str] = ()) -> None:
        self._ranks = {name: rank for rank, name in enumerate(collectors)}
        self._exporter_first = tuple(exporter_first)
        self._turned: dict[str, bool] = {}

    def rank(self, collector: str, metric: str) -> tuple[bool, int]:
        """Lower speaks before higher."""
        if metric not in self._turned:
            self._turned[metric] = any(
                fnmatchcase(metric, pattern) for pattern in self._exporter_first
            )
        behind = is_exporter(collector) != self._turned[metric]
        return behind, self._ranks.get(collector, len(self._ranks))


class Precedence:
    """Leaves out of a source's rows what another one says better.

    A number goes before a reason why there is none; of two numbers, and of two reasons, the source
    that comes first in the order has it. Of a GPU that a native source says is lost, exporters say
    nothing: they repeat what they read before. Not thread-safe.

    Args:
        order: Order of the sources.
        intervals: Cadence of each source, seconds.
    """

    def __init__(self, order: SourceOrder, intervals: Mapping[str, float]) -> None:
        self._order = order
        self._intervals = intervals
        self._has_exporters = any(map(is_exporter, intervals))
        self._last: dict[str, tuple[float, Kinds]] = {}

    def admit(self, collector: str, rows: Kinds, now: float) -> Admitted:
        """What one call of a source has to say beside the others.

        Args:
            collector: The source.
            rows: As it gave them, reasons included.
            now: Epoch seconds.
        """
        if not self._has_exporters:
            return Admitted(rows)  # native collectors share nothing
        self._last[collector] = (now, rows)
        native = not is_exporter(collector)
        others = [
            (name, last)
            for name, (at, last) in self._last.items()
            if name != collector
            and (is_exporter(name) or not native)
            and now - at <= FRESH_INTERVALS * self._intervals.get(name, 0.0)
        ]
        if not others:
            return Admitted(rows)
        shared = frozenset(
            (kind, key)
            for kind, table in rows.items()
            for key in table
            if any(key in last.get(kind, {}) for _, last in others)
        )
        admitted = {
            kind: {
                key: self._row(collector, kind, key, row, others) if (kind, key) in shared else row
                for key, row in table.items()
            }
            for kind, table in rows.items()
        }
        return Admitted(admitted, shared)

    def _row(
        self,
        collector: str,
        kind: EntityKind,
        key: str,
        row: Mapping[str, Reading],
        others: Sequence[tuple[str, Kinds]],
    ) -> Mapping[str, Reading]:
        silent: set[str] = set()
        if not is_exporter(collector) and _is_lost(row):
            return row
        for name, last in others:
            theirs = last.get(kind, {}).get(key)
            if theirs is None:
                continue
            if _is_lost(theirs) and not is_exporter(name):
                return {}
            silent |= {
                metric
                for metric in row.keys() & theirs.keys()
                if self._place(name, metric, theirs[metric])
                < self._place(collector, metric, row[metric])
            }
        return {metric: one for metric, one in row.items() if metric not in silent}

    def _place(
        self, collector: str, metric: str, reading: Reading
    ) -> tuple[bool, tuple[bool, int]]:
        return not isinstance(reading, float | int), self._order.rank(collector, metric)


def _is_lost(row: Mapping[str, Reading]) -> bool:
    return row.get("gpu_present") == 0


def admit_all(order: SourceOrder, sources: Mapping[str, Kinds]) -> dict[str, Kinds]:
    """The rows of several sources read at one moment, each reading of one source only."""
    precedence = Precedence(order, dict.fromkeys(sources, 1.0))
    for name, rows in sources.items():
        precedence.admit(name, rows, 0.0)
    return {name: precedence.admit(name, rows, 0.0).rows for name, rows in sources.items()}
