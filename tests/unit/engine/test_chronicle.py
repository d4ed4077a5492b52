"""What the judge puts on record of parts, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.domain import Outcome
from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity, renamed_ref
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove, IncidentPhase
from gpuwarden_verdict.job_ends import JobEnd, end_event
from gpuwarden_verdict.ledger import Mark
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, GpuJob, Inventory, JobKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import incident, item

T = 1_800_000_000.0
ACT = '[defaults]\nmode = "act"\ncap = { max_percent = 100 }'
GPU = EntityRef(EntityKind.GPU, "GPU-1", "n1")


class House:
    """Nodes of one GPU each, heard batch by batch."""

    def __init__(self) -> None:
        self.engine = FleetEngine(parse_policy(ACT))
        self.now = T
        self.sent = 0

    def send(self, node_id: str, *events: Event) -> None:
        self.sent += 1
        self.now += 1.0
        batch = Batch(
            version=WIRE_VERSION,
            node_id=node_id,
            spool_id=(node_id * 32)[:32].replace("n", "a"),
            stream=Stream.EVENTS,
            seq=self.sent,
            boot_id=f"boot-{node_id}",
            agent_version="1",
            sent_at=self.now,
            interval_s=5.0,
            events=events,
        )
        self.engine.hear(node_id, batch, self.now)

    def event(self, kind: EventKind, **fields: object) -> Event:
        return Event(id=f"e{self.sent}-{kind}", kind=kind, observed_at=self.now, **fields)  # type: ignore[arg-type]  # a test's short form

    def has(self, node_id: str, uuid: str | None, serial: str = "", job: str = "") -> None:
        gpu = GpuIdentity(gpu_uuid=uuid or "", pci_bus_id="0000:10:00.0", serial=serial)
        named = () if uuid is None else (gpu,)
        jobs = (GpuJob(gpu_uuid=uuid or "", kind=JobKind.SLURM, job_id=job),) if job else ()
        inventory = Inventory(gpus=named, gpus_expected=1, jobs=jobs)
        self.send(node_id, self.event(EventKind.INVENTORY, inventory=inventory))

    def xid(self, node_id: str, code: int, text: str) -> None:
        event = self.event(
            EventKind.KERNEL_LOG,
            family="xid",
            xid=code,
            pci_bus_id="0000:10:00.0",
            text=f"NVRM: Xid (PCI:0000:10:00): {code}, {text}",
        )
        self.send(node_id, event)

    def marks(self, part: str) -> list[Mark]:
        return sorted(mark for mark, _, _ in self.engine.ledger.marks_of(part))


LOST = (79, "GPU has fallen off the bus.")


def test_a_fault_its_exclusion_and_its_repair_go_on_record_of_the_part() -> None:
    house = House()
    house.has("n1", "GPU-1", "S1")
    house.xid("n1", *LOST)
    assert house.marks("gpu:S1") == [Mark.BUS, Mark.EXCLUSION]
    assert house.marks("node:n1") == [Mark.GPU]
    house.engine.begin_repair(GPU, "ann", "reseat it", house.now)
    house.send("n1", house.event(EventKind.CHECK_PASSED, entity_kind=EntityKind.NODE))
    assert house.marks("gpu:S1") == [Mark.BUS, Mark.EXCLUSION, Mark.REPAIR]


def test_what_a_program_can_cause_is_no_fault_of_the_part() -> None:
    house = House()
    house.has("n1", "GPU-1", "S1")
    house.xid("n1", 31, "pid=1, name=python, Ch 00000008, MMU Fault")
    assert house.engine.open_incidents and house.marks("gpu:S1") == []


def test_a_revoke_takes_it_off_the_record() -> None:
    house = House()
    house.has("n1", "GPU-1", "S1")
    house.xid("n1", *LOST)
    house.engine.revoke(GPU, "ann", "I pulled it out myself", house.now)
    assert house.marks("gpu:S1") == [] and house.marks("node:n1") == []


def test_the_record_goes_with_the_board_and_the_next_one_starts_anew() -> None:
    house = House()
    house.has("n1", "GPU-1", "S1")
    house.xid("n1", *LOST)
    house.has("n1", None)
    house.has("n1", "GPU-2", "S2")
    assert house.marks("gpu:S2") == []
    assert house.marks("node:n1") == [Mark.GPU, Mark.REPLACEMENT]
    house.has("n2", "GPU-1", "S1")
    house.engine.sweep(house.now)
    reading = house.engine.feature_scene().ledger
    assert reading.keys[EntityKind.GPU] == ("GPU-1",), "in whichever node it sits"
    assert house.marks("gpu:S1") == [Mark.BUS, Mark.EXCLUSION]


def test_a_failed_job_is_on_record_of_the_gpus_that_it_ran_on() -> None:
    house = House()
    house.has("n1", "GPU-1", "S1", job="7")
    house.has("n2", "GPU-2", "S2", job="8")
    for node_id in ("n1", "n2"):
        end = JobEnd("slurm:7", "NODE_FAIL", None, "eve", house.now, nodes=4)
        house.engine.tell(node_id, end_event(f"end-{node_id}", end), house.now)
    assert house.engine.ledger.marks_of("gpu:S1") == ((Mark.FAILED_JOB, house.now, 0.5),)
    assert house.marks("gpu:S2") == [], "another job ran there"
    assert house.marks("node:n2") == [Mark.FAILED_JOB]


def outcome_of(*incidents: Incident) -> Outcome:
    moves = (IncidentMove(one, None, "told", "gpuwarden", T) for one in incidents)
    return Outcome(target=GPU, incident_moves=tuple(moves))


def fault(of: FaultClass, name: str = "inc-1") -> Incident:
    return incident(GPU, item(), id=name, fault_class=of, opened_at=T)


def records(chronicle: Chronicle) -> list[Mark]:
    parts = ("gpu:GPU-1", "node:n1")
    return sorted(m for part in parts for m, _, _ in chronicle.ledger.marks_of(part))


def test_blame_that_an_incident_takes_back_goes_off_the_record() -> None:
    chronicle = Chronicle(Directory(lambda node: True))
    for cause, left in (
        (FaultClass.BUS, [Mark.BUS, Mark.GPU]),
        (FaultClass.MEMORY, [Mark.GPU, Mark.MEMORY]),
        (FaultClass.APPLICATION, []),
        (FaultClass.BUS, [Mark.BUS, Mark.GPU]),
    ):
        chronicle.note([outcome_of(fault(cause))])
        assert records(chronicle) == left


def test_what_another_incident_of_that_moment_says_stays_on_record() -> None:
    chronicle = Chronicle(Directory(lambda node: True))
    chronicle.note([outcome_of(fault(FaultClass.BUS), fault(FaultClass.MEMORY, "inc-2"))])
    chronicle.note([outcome_of(fault(FaultClass.APPLICATION))])
    assert records(chronicle) == [Mark.GPU, Mark.MEMORY]


def test_blame_is_taken_back_after_a_restart_and_a_new_name_too() -> None:
    before = Chronicle(Directory(lambda node: True))
    before.note([outcome_of(fault(FaultClass.BUS))])
    chronicle = Chronicle(Directory(lambda node: True), before.ledger)
    chronicle.recall([fault(FaultClass.BUS)])
    chronicle.rename("n1", "n2")
    chronicle.note(
        [outcome_of(replace(fault(FaultClass.OPERATOR), entity=renamed_ref(GPU, "n1", "n2")))]
    )
    assert records(chronicle) == [] and chronicle.ledger.marks_of("node:n2") == ()


WEAK = item(severity=Severity.WARNING, acts_alone=False)


@pytest.mark.parametrize("over", [False, True])
def test_a_persons_word_takes_blame_back_and_confirms_it(over: bool) -> None:
    """Whether the incident goes on or has ended; a later word corrects the one before."""
    chronicle = Chronicle(Directory(lambda node: True))
    end = {"phase": IncidentPhase.RESOLVED, "resolved_at": T + 60.0} if over else {}
    told = replace(fault(FaultClass.BUS), **end)  # type: ignore[arg-type]  # by name
    chronicle.note([outcome_of(told)])
    blamed = [Mark.BUS, Mark.GPU]
    assert records(chronicle) == blamed
    for hardware, left in ((False, []), (True, blamed), (False, []), (None, blamed)):
        chronicle.take_word(told, hardware)
        assert records(chronicle) == left


def test_a_word_that_it_was_the_hardware_puts_on_record_what_no_rule_was_sure_of() -> None:
    chronicle = Chronicle(Directory(lambda node: True))
    told = replace(fault(FaultClass.MEMORY), evidence=(WEAK,), parent_id="inc-place")
    chronicle.note([outcome_of(told)])
    assert records(chronicle) == []
    chronicle.take_word(told, True)
    assert records(chronicle) == [Mark.GPU, Mark.MEMORY]
    chronicle.note([outcome_of(replace(told, confidence=0.5))])
    assert records(chronicle) == [Mark.GPU, Mark.MEMORY], "it stays while more of it comes"
    chronicle.take_word(told, None)
    assert records(chronicle) == []


def test_a_word_holds_while_more_of_a_live_incident_comes_and_after_a_restart() -> None:
    before = Chronicle(Directory(lambda node: True))
    told = fault(FaultClass.BUS)
    before.note([outcome_of(told)])
    chronicle = Chronicle(Directory(lambda node: True), before.ledger)
    chronicle.recall([told])
    chronicle.take_word(told, False)
    chronicle.note([outcome_of(replace(told, confidence=0.5))])
    assert records(chronicle) == []


def test_a_word_about_one_gpu_leaves_what_another_did_at_that_moment() -> None:
    house = House()
    gpus = [("GPU-1", "0000:10:00.0"), ("GPU-2", "0000:11:00.0")]
    known = tuple(GpuIdentity(gpu_uuid=uuid, pci_bus_id=slot) for uuid, slot in gpus)
    house.send(
        "n1", house.event(EventKind.INVENTORY, inventory=Inventory(gpus=known, gpus_expected=2))
    )
    chronicle = Chronicle(house.engine.directory, house.engine.ledger)
    other = EntityRef(EntityKind.GPU, "GPU-2", "n1")
    over = {"phase": IncidentPhase.RESOLVED, "resolved_at": T + 60.0}
    mine = replace(fault(FaultClass.BUS), **over)  # type: ignore[arg-type]  # by name
    theirs = replace(mine, id="inc-2", entity=other)
    chronicle.note([outcome_of(mine, theirs)])
    chronicle.take_word(mine, False)
    assert house.marks("gpu:GPU-1") == []
    assert (house.marks("gpu:GPU-2"), house.marks("node:n1")) == ([Mark.BUS], [Mark.GPU])
    chronicle.take_word(theirs, False)
    assert house.marks("node:n1") == []


def test_what_was_history_when_it_was_told_is_taken_back_too() -> None:
    chronicle = Chronicle(Directory(lambda node: True))
    past = incident(GPU, item(first_at=T - 9000.0), opened_at=T, phase=IncidentPhase.RESOLVED)
    move = IncidentMove(past, None, "history", "gpuwarden", T)
    chronicle.note([Outcome(target=GPU, history=(move,))])
    assert records(chronicle) == [Mark.BUS, Mark.GPU]
    chronicle.take_word(past, False)
    assert records(chronicle) == []
