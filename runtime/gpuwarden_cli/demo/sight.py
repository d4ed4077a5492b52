"""What the demo sees of the fleet: a snapshot over the REST routes, as any other client's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwarden_runtime.client import Client
from gpuwarden_runtime.records import (
    DecisionRecord,
    Exclusion,
    GpuLine,
    IncidentRecord,
    NodeRecord,
)
from gpuwarden_runtime.standby_records import Standby

_LIVE = ("open", "acknowledged", "mitigated")


@dataclass(frozen=True, slots=True)
class Sight:
    """The fleet at one moment.

    Attributes:
        nodes: By name.
        incidents: Newest first, resolved ones too.
        decisions: Newest first, ended ones too.
        exclusions: In force.
        epoch: Of the exclusion feed.
        standby: The book of spares.
    """

    nodes: Mapping[str, NodeRecord]
    incidents: tuple[IncidentRecord, ...]
    decisions: tuple[DecisionRecord, ...]
    exclusions: tuple[Exclusion, ...]
    epoch: int
    standby: Standby = field(default_factory=Standby)

    def gpu(self, node: str, index: int) -> GpuLine | None:
        """A GPU of a node, None where it is not listed."""
        record = self.nodes.get(node)
        lines = record.gpus if record is not None else ()
        return next((line for line in lines if line.index == index), None)

    def incidents_of(self, entity: str) -> tuple[IncidentRecord, ...]:
        """Incidents of an entity, resolved ones too."""
        return tuple(item for item in self.incidents if item.entity == entity)

    def live_incidents(self) -> tuple[IncidentRecord, ...]:
        """Incidents that are not resolved."""
        return tuple(item for item in self.incidents if item.phase in _LIVE)

    def exclusion_of(self, entity: str) -> Exclusion | None:
        """The exclusion in force of an entity, None where there is none."""
        return next((item for item in self.exclusions if item.entity == entity), None)


def look(client: Client) -> Sight:
    """Fetch a snapshot.

    Raises:
        GpuwardenError: The server does not answer, or not as agreed.
    """
    exclusions = client.exclusions()
    return Sight(
        nodes={node.node_id: node for node in client.all_nodes()},
        incidents=client.incidents(limit=200).items,
        decisions=client.decisions(limit=200).items,
        exclusions=exclusions.exclusions,
        epoch=exclusions.epoch,
        standby=client.standby(),
    )
