"""What the doors count."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LAG_BUCKETS_S = (0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 300.0, 3600.0)


class DoorMeters:
    """Counters of the doors, in one app's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "gpuwarden_remote_write_requests_total",
            "Requests of remote write: taken, or refused by problem code.",
            ["outcome"],
            registry=registry,
        )
        self.samples = Counter(
            "gpuwarden_remote_write_samples_total",
            "Samples of remote write: taken, or why one was left out.",
            ["outcome"],
            registry=registry,
        )
        self.looks = Counter(
            "gpuwarden_remote_write_looks_total",
            "Pages of exporters put together and read: taken, of a node whose own agent speaks "
            "(agent), refused, or dropped since the database failed for too long.",
            ["outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "gpuwarden_remote_write_seconds",
            "From the first byte of a request to its answer.",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.lag = Histogram(
            "gpuwarden_remote_write_lag_seconds",
            "Age of a page's newest sample when it is read.",
            buckets=_LAG_BUCKETS_S,
            registry=registry,
        )
        self.nodes = Gauge(
            "gpuwarden_remote_write_nodes", "Nodes that remote write tells of.", registry=registry
        )
        self.items = Counter(
            "gpuwarden_door_items_total",
            "Alerts and events from outside: stored, duplicate, or refused.",
            ["door", "outcome"],
            registry=registry,
        )
