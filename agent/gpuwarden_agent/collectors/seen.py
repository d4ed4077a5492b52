"""Devices and metrics seen before: what vanishes says so instead of falling silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

FORGET_AFTER_S = 3600.0
"""A device gone for an hour was taken out on purpose; until then each reading says it is gone."""


class SeenDevices:
    """Completes the rows of one kind of entity with what was there before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._metrics: dict[str, set[str]] = {}
        self._last_seen: dict[str, float] = {}

    def complete(self, rows: Mapping[str, Mapping[str, Reading]]) -> dict[str, dict[str, Reading]]:
        """`rows` with unsupported metrics left out and vanished ones marked.

        A metric that once was a number and now has no file is `Unavailable("no_such_file")`; a
        device that is gone keeps its row for an hour, each reading `Unavailable("no_such_device")`.
        """
        now = self._clock()
        complete = {key: self._row(key, row, now) for key, row in rows.items()}
        for key in [key for key in self._metrics if key not in complete]:
            if now - self._last_seen[key] > FORGET_AFTER_S:
                del self._metrics[key], self._last_seen[key]
            else:
                gone: Reading = Unavailable("no_such_device")
                complete[key] = dict.fromkeys(sorted(self._metrics[key]), gone)
        return complete

    def _row(self, key: str, row: Mapping[str, Reading], now: float) -> dict[str, Reading]:
        known = self._metrics.setdefault(key, set())
        self._last_seen[key] = now
        result: dict[str, Reading] = {}
        for metric, reading in row.items():
            if not isinstance(reading, NotSupported):
                known.add(metric)
                result[metric] = reading
            elif metric in known:
                result[metric] = Unavailable("no_such_file")
        return result
