"""The pages of exporters, put together again from the samples that remote write brings. Pure.

Remote write cuts a scrape into requests as it likes. A target is the page of one exporter: it is
looked at once its usual number of samples has come, or after a while, and then read by the same
tables and rules by which an agent reads an exporter's text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from gpuwarden_exporters.gathering import Gatherer
from gpuwarden_exporters.rules import GpuFacts, Meaning, XidSeries
from gpuwarden_exporters.xids import XidMarks, XidNews, XidWatch
from gpuwarden_server.doors.write_request import is_stale
from gpuwarden_wire.batches import Table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Rows
from gpuwarden_wire.schema import Schema
from gpuwarden_wire.tables import TableMaker

SETTLE_S = 6.0
"""Prometheus sends what does not fill a request after 5 s (batch_send_deadline)."""

LOOKBACK_MS = 300_000
"""Without a sample for so long a series is gone, as Prometheus itself has it."""

_BROKEN_S = 90.0
"""After a longer gap, what appears for the first time may be old."""

_NEAR_INTERVALS = 5


@dataclass(frozen=True, slots=True)
class TargetMarks:
    """What a target must know after a restart.

    Attributes:
        watch: XIDs that were there at the last look.
        told: Events told so far, by GPU: their ids go on from there.
    """

    watch: XidMarks
    told: dict[str, int]


@dataclass(slots=True)
class Series:
    """One series of a target.

    Attributes:
        target: Whose.
        meaning: What its numbers mean.
        at_ms: Time of the last sample, milliseconds since the epoch; -1 before the first.
        value: The last number.
        listed: Whether it is on the target's page.
    """

    target: Target
    meaning: Meaning
    at_ms: int = -1
    value: float = 0.0
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What a page said at one moment.

    Attributes:
        target: The page.
        at: Time of its newest sample, epoch seconds.
        rows: Readings; what was there before and is missing now says so.
        gpus: GPUs that it names.
        xids: XIDs that are new, numbered by GPU so that the same one always has the same number.
        marks: What a later process must know, None where that has not changed.
    """

    target: Target
    at: float
    rows: Mapping[EntityKind, Rows]
    gpus: Mapping[str, GpuFacts]
    xids: tuple[tuple[XidNews, int], ...]
    marks: TargetMarks | None

    def tables(self) -> list[tuple[Table, Schema]]:
        """Its readings as tables of the wire."""
        return self.target.maker.tables("page", self.rows, self.at)


@dataclass(slots=True, eq=False)
class Target:
    """One exporter's page.

    Attributes:
        name: Job and instance.
        marks: As kept by an earlier process, None for a page never seen.
        maker: Keeps the columns of its tables the same.
        interval_s: Cadence of its scrapes, 0 before two of them came.
    """

    name: str
    marks: TargetMarks | None = None
    maker: TableMaker = field(default_factory=TableMaker)
    interval_s: float = 0.0
    _gatherer: Gatherer = field(default_factory=Gatherer)
    _watch: XidWatch = field(default_factory=XidWatch)
    _page: list[Series] = field(default_factory=list)
    _newest_ms: int = 0
    _looked_ms: int = 0
    _fresh: int = 0
    _usual: int = 0
    _urgent: bool = False
    _steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_NEAR_INTERVALS))
    _seen_xids: tuple[frozenset[tuple[XidSeries, float]], frozenset[str]] | None = None

    def __post_init__(self) -> None:
        """Go on from the marks."""
        if self.marks is not None:
            self._watch = XidWatch(self.marks.watch)

    @property
    def series(self) -> int:
        """Series on the page."""
        return len(self._page)

    @property
    def waits(self) -> bool:
        """Samples have come since the last look."""
        return self._fresh > 0

    @property
    def is_due(self) -> bool:
        """As many samples have come as last time, or one that cannot wait."""
        return self._fresh > 0 and (self._urgent or 0 < self._usual <= self._fresh)

    def is_next(self, at_ms: int) -> bool:
        """Whether a sample of this time belongs to a later scrape than what waits."""
        return self._fresh > 0 and at_ms > self._newest_ms

    def put(self, series: Series, at_ms: int, value: float) -> bool:
        """Take a sample; whether it was news of its series."""
        if at_ms <= series.at_ms:
            return False
        if series.meaning.xid is not None and series.at_ms >= 0 and value != series.value:
            self._urgent = True
        series.at_ms, series.value = at_ms, value
        if not series.listed:
            series.listed = True
            self._page.append(series)
        self._fresh += 1
        self._newest_ms = max(self._newest_ms, at_ms)
        return True

    def look(self) -> Look:
        """Read the page as it stands."""
        self._learn_interval()
        at = self._newest_ms / 1000
        shown = self._shown()
        gathered = self._gatherer.look(((one.meaning, one.value) for one in shown), at)
        rows = dict(gathered.rows)
        if EntityKind.GPU in rows:
            rows[EntityKind.GPU] = self._gatherer.without_frozen(rows[EntityKind.GPU], at)
        news = self._xid_news(gathered.xids, gathered.gpus.keys())
        self._fresh, self._urgent, self._looked_ms = 0, False, self._newest_ms
        # At the first look nobody knows yet how many samples make the page.
        self._usual = len(shown)
        return Look(self, at, rows, gathered.gpus, *news)

    def _shown(self) -> list[Series]:
        """What is on the page, newest first: of two copies (a pair of Prometheus) one counts."""
        oldest = self._newest_ms - LOOKBACK_MS
        page: list[Series] = []
        for one in self._page:
            one.listed = one.at_ms >= oldest and not is_stale(one.value)
            if one.listed:
                page.append(one)
        self._page = sorted(page, key=lambda one: -one.at_ms)
        return self._page

    def _learn_interval(self) -> None:
        step_s = (self._newest_ms - self._looked_ms) / 1000
        if self._looked_ms and step_s > 0:
            self._steps_s.append(step_s)
            self.interval_s = max(1.0, round(median(self._steps_s)))

    def _xid_news(
        self, xids: Iterable[tuple[XidSeries, float]], gpus: Iterable[str]
    ) -> tuple[tuple[tuple[XidNews, int], ...], TargetMarks | None]:
        newest: dict[XidSeries, float] = {}
        for series, value in xids:
            newest.setdefault(series, value)
        named = frozenset(gpus)
        seen = (frozenset(newest.items()), named)
        if seen == self._seen_xids:
            return (), None
        self._seen_xids = seen
        gap_s = (self._newest_ms - self._looked_ms) / 1000
        # Prometheus keeps what a server that is down cannot take, so a restart of ours is no gap.
        unbroken = gap_s <= max(3 * self.interval_s, _BROKEN_S)
        if not self._looked_ms:
            unbroken = self.marks is not None
        news = self._watch.note(newest.items(), named, unbroken=unbroken)
        told = dict(self.marks.told) if self.marks else {}
        numbered = []
        for one in news:
            told[one.gpu_uuid] = told.get(one.gpu_uuid, 0) + 1
            numbered.append((one, told[one.gpu_uuid]))
        self.marks = TargetMarks(self._watch.marks(), told)
        return tuple(numbered), self.marks
