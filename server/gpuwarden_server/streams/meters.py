"""Figures of all streams."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class StreamMeters:
    """Figures of all streams, by the stream's name.

    Attributes:
        readers: Connected.
        evicted: Dropped because they did not read.
        published: Frames handed out.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["stream"]
        self.readers = Gauge(
            "gpuwarden_feed_readers", "Connected readers of a stream.", labels, registry=registry
        )
        self.evicted = Counter(
            "gpuwarden_feed_readers_evicted_total",
            "Readers dropped because they did not read.",
            labels,
            registry=registry,
        )
        self.published = Counter(
            "gpuwarden_feed_changes_total", "Events of a stream.", labels, registry=registry
        )
