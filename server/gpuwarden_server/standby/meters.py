"""Figures of spares."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpuwarden_verdict.standby import Shelf


class StandbyMeters:
    """Labelled by pool: as many as the policy names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.spares = Gauge(
            "gpuwarden_standby_spares",
            "Nodes of the book of spares, by pool and state; leased ones are at work.",
            ["pool", "state"],
            registry=registry,
        )
        self.promotions = Counter(
            "gpuwarden_standby_promotions_total",
            "Spares leased for a node that left; by gpuwarden or a person.",
            ["pool", "by"],
            registry=registry,
        )
        self.unmet = Counter(
            "gpuwarden_standby_unmet_total",
            "Exclusions that found no spare, and leases that expired with their node still out.",
            ["pool"],
            registry=registry,
        )

    def show(self, shelf: Shelf) -> None:
        """How the book stands."""
        self.spares.clear()
        counts = Tally((one.pool, one.state.value) for one in shelf.spares.values())
        for (pool, state), count in counts.items():
            self.spares.labels(pool, state).set(count)
