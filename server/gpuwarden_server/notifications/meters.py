"""Figures of notifications."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LANE = ("endpoint", "kind")


class NotifyMeters:
    """Counters and gauges; `endpoint` is the lane where an endpoint has several addresses."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.facts = Counter(
            "gpuwarden_notify_facts_total", "Facts planned for all endpoints.", registry=registry
        )
        self.planning = Histogram(
            "gpuwarden_notify_planning_seconds",
            "One planning transaction.",
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),
            registry=registry,
        )
        self.planning_failures = Counter(
            "gpuwarden_notify_planning_failures_total",
            "Facts or passes that could not be planned: a fault of gpuwarden's.",
            registry=registry,
        )
        self.held_back = Counter(
            "gpuwarden_notify_held_back_total",
            "Facts not told by themselves: silenced, kept for a digest, folded by the rate cap.",
            [*_LANE, "why"],
            registry=registry,
        )
        self.attempts = Counter(
            "gpuwarden_notify_attempts_total",
            "Delivery attempts by outcome.",
            [*_LANE, "outcome"],
            registry=registry,
        )
        self.attempt_duration = Histogram(
            "gpuwarden_notify_attempt_seconds",
            "One delivery attempt.",
            _LANE,
            buckets=(0.01, 0.05, 0.2, 1, 5, 15, 60),
            registry=registry,
        )
        self.delay = Histogram(
            "gpuwarden_notify_delay_seconds",
            "From the fact to its delivery.",
            _LANE,
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 300, 3600, 86400),
            registry=registry,
        )
        self.waiting = Gauge(
            "gpuwarden_notify_waiting_messages", "Not yet delivered.", _LANE, registry=registry
        )
        self.given_up = Gauge(
            "gpuwarden_notify_given_up_messages",
            "Given up and not replayed.",
            _LANE,
            registry=registry,
        )
        self.disabled = Gauge(
            "gpuwarden_notify_disabled",
            "1 where nothing is sent until a person enables the endpoint.",
            _LANE,
            registry=registry,
        )


class SilenceMeters:
    """How reading the silences of Alertmanagers goes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reads = Counter(
            "gpuwarden_notify_silence_reads_total",
            "Looks at an Alertmanager's silences by outcome: read, failed.",
            ["endpoint", "outcome"],
            registry=registry,
        )
        self.duration = Histogram(
            "gpuwarden_notify_silence_read_seconds",
            "One look at an Alertmanager's silences, with what it changed.",
            ["endpoint"],
            buckets=(0.01, 0.05, 0.2, 1, 5, 15, 60),
            registry=registry,
        )
        self.not_taken = Gauge(
            "gpuwarden_notify_silences_not_taken",
            "Silences of an Alertmanager that are not understood, or too many.",
            ["endpoint"],
            registry=registry,
        )
