"""Where nodes stand and which job runs on what, as the judge is told at each sweep."""

from __future__ import annotations

from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.inventory.node_places import NodePlaces
from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.jobs import job_name
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, GpuJob, Inventory, JobKind

GPU_A, GPU_B = "GPU-a", "GPU-b"


def tell(directory: FleetDirectory, node: str, *jobs: GpuJob, **labels: str) -> None:
    gpus = tuple(
        GpuIdentity(gpu_uuid=uuid, pci_bus_id=f"0000:{n}0:00.0")
        for n, uuid in enumerate((GPU_A, GPU_B), 1)
    )
    inventory = Inventory(gpus=gpus if node == "n1" else (), labels=labels, jobs=jobs)
    draft = directory.draft(node, 1.0)
    draft.note_event(
        Event(id="i", kind=EventKind.INVENTORY, observed_at=1.0, inventory=inventory), "boot"
    )
    draft.adopt()


def test_places_are_worked_out_for_what_changed_only() -> None:
    directory = FleetDirectory(lambda node: True)
    placements = Placements(directory, parse_policy(""))
    places = NodePlaces(placements)
    tell(directory, "n1", rack="r1", leaf="l1", power="p1")
    tell(directory, "n2", rack="r1")
    first = places.of(directory.nodes())
    assert first == {"n1": NodePlace("r1", "l1", "p1"), "n2": NodePlace("r1")}
    assert places.of(directory.nodes()) is first
    tell(directory, "n2", rack="r2")
    second = places.of(directory.nodes())
    assert second["n2"] == NodePlace("r2")
    assert second["n1"] is first["n1"]
    placements.version += 1
    assert places.of(directory.nodes())["n1"] is not first["n1"]


def test_jobs_are_shown_anew_only_when_one_changes() -> None:
    directory = FleetDirectory(lambda node: True)
    torchrun = GpuJob(gpu_uuid=GPU_A, kind=JobKind.TORCHRUN, job_id="llm")
    slurm = GpuJob(gpu_uuid=GPU_A, kind=JobKind.SLURM, job_id="4711")
    tell(directory, "n1", torchrun)
    first = directory.jobs()
    assert first == {GPU_A: "torchrun:llm"}
    tell(directory, "n2")
    assert directory.jobs() is first
    tell(directory, "n1", torchrun, slurm)
    assert directory.jobs() == {GPU_A: "slurm:4711"}
    tell(directory, "n1")
    assert directory.jobs() == {}


def test_of_several_jobs_the_scheduler_gives_the_name() -> None:
    assert job_name([("torchrun", "x"), ("kubernetes", "pod"), ("slurm", "1")]) == "slurm:1"
    assert job_name([("torchrun", "x"), ("kubernetes", "pod")]) == "kubernetes:pod"
    assert job_name([("slurm", "2"), ("slurm", "1")]) == "slurm:1"
    assert job_name([("unheard_of", "1")]) == ""
    assert job_name([]) == ""
