"""What /metrics tells of the fleet, counted when it is scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpuwarden_server.api.sources import ReadSources
from gpuwarden_server.core.memory import MemoryCollector, allocator_sizes
from gpuwarden_verdict.entities import Contact, EntityState
from gpuwarden_wire.metrics import EntityKind


def install_fleet_meters(sources: ReadSources, registry: CollectorRegistry) -> None:
    """Let /metrics tell of nodes, states, agents, and what they take of memory."""
    registry.register(_FleetCollector(sources))
    state = sources.guarded.state
    parts = (lambda: {"series": state.size}, sources.history.sizes, allocator_sizes)
    registry.register(MemoryCollector(parts))


class _FleetCollector(Collector):
    def __init__(self, sources: ReadSources) -> None:
        self._sources = sources

    def describe(self) -> list[Metric]:
        """Nothing: before the start there is no fleet to be counted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Count."""
        yield from (self._contacts(), self._states(), self._agents())

    def _contacts(self) -> Metric:
        family = GaugeMetricFamily(
            "gpuwarden_fleet_nodes",
            "Nodes by contact: heard of lately, silent, or retired.",
            labels=["contact"],
        )
        facts = self._sources.facts
        counts = Counter(facts.contact_of(node_id) for node_id in facts.node_ids())
        for contact in Contact:
            family.add_metric([contact.value], counts[contact])
        return family

    def _states(self) -> Metric:
        family = GaugeMetricFamily(
            "gpuwarden_fleet_entities",
            "Nodes and GPUs that are not healthy, by state.",
            labels=["kind", "state"],
        )
        for kind in (EntityKind.NODE, EntityKind.GPU):
            counts = self._sources.board.states(kind)
            for state in EntityState:
                if state is not EntityState.HEALTHY:
                    family.add_metric([kind.value, state.value], counts[state])
        return family

    def _agents(self) -> Metric:
        family = GaugeMetricFamily(
            "gpuwarden_fleet_agents",
            "Nodes of the fleet by their agent's version, which gpuwarden_build compares with.",
            labels=["version"],
        )
        for version, count in agent_versions(self._sources).items():
            family.add_metric([version], count)
        return family


def agent_versions(sources: ReadSources) -> dict[str, int]:
    """Nodes by their agent's version, retired ones left out."""
    counts = Counter(
        node.agent_version
        for node in sources.directory.nodes()
        if sources.facts.contact_of(node.node_id) is not Contact.RETIRED
    )
    return dict(sorted(counts.items()))
