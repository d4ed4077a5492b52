"""The engine in process: who speaks for a node, what people do, and what waits meanwhile."""

from __future__ import annotations

from itertools import count

import pytest

from gpuwarden_verdict.engine import FleetEngine, Heard
from gpuwarden_verdict.entities import EntityRef, EntityState, Rung
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind

T = 1_800_000_000.0
GPU = EntityRef(EntityKind.GPU, "GPU-1", "n1")
ACT = '[defaults]\nmode = "act"\ncap = { max_percent = 100 }'


class Agent:
    """Sends batches of one node."""

    def __init__(self, engine: FleetEngine, spool: str = "a") -> None:
        self.engine, self.spool = engine, spool * 32
        self.numbers = count(1)

    def send(self, at: float, *events: Event, seq: int | None = None) -> Heard:
        return self.engine.hear(
            "n1",
            Batch(
                version=WIRE_VERSION,
                node_id="n1",
                spool_id=self.spool,
                stream=Stream.EVENTS,
                seq=next(self.numbers) if seq is None else seq,
                boot_id="boot",
                agent_version="1",
                sent_at=at,
                interval_s=5.0,
                events=events,
            ),
            at,
        )


def has(at: float) -> Event:
    gpu = GpuIdentity(gpu_uuid="GPU-1", pci_bus_id="0000:10:00.0")
    inventory = Inventory(gpus=(gpu,), gpus_expected=1)
    return Event(id=f"i{at}", kind=EventKind.INVENTORY, observed_at=at, inventory=inventory)


def lost(at: float, name: str = "x") -> Event:
    text = "NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus."
    return Event(
        id=f"{name}{at}",
        kind=EventKind.KERNEL_LOG,
        observed_at=at,
        family="xid",
        xid=79,
        pci_bus_id="0000:10:00.0",
        text=text,
    )


@pytest.fixture
def engine() -> FleetEngine:
    return FleetEngine(parse_policy(ACT))


def test_a_batch_counts_once_and_another_of_its_number_not_at_all(engine: FleetEngine) -> None:
    agent = Agent(engine)
    assert agent.send(T, has(T)) is Heard.TAKEN
    assert agent.send(T + 1, lost(T + 1), seq=2) is Heard.TAKEN
    moves = len(engine.moves)
    assert agent.send(T + 2, lost(T + 1), seq=2) is Heard.REPLAYED
    assert agent.send(T + 3, lost(T + 3), seq=2) is Heard.CONFLICT
    assert len(engine.moves) == moves
    assert [one.entity for one in engine.exclusions()] == ["GPU-1"]
    assert engine.verdict("n1").node.usable == "no"


def test_a_second_spool_waits_for_silence_and_the_first_is_history_then(
    engine: FleetEngine,
) -> None:
    first, second = Agent(engine, "a"), Agent(engine, "b")
    first.send(T, has(T))
    assert second.send(T + 1, has(T + 1), seq=1) is Heard.REFUSED
    assert second.send(T + 60, has(T + 60), seq=1) is Heard.TAKEN
    assert first.send(T + 61, lost(T + 30)) is Heard.HISTORY
    assert engine.exclusions() == () and engine.open_incidents == ()
    assert [move.incident.entity for move in engine.history] == [GPU, GPU]


def test_maintenance_holds_what_would_be_decided_until_it_ends(engine: FleetEngine) -> None:
    agent = Agent(engine)
    agent.send(T, has(T))
    engine.maintain(["n1"], "new firmware", T + 600)
    agent.send(T + 1, lost(T + 1))
    engine.sweep(T + 60)
    assert engine.exclusions() == () and len(engine.open_incidents) == 1
    agent.send(T + 601)
    engine.sweep(T + 602)
    assert [one.entity for one in engine.exclusions()] == ["GPU-1"]


def test_people_approve_repair_and_revoke(engine: FleetEngine) -> None:
    advising = FleetEngine(parse_policy('[defaults]\nmode = "advise"'))
    agent = Agent(advising)
    agent.send(T, has(T))
    agent.send(T + 1, lost(T + 1))
    assert advising.exclusions() == () and len(advising.would_exclude()) == 1
    (incident,) = advising.open_incidents
    advising.acknowledge(incident.id, "ann", "seen", T + 2)
    assert advising.incidents[incident.id].phase == "acknowledged"
    advising.approve(GPU, "ann", "it is lost", T + 3)
    assert advising.exclusions()[0].decided_by == "operator:ann"
    advising.begin_repair(GPU, "ann", "new board", T + 4)
    assert advising.state_of(GPU) is EntityState.IN_REPAIR
    advising.revoke(GPU, "ann", "it was the riser", T + 5)
    assert advising.exclusions() == () and advising.state_of(GPU) is EntityState.HEALTHY
    assert all(one.rung >= Rung.EXCLUDE for one in advising.decisions.values())
