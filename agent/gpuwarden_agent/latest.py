"""The last readings of every collector, for /metrics and for saying what is missing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from gpuwarden_agent.collectors.contract import Harvest
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Missing, Rows


class CallRecord(NamedTuple):  # one is made of every call
    """What is known of a collector's calls.

    Attributes:
        rows: Readings of the last good call.
        read_at: Epoch seconds when it began, 0 before the first.
        took_s: How long the last call lasted, good or not.
        current: The last call was good: `rows` is what holds now.
    """

    rows: Mapping[EntityKind, Rows]
    read_at: float = 0.0
    took_s: float = 0.0
    current: bool = False


_NEVER = CallRecord(rows={})


class LatestReadings:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, CallRecord] = {}
        self._outcomes: Counter[tuple[str, str]] = Counter()

    def note_good(self, collector: str, harvest: Harvest, now: float, took_s: float) -> None:
        """A call brought readings."""
        with self._lock:
            self._records[collector] = CallRecord(harvest.rows, now, took_s, current=True)
            self._outcomes[collector, "success"] += 1

    def note_failed(self, collector: str, took_s: float) -> None:
        """A call failed, or is stuck since `took_s`."""
        with self._lock:
            known = self._records.get(collector, _NEVER)
            self._records[collector] = CallRecord(known.rows, known.read_at, took_s)

    def count(self, collector: str, outcome: str) -> None:
        """Count a call that did not end well."""
        with self._lock:
            self._outcomes[collector, outcome] += 1

    def records(self) -> dict[str, CallRecord]:
        """All collectors that were called."""
        with self._lock:
            return dict(self._records)

    def outcomes(self) -> dict[tuple[str, str], int]:
        """Calls by collector and outcome: success, error, stuck."""
        with self._lock:
            return dict(self._outcomes)

    def missing(self, collector: str, why: Missing) -> Mapping[EntityKind, Rows]:
        """The rows of the last good call, each reading replaced by the reason it is missing."""
        with self._lock:
            rows = self._records.get(collector, _NEVER).rows
        return {
            kind: {key: dict.fromkeys(row, why) for key, row in entities.items()}
            for kind, entities in rows.items()
        }

    def read_at(self, collector: str) -> float:
        """Epoch seconds of the last good call, 0 before the first."""
        with self._lock:
            return self._records.get(collector, _NEVER).read_at
