"""Rows of features on their way to the database."""

from __future__ import annotations

from threading import Lock

from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.learning.samples import repository
from gpuwarden_server.learning.samples.domain import FeatureRow, Why
from gpuwarden_server.store.database import Database

MOST_WAITING = 5_000
_DAY_S = 86_400.0


class SampleBox:
    """Takes rows from the judge's thread, and stores them from another."""

    def __init__(
        self,
        state: Database,
        clock: Clock,
        registry: CollectorRegistry,
        days: float,
        most: int,
    ) -> None:
        """Make a box.

        Args:
            state: state.db.
            clock: Time.
            registry: Metrics.
            days: How long rows are kept.
            most: How many at most; 0 keeps none.
        """
        self._state = state
        self._clock = clock
        self._days = days
        self._most = most
        self._lock = Lock()
        self._waiting: list[FeatureRow] = []
        self._kept = Counter(
            "gpuwarden_feature_rows_total",
            "Rows of features that were kept to learn from, by why.",
            ["why"],
            registry=registry,
        )
        self._dropped = Counter(
            "gpuwarden_feature_rows_dropped_total",
            "Rows of features that were not kept, since the database took none.",
            registry=registry,
        )
        for why in Why:
            self._kept.labels(why.value)

    @property
    def takes(self) -> bool:
        """Whether rows are wanted at all."""
        return self._most > 0

    def put(self, rows: list[FeatureRow]) -> None:
        """Take rows; never blocks."""
        with self._lock:
            room = max(0, MOST_WAITING - len(self._waiting))
            self._waiting += rows[:room]
        self._dropped.inc(max(0, len(rows) - room))

    def save(self) -> None:
        """Store what waits, and forget what is old or too much.

        Raises:
            WriteFailed: It waits on.
        """
        with self._lock:
            rows = list(self._waiting)
        before = self._clock.now() - self._days * _DAY_S

        def write(connection: Connection) -> None:
            repository.add_rows(connection, rows)
            repository.delete_above(connection, self._most, before)

        self._state.writer.call(write)
        with self._lock:
            del self._waiting[: len(rows)]
        for row in rows:
            self._kept.labels(row.why.value).inc()
