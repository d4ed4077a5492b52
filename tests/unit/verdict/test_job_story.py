"""Was it my code or the hardware: one line from what is known."""

from __future__ import annotations

from dataclasses import replace

from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.job_ends import JobEnd
from gpuwarden_verdict.job_story import JobCause, JobSight, JobVerdict, explain_job
from gpuwarden_verdict.places import PlaceKind, place_ref
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import incident, item
from tests.builders.verdict import START

GPU = EntityRef(EntityKind.GPU, "GPU-a", "n1")
SIGHT = JobSight(
    job="slurm:1",
    nodes=frozenset({"n1", "n2"}),
    gpu_uuids=frozenset({"GPU-a", "GPU-b"}),
    gpu_names={"GPU-a": "GPU 3"},
    since=START - 3600.0,
    until=START + 60.0,
    end=JobEnd("slurm:1", "FAILED", 1, "", START + 60.0),
    incidents=(),
    blind=(),
)
CODE = item(
    detector="xid:31",
    sentence="XID 31",
    fault_class=FaultClass.APPLICATION,
    application_possible=True,
    acts_alone=False,
    score=0.2,
    severity=Severity.WARNING,
)


def told(*incidents: Incident, **changes: object) -> JobVerdict:
    sight = replace(SIGHT, incidents=incidents, **changes)  # type: ignore[arg-type]  # by name
    verdict = explain_job(sight)
    assert "\n" not in verdict.line
    return verdict


def place(kind: PlaceKind, fault_class: FaultClass, sentence: str) -> Incident:
    shown = item(detector="behind_place:x", sentence=sentence, acts_alone=False, score=0.9)
    return incident(place_ref(kind, "x"), shown, fault_class=fault_class)


def test_a_fault_that_decides_by_itself_goes_before_all_else() -> None:
    verdict = told(
        incident(EntityRef(EntityKind.GPU, "GPU-b", "n2"), CODE),
        place(PlaceKind.MOUNT, FaultClass.STORAGE, "60 of 64 nodes stall"),
        incident(GPU),
    )
    assert verdict.cause is JobCause.HARDWARE
    assert verdict.line == (
        "slurm:1 FAILED (exit code 1): hardware: n1 GPU 3 GPU-a: XID 79, 2027-01-15 08:00:00Z; "
        "reboot node (inc-GPU-a)"
    )
    assert [one.cause for one in verdict.findings] == [
        *(JobCause.HARDWARE, JobCause.STORAGE, JobCause.APPLICATION)
    ]


def test_a_place_and_a_program_are_told_by_name() -> None:
    storage = told(place(PlaceKind.MOUNT, FaultClass.STORAGE, "60 of 64 nodes stall"))
    assert (storage.cause, "storage: mount x: 60 of 64" in storage.line) == ("storage", True)
    leaf = told(place(PlaceKind.LEAF, FaultClass.FABRIC, "4 of 4 nodes lost their links"))
    assert (leaf.cause, "network: leaf switch x" in leaf.line) == ("network", True)
    heat = told(place(PlaceKind.RACK, FaultClass.THERMAL, "all hot"))
    assert (heat.cause, "place: rack x: all hot" in heat.line) == ("place", True)
    program = told(place(PlaceKind.JOB, FaultClass.APPLICATION, "XID 31 on 12 GPUs"))
    assert program.cause is JobCause.APPLICATION


def test_other_peoples_faults_and_those_of_another_time_say_nothing() -> None:
    foreign = incident(EntityRef(EntityKind.GPU, "GPU-z", "n1"))
    later = incident(
        GPU, item(first_at=START + 999.0, last_at=START + 999.0, expires_at=START + 9999.0)
    )
    before = incident(GPU, item(last_at=START - 9e5, expires_at=START - 8e5, first_at=START - 9e5))
    member = incident(GPU, parent_id="inc-other")
    verdict = told(foreign, later, before, member)
    assert (verdict.cause, verdict.findings) == (JobCause.APPLICATION, ())
    assert "nothing was found wrong on its 2 nodes and 2 GPUs" in verdict.line


def test_what_could_not_be_seen_makes_it_unknown_unless_hardware_was() -> None:
    blind = ("n1 is silent", "n2: nvml: timed_out", "a", "b")
    unseen = told(blind=blind)
    assert unseen.cause is JobCause.UNKNOWN
    assert unseen.line.endswith("unknown: n1 is silent; n2: nvml: timed_out; a; and 1 more")
    program = told(incident(GPU, CODE), blind=blind)
    assert program.cause is JobCause.UNKNOWN
    assert "the program looks at fault (XID 31)" in program.line
    assert told(incident(GPU), blind=blind).cause is JobCause.HARDWARE


def test_a_job_that_runs_or_ended_well_has_no_cause() -> None:
    assert told(end=None, until=None).line == (
        "slurm:1 (running): nothing was found wrong on its 2 nodes and 2 GPUs so far"
    )
    well = told(end=JobEnd("slurm:1", "COMPLETED", 0, "", START))
    assert well.cause is JobCause.NONE
    assert well.line.startswith("slurm:1 COMPLETED (exit code 0): nothing was found wrong")
    assert told(end=JobEnd("slurm:1", "COMPLETED", 0, "", START), blind=("x",)).cause == "none"
