"""Who counts for the breaker and the cap: silence of a minute, of an hour, over a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_verdict.engine.facts import FleetFacts, Patience
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.entities import Contact
from gpuwarden_verdict.policy.guards import Counted
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory

NODES = ("a", "b", "c")
ALL = frozenset(NODES)


@dataclass
class Fleet:
    """Nodes that were heard of at some time, on a clock of its own; also the presences."""

    utc: float = 1_000_000.0
    started_for: float = 0.0
    heard_ago: dict[str, tuple[float, float]] = field(default_factory=dict)

    def now(self) -> float:
        return self.utc

    def monotonic(self) -> float:
        return self.started_for

    def presence(self, node_id: str) -> Presence | None:
        if node_id not in self.heard_ago:
            return None
        silent_s, unseen_s = self.heard_ago[node_id]
        seen_at = self.utc - unseen_s
        return Presence(node_id, seen_at, silent_s, 5.0, "boot", False, "spool", "")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def facts(fleet: Fleet) -> FleetFacts:
    directory = FleetDirectory(lambda node: True)
    for name in NODES:
        draft = directory.draft(name, fleet.utc)
        gpus = (GpuIdentity(gpu_uuid=f"GPU-{name}", pci_bus_id="0000:10:00.0"),)
        told = Event(
            id="i", kind=EventKind.INVENTORY, observed_at=1.0, inventory=Inventory(gpus=gpus)
        )
        draft.note_event(told, "boot")
        draft.adopt()
    return FleetFacts(directory, fleet, fleet, Patience(silent_after_s=60.0, gone_after_s=3600.0))


def heard(fleet: Fleet, **ago: float) -> None:
    fleet.heard_ago = {name: (seconds, seconds) for name, seconds in ago.items()}
    fleet.started_for = 1e6


def test_silence_counts_for_the_breaker_until_it_is_for_good(
    fleet: Fleet, facts: FleetFacts
) -> None:
    heard(fleet, a=1.0, b=61.0, c=3599.0)
    assert facts.census() == Counted(ALL, frozenset({"b", "c"}))
    heard(fleet, a=1.0, b=61.0, c=3600.0)
    assert facts.census() == Counted(frozenset({"a", "b"}), frozenset({"b"}))
    assert facts.contact_of("c") is Contact.SILENT


def test_a_restart_of_ours_makes_nobody_silent_and_counts_nobody_in_again(
    fleet: Fleet, facts: FleetFacts
) -> None:
    """`b` and `c` were switched off long before it; their patience begins anew, not their hour."""
    fleet.heard_ago = {"a": (59.0, 7000.0), "b": (59.0, 7000.0), "c": (59.0, 9e6)}
    fleet.started_for = 59.0
    assert facts.census() == Counted(ALL, frozenset())
    fleet.heard_ago = {"a": (1.0, 1.0), "b": (60.0, 7000.0), "c": (60.0, 9e6)}
    fleet.started_for = 60.0
    assert facts.census() == Counted(frozenset({"a"}), frozenset())


def test_a_node_that_was_never_heard_of_since_the_start_has_its_hour(
    fleet: Fleet, facts: FleetFacts
) -> None:
    fleet.heard_ago = {"a": (1.0, 1.0)}
    fleet.started_for = 3599.0
    assert facts.census() == Counted(ALL, frozenset({"b", "c"}))
    fleet.started_for = 3600.0
    assert facts.census() == Counted(frozenset({"a"}), frozenset())


def test_a_retired_node_counts_nowhere_at_once(fleet: Fleet, facts: FleetFacts) -> None:
    heard(fleet, a=1.0, b=61.0, c=61.0)
    facts.follow_retired(lambda: frozenset({"b"}))
    assert facts.census() == Counted(frozenset({"a", "c"}), frozenset({"c"}))
    assert [facts.contact_of(name) for name in NODES] == ["live", "retired", "silent"]
    assert facts.fleet_context({}).silent_nodes == {"b", "c"}  # its last readings mean nothing
