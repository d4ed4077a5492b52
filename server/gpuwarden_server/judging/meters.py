"""The judge's own figures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class JudgeMeters:
    """Duration, outcome, drops and lag of judging."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter("gpuwarden_judged_events_total", "Events judged.", registry=registry)
        self.failures = Counter(
            "gpuwarden_judge_failures_total",
            "Judgements of one entity that raised; the rest went on.",
            ["stage"],
            registry=registry,
        )
        self.refused = Counter(
            "gpuwarden_judge_refused_total",
            "Conclusions whose rows the database refused.",
            registry=registry,
        )
        self.event_delay = Histogram(
            "gpuwarden_judge_event_delay_seconds",
            "From an event's receipt to its published conclusion.",
            buckets=_FAST,
            registry=registry,
        )
        self.sweep = Histogram(
            "gpuwarden_sweep_duration_seconds",
            "One look over the fleet, judged and committed.",
            buckets=(0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0),
            registry=registry,
        )
        self.cloud_leaves = Counter(
            "gpuwarden_cloud_leaves_total",
            "Planned leaves that follow what clouds announce: made, moved, ended, withheld (by the "
            "pool's mode, or a person's pin), and announcements that were not understood.",
            ["outcome"],
            registry=registry,
        )
        self.sweep_dropped = Counter(
            "gpuwarden_sweep_results_dropped_total",
            "Results of a sweep that were older than an event of the entity.",
            registry=registry,
        )
        self.incidents = Gauge(
            "gpuwarden_open_incidents",
            "Incidents that are not resolved.",
            ["fault_class"],
            registry=registry,
        )
        self.decisions = Gauge(
            "gpuwarden_live_decisions", "Decisions by phase.", ["phase"], registry=registry
        )
        self.exclusions = Gauge("gpuwarden_exclusions", "Exclusions in force.", registry=registry)
        self.epoch = Gauge(
            "gpuwarden_feed_epoch", "Epoch of the exclusion feed.", registry=registry
        )
