"""Verdicts: what people and programs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one node or GPU stands.

    Attributes:
        entity: The entity.
        state: Its state, None where never judged.
        since: Epoch seconds of that state, None where never judged.
        decisions: Its live decisions.
        incidents: Its open incidents (a node's: its NICs' and disks' too).
        pci_bus_id: For GPUs.
        index: For GPUs.
    """

    entity: EntityRef
    state: EntityState | None = None
    since: float | None = None
    decisions: tuple[Decision, ...] = ()
    incidents: tuple[Incident, ...] = ()
    pci_bus_id: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """Position of the exclusion feed."""

    feed_id: str
    epoch: int


def entity_verdict(
    standing: Standing, contact: Contact, covering: Sequence[Decision] = ()
) -> EntityVerdict:
    """Verdict about one entity; `covering` are exclusions in force of its node that cover it."""
    raise NotImplementedError


def node_verdict(
    node: Standing, gpus: Sequence[Standing], contact: Contact, feed: FeedPosition, now: float
) -> NodeVerdict:
    """Verdict about a node and its GPUs."""
    raise NotImplementedError
