"""What history counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# From one node's minute (1 ms) to a pack's window at full fleet on a slow disk.
_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class HistoryMeters:
    """Counters of history, in one app's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "gpuwarden_history_seconds",
            "One piece of work: seal (a pack's minutes), compact (a pack's window), retain (a "
            "step of retention), read (one request).",
            ["stage"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.pieces = Counter(
            "gpuwarden_history_pieces_total",
            "Pieces of work by outcome: done, or failed and tried again.",
            ["stage", "outcome"],
            registry=registry,
        )
        self.bytes = Counter(
            "gpuwarden_history_bytes_total",
            "Written to the database: slab (a step of a pack) or segment (a window of a node), "
            "by level.",
            ["form", "level"],
            registry=registry,
        )
        self.minutes = Counter(
            "gpuwarden_history_minutes_total", "Minutes of nodes sealed.", registry=registry
        )
        self._add_losses(registry)
        self._add_levels(registry)

    def _add_losses(self, registry: CollectorRegistry) -> None:
        self.drops = Counter(
            "gpuwarden_history_dropped_readings_total",
            "Readings that are in no roll-up: late (the minute was sealed, or older than what is "
            "kept), memory (more were open than there is room for).",
            ["reason"],
            registry=registry,
        )
        self.deleted = Counter(
            "gpuwarden_history_deleted_rows_total",
            "Rows that retention removed, by level.",
            ["level"],
            registry=registry,
        )
        self.damaged = Counter(
            "gpuwarden_history_damaged_rows_total",
            "Rows that could not be read and were left out.",
            registry=registry,
        )

    def _add_levels(self, registry: CollectorRegistry) -> None:
        self.lag = Gauge(
            "gpuwarden_history_lag_seconds",
            "Age of the oldest minute when it was sealed, of the latest pack, from its end.",
            registry=registry,
        )
        self.open_bytes = Gauge(
            "gpuwarden_history_open_bytes", "Readings of minutes not yet sealed.", registry=registry
        )
        self.recorded = Gauge(
            "gpuwarden_history_recorded_nodes",
            "Nodes whose readings are kept: all, or those with an open incident.",
            registry=registry,
        )
        self.lookback_bytes = Gauge(
            "gpuwarden_history_lookback_bytes", "Readings held in memory.", registry=registry
        )
        self.lookback_seconds = Gauge(
            "gpuwarden_history_lookback_seconds",
            "How far back readings are held in memory: what an incident that opens now gets to "
            "keep of the time before it.",
            registry=registry,
        )
