"""What the front door counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# From a telemetry batch in memory (0.1 ms) to a group commit on a slow disk.
_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class IngestMeters:
    """Counters of ingest, in one app's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.batches = Counter(
            "gpuwarden_ingest_batches_total",
            "Batches answered 200: applied, replayed, or history of a superseded spool.",
            ["stream", "outcome"],
            registry=registry,
        )
        self.refused = Counter(
            "gpuwarden_ingest_refused_total",
            "Batches refused, by problem code; nothing of them was applied.",
            ["code"],
            registry=registry,
        )
        self.events = Counter(
            "gpuwarden_ingest_events_total",
            "Events: stored, or duplicate (the natural id was there already).",
            ["outcome"],
            registry=registry,
        )
        self.flags = Counter(
            "gpuwarden_ingest_event_flags_total",
            "Stored events with something unusual.",
            ["flag"],
            registry=registry,
        )
        self.readings = Counter(
            "gpuwarden_ingest_readings_total", "Cells of telemetry applied.", registry=registry
        )
        self.sequences = Counter(
            "gpuwarden_ingest_missing_sequences_total",
            "Sequences that are missing: shed (declared by the agent) or gap (undeclared).",
            ["why"],
            registry=registry,
        )
        self.oddities = Counter(
            "gpuwarden_ingest_oddities_total",
            "Batches of telemetry from the future or an unknown boot; rows of foreign GPUs.",
            ["kind"],
            registry=registry,
        )
        self.seconds = Histogram(
            "gpuwarden_ingest_seconds",
            "From the decoded batch to its acknowledgement.",
            ["stream"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.nodes = Gauge(
            "gpuwarden_ingest_nodes", "Nodes that were ever heard of.", registry=registry
        )


class CheckpointMeters:
    """What the checkpoint counts, in one app's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "gpuwarden_checkpoint_seconds",
            "One shard, from its export to the synced commit.",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.bytes = Counter(
            "gpuwarden_checkpoint_bytes_total", "State written by checkpoints.", registry=registry
        )
        self.failures = Counter(
            "gpuwarden_checkpoint_failures_total", "Shards not written.", registry=registry
        )
