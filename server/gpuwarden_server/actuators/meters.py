"""What actuators count."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gpuwarden_verdict.actuation import Standing, Step


class ActuatorMeters:
    """One family a figure, labelled by actuator: a handful, as the operator names them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.up = Gauge(
            "gpuwarden_actuator_up",
            "1 where the last look at the consumer worked.",
            ["actuator"],
            registry=registry,
        )
        self.steps = Counter(
            "gpuwarden_actuator_steps_total",
            "Steps at nodes: exclude, move, release; done, failed or dry_run.",
            ["actuator", "act", "phase"],
            registry=registry,
        )
        self.nodes = Gauge(
            "gpuwarden_actuator_nodes",
            "Nodes that are wanted out or carry our tag, by how they stand.",
            ["actuator", "standing"],
            registry=registry,
        )
        self.seconds = Histogram(
            "gpuwarden_actuator_pass_seconds",
            "A look at the consumer with the steps that followed.",
            ["actuator"],
            buckets=(0.05, 0.25, 1.0, 5.0, 30.0, 120.0),
            registry=registry,
        )
        self.looked_at = Gauge(
            "gpuwarden_actuator_last_look_timestamp_seconds",
            "When the consumer last answered, epoch seconds.",
            ["actuator"],
            registry=registry,
        )

    def show(self, actuator: str, steps: Sequence[Step], at: float | None) -> None:
        """How nodes stand now."""
        counts = Tally(step.standing for step in steps)
        for standing in Standing:
            self.nodes.labels(actuator, standing.value).set(counts[standing])
        if at is not None:
            self.looked_at.labels(actuator).set(at)
