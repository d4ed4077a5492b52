"""XIDs as exporters tell them: what changed between two looks is news, what stands there is not.

DCGM's gauge keeps the last code until the driver is reloaded, so that its level says nothing of now
(NVIDIA/DCGM#277), and the same code again changes nothing (NVIDIA/dcgm-exporter#190).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from gpuwarden_exporters.rules import XidForm, XidSeries

_LARGEST_CODE = 1_000_000


@dataclass(frozen=True, slots=True)
class XidNews:
    """XIDs that came since the last look.

    Attributes:
        gpu_uuid: The GPU.
        code: The XID.
        count: How many, at least.
        seen_at: Epoch seconds of the last as the exporter has it, 0 where it has none.
    """

    gpu_uuid: str
    code: int
    count: int
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class XidMarks:
    """What one look saw, so that a later process can go on from it.

    Attributes:
        last_codes: Standing codes by GPU.
        counts: Series and their numbers.
        counting: Which form of series counts, by GPU.
        gpus: GPUs that the exporter named.
    """

    last_codes: dict[str, list[int]]
    counts: list[tuple[XidSeries, float]]
    counting: dict[str, XidForm]
    gpus: list[str]


class XidWatch:
    """Compares each look at one exporter with the one before. Not thread-safe.

    Args:
        marks: The last look of an earlier process.
    """

    def __init__(self, marks: XidMarks | None = None) -> None:
        self._last_codes: dict[str, frozenset[int]] = {}
        self._counts: dict[XidSeries, float] = {}
        self._counting: dict[str, XidForm] = {}
        self._gpus: frozenset[str] = frozenset()
        if marks is not None:
            self._last_codes = {uuid: frozenset(codes) for uuid, codes in marks.last_codes.items()}
            self._counts = dict(marks.counts)
            self._counting = dict(marks.counting)
            self._gpus = frozenset(marks.gpus)

    def marks(self) -> XidMarks:
        """What the last look saw."""
        return XidMarks(
            {uuid: sorted(codes) for uuid, codes in sorted(self._last_codes.items())},
            sorted(self._counts.items(), key=str),
            dict(self._counting),
            sorted(self._gpus),
        )

    def note(
        self, xids: Iterable[tuple[XidSeries, float]], gpus: Set[str], *, unbroken: bool
    ) -> list[XidNews]:
        """Take one look.

        Args:
            xids: Series and their numbers, sentinels left out.
            gpus: GPUs that the exporter names now.
            unbroken: The look before was a good one: what appears now was not there then. After a
                gap, what appears may be old.
        """
        listed = list(xids)
        known = self._gpus if unbroken else frozenset()
        self._gpus = frozenset(gpus)
        for series, _ in listed:
            self._prefer(series)
        times = {
            (series.gpu_uuid, series.code): value
            for series, value in listed
            if series.form is XidForm.SEEN_AT
        }
        news = self._count_news(listed, known) + self._code_news(listed, known)
        return [
            XidNews(uuid, code, count, times.get((uuid, code), 0.0)) for uuid, code, count in news
        ]

    def _prefer(self, series: XidSeries) -> None:
        """A counter tells more than a window, and both more than the last code."""
        if series.form is XidForm.COUNTED:
            self._counting[series.gpu_uuid] = XidForm.COUNTED
        elif series.form is XidForm.IN_WINDOW:
            self._counting.setdefault(series.gpu_uuid, XidForm.IN_WINDOW)

    def _count_news(
        self, listed: list[tuple[XidSeries, float]], known: Set[str]
    ) -> list[tuple[str, int, int]]:
        self._close_windows(listed)
        news = []
        for series, value in listed:
            if series.form not in (XidForm.COUNTED, XidForm.IN_WINDOW) or not series.code:
                continue
            risen = self._risen(series, value, known)
            self._counts[series] = value
            if risen >= 1 and series.form is self._counting.get(series.gpu_uuid):
                news.append((series.gpu_uuid, series.code, int(risen)))
        return news

    def _close_windows(self, listed: list[tuple[XidSeries, float]]) -> None:
        """A code that left its GPU's window has no series any more: none in the window is 0."""
        windows = {series for series, _ in listed if series.form is XidForm.IN_WINDOW}
        gpus = {series.gpu_uuid for series in windows}
        for series in list(self._counts):
            left = series.form is XidForm.IN_WINDOW and series not in windows
            if left and series.gpu_uuid in gpus:
                self._counts[series] = 0.0

    def _risen(self, series: XidSeries, value: float, known: Set[str]) -> float:
        before = self._counts.get(series)
        if before is None:  # counters appear with their first XID
            return value if series.gpu_uuid in known else 0
        if value < before and series.form is XidForm.COUNTED:
            return value  # the exporter was started anew: all of it is since then
        return value - before

    def _code_news(
        self, listed: list[tuple[XidSeries, float]], known: Set[str]
    ) -> list[tuple[str, int, int]]:
        now: dict[str, set[int]] = {}
        for series, value in listed:
            if series.form is XidForm.LAST_CODE and 0 <= value < _LARGEST_CODE:
                now.setdefault(series.gpu_uuid, set()).add(int(value))
        news = []
        for uuid, codes in now.items():  # several where rows of MIG instances say it
            looked = uuid in self._last_codes or uuid in known
            before = self._last_codes.get(uuid, frozenset())
            self._last_codes[uuid] = frozenset(codes)
            if looked and uuid not in self._counting:
                news += [(uuid, code, 1) for code in sorted(codes - before - {0})]
        return news
