"""What the writers count."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class WriterMeters:
    """Figures of all writers, by half of the store, in one app's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "gpuwarden_store_group_seconds",
            "A group of writes, from the oldest one's arrival to the synced commit.",
            ["half"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._writes = Counter(
            "gpuwarden_store_writes_total",
            "Writes: committed, or lost since the database failed.",
            ["half", "outcome"],
            registry=registry,
        )
        self._lag = Gauge(
            "gpuwarden_store_lag_seconds",
            "How long the oldest write of the group under way has waited, 0 where none is.",
            ["half"],
            registry=registry,
        )
        self._waiting = Gauge(
            "gpuwarden_store_waiting_writes",
            "Writes that wait behind the group under way.",
            ["half"],
            registry=registry,
        )

    def follow(self, half: str, lag_s: Callable[[], float], waiting: Callable[[], int]) -> None:
        """Ask a writer how far it is behind, whenever somebody looks."""
        self._lag.labels(half).set_function(lag_s)
        self._waiting.labels(half).set_function(waiting)
        for outcome in ("committed", "lost"):
            self._writes.labels(half, outcome)

    def note(self, half: str, seconds: float, writes: int) -> None:
        """Count a committed group."""
        self._seconds.labels(half).observe(seconds)
        self._writes.labels(half, "committed").inc(writes)

    def failed(self, half: str, writes: int) -> None:
        """Count writes that were lost with their transaction."""
        self._writes.labels(half, "lost").inc(writes)
