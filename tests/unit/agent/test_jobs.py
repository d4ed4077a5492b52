"""Which job runs on which GPU: cgroup paths, environments, job-id files, and all of it together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.jobs import (
    AWAIT_NVML_S,
    JOBS_AT_MOST,
    LOOK_EVERY_S,
    JobCollector,
)
from gpuwarden_agent.sources.job_files import JobFiles, read_mapping
from gpuwarden_agent.sources.job_ids import clean_id, jobs_of_cgroup, jobs_of_environment
from gpuwarden_wire.events import GpuIdentity, JobKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

SLURM, POD, TORCHRUN = JobKind.SLURM, JobKind.KUBERNETES, JobKind.TORCHRUN
UID = "2b0a9e9a-1b2c-4d5e-8f90-123456789abc"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"

SLURM_V2 = b"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        pytest.param(SLURM_V2.decode(), {(SLURM, "4711")}, id="slurm-v2"),
        pytest.param(
            "0::/system.slice/node7_slurmstepd.scope/job_4711/step_batch/user/task_special\n",
            {(SLURM, "4711")},
            id="slurm-v2-several-slurmd",
        ),
        pytest.param(
            "11:memory:/slurm/uid_1000/job_815/step_3/task_7\n"
            "4:devices:/slurm/uid_1000/job_815/step_3\n"
            "1:name=systemd:/system.slice/slurmd.service\n",
            {(SLURM, "815")},
            id="slurm-v1",
        ),
        pytest.param(
            "4:devices:/slurm_node7/uid_0/job_815\n", {(SLURM, "815")}, id="slurm-v1-node"
        ),
        pytest.param(
            f"5:cpuset:/kubepods/burstable/pod{UID}/8f0e\n", {(POD, UID)}, id="pod-v1-cgroupfs"
        ),
        pytest.param(f"5:cpuset:/kubepods/pod{UID}/8f0e\n", {(POD, UID)}, id="pod-guaranteed"),
        pytest.param(
            "0::/kubepods.slice/kubepods-burstable.slice/"
            f"kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-8f0e.scope\n",
            {(POD, UID)},
            id="pod-v2-systemd",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-8f0e.scope/container\n",
            {(POD, UID)},
            id="pod-v2-systemd-guaranteed",
        ),
        pytest.param(
            "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
            f"kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-8f0e.scope\n",
            {(POD, UID)},
            id="pod-below-a-kubelet-slice",
        ),
        pytest.param(
            f"0::/../../kubepods-pod{UNDERSCORED}.slice/cri-containerd-8f0e.scope\n",
            {(POD, UID)},
            id="pod-out-of-a-cgroup-name-space",
        ),
        pytest.param(
            f"5:cpuset:/kubepods/burstable/pod{STATIC}/8f0e\n", {(POD, STATIC)}, id="static-pod"
        ),
        pytest.param(
            f"0::/kubepods/pod{UID}/8f0e/slurmstepd.scope/job_9/step_0\n",
            {(POD, UID), (SLURM, "9")},
            id="slurm-in-a-pod",
        ),
        pytest.param("0::/user.slice/user-1000.slice/session-3.scope\n", set(), id="a-session"),
        pytest.param("0::/docker/8f0e/job_12\n", set(), id="a-job-of-nobody"),
        pytest.param(f"0::/machine.slice/pod{UID}\n", set(), id="a-pod-of-nobody"),
        pytest.param("0::/slurm/uid_x/job_1\n", set(), id="no-uid"),
        pytest.param(f"0::/slurm/uid_1/job_{'9' * 40}\n", set(), id="no-number-of-a-job"),
        pytest.param("", set(), id="empty"),
        pytest.param("\0\xff:::\n\n/kubepods/pod", set(), id="garbage"),
    ],
)
def test_the_path_of_a_cgroup_names_the_job(text: str, jobs: set[tuple[JobKind, str]]) -> None:
    assert jobs_of_cgroup(text.encode("latin-1")) == jobs


@pytest.mark.parametrize(
    ("block", "jobs"),
    [
        (b"PATH=/bin\0TORCHELASTIC_RUN_ID=llm-7b.3\0RANK=0\0", {(TORCHRUN, "llm-7b.3")}),
        (b"TORCHELASTIC_RUN_ID=a\0SLURM_JOB_ID=12\0", {(TORCHRUN, "a"), (SLURM, "12")}),
        (b"TORCHELASTIC_RUN_ID=none\0", set()),  # torchrun without --rdzv-id
        (b"TORCHELASTIC_RUN_ID=\0", set()),
        (b"MY_TORCHELASTIC_RUN_ID=x\0", set()),
        (b"A=TORCHELASTIC_RUN_ID=x\0", set()),
        (b"TORCHELASTIC_RUN_ID=cut-sho", set()),
        (b"TORCHELASTIC_RUN_ID=two words\0", set()),
        (b"TORCHELASTIC_RUN_ID=" + b"x" * 200 + b"\0", set()),
        (b"TORCHELASTIC_RUN_ID=\xc3\xa4\n\0", set()),
        (b"", set()),
    ],
)
def test_of_an_environment_only_the_id_is_taken(
    block: bytes, jobs: set[tuple[JobKind, str]]
) -> None:
    assert jobs_of_environment(block) == jobs


def test_an_id_is_letters_digits_and_a_few_signs() -> None:
    assert clean_id(b" 12_7 \n") == "12_7"
    assert clean_id(b"pbs.12@host") == "pbs.12@host"
    for odd in (b"", b"-rf", b"a;b", b"a b", b"\0", b"x" * 129):
        assert clean_id(odd) == ""


class Node:
    """A procfs, a folder of job ids, and what NVML says."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.mapping = folder / "jobs"
        self.mapping.mkdir()
        self.now = 0.0
        self.table: Mapping[str, tuple[int, ...] | None] | None = None
        self.gpus: tuple[GpuIdentity, ...] = ()
        self.collector = self.make(self.mapping)

    def make(self, mapping: Path | None, *, nvml: bool = True) -> JobCollector:
        return JobCollector(
            self.proc,
            mapping,
            5.0,
            4.0,
            (lambda: self.table) if nvml else None,
            lambda: self.gpus,
            lambda: self.now,
        )

    def process(
        self, pid: int, cgroup: bytes = b"", environment: bytes = b"", started: int = 5
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = " ".join(["S", *["0"] * 18, str(started), "0"])
        (folder / "stat").write_text(f"{pid} (odd ) name) {fields}\n")
        (folder / "cgroup").write_bytes(cgroup)
        (folder / "environ").write_bytes(environment)

    def jobs(self) -> set[tuple[str, str, str]] | None:
        """(GPU, kind, id) where they changed."""
        self.now += LOOK_EVERY_S
        share = self.collector.collect(self.now).inventory
        if share is None:
            return None
        return {(job.gpu_uuid, job.kind.value, job.job_id) for job in share.jobs}

    def row(self) -> Mapping[str, Reading]:
        return self.collector.collect(self.now).rows[EntityKind.NODE][""]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_jobs_of_a_gpus_processes_are_the_gpus(node: Node) -> None:
    node.process(10, SLURM_V2, b"TORCHELASTIC_RUN_ID=llm\0SLURM_JOB_ID=999\0")
    node.process(11, SLURM_V2, b"TORCHELASTIC_RUN_ID=llm\0")
    node.process(12, f"0::/kubepods/pod{UID}/x\n".encode())
    node.process(13, b"0::/user.slice\n")
    node.table = {"GPU-a": (10, 11, 12), "GPU-b": (13,), "GPU-c": ()}
    assert node.jobs() == {
        ("GPU-a", "slurm", "4711"),  # of the cgroup; the environment is the user's to write
        ("GPU-a", "torchrun", "llm"),
        ("GPU-a", "kubernetes", UID),
    }
    assert node.row() == {"node_gpu_processes": 4, "node_gpu_processes_without_job": 1}
    assert node.jobs() is None, "unchanged"


def test_a_process_on_several_gpus_counts_once(node: Node) -> None:
    node.process(10, SLURM_V2)
    node.table = {"GPU-a": (10,), "GPU-b": (10,)}
    assert node.jobs() == {("GPU-a", "slurm", "4711"), ("GPU-b", "slurm", "4711")}
    assert node.row() == {"node_gpu_processes": 1, "node_gpu_processes_without_job": 0}


def test_a_look_is_taken_when_nvml_was_asked_again_and_seldom_else(node: Node) -> None:
    node.process(10, SLURM_V2)
    node.table = {"GPU-a": (10,)}
    assert node.collector.collect(0.0).inventory is not None
    node.process(10, b"0::/system.slice/slurmstepd.scope/job_5/step_0\n", started=6)
    assert node.collector.collect(5.0).inventory is None, "no look yet"
    node.table = dict(node.table)
    share = node.collector.collect(10.0).inventory
    assert share is not None
    assert [job.job_id for job in share.jobs] == ["5"], "another process of the same id"


def test_a_process_is_read_once(node: Node) -> None:
    node.process(10, SLURM_V2)
    files = JobFiles(str(node.proc))
    assert files.process(10).jobs == {(SLURM, "4711")}
    (node.proc / "10/cgroup").write_bytes(b"")
    assert files.process(10).jobs == {(SLURM, "4711")}
    files.retain(set())
    assert files.process(10).jobs == frozenset()


def test_what_is_gone_between_two_looks_is_no_job_and_no_trouble(node: Node) -> None:
    node.process(10, SLURM_V2)
    node.table = {"GPU-a": (10, 11)}
    assert node.jobs() == {("GPU-a", "slurm", "4711")}
    assert node.row() == {"node_gpu_processes": 2, "node_gpu_processes_without_job": 0}


def test_processes_of_another_name_space_are_unknown_not_without_a_job(node: Node) -> None:
    node.table = {"GPU-a": (10, 11)}
    assert node.jobs() == set()
    assert node.row()["node_gpu_processes_without_job"] == Unavailable("no_such_file")


def test_the_agents_own_pod_is_never_a_gpus_job(node: Node) -> None:
    own = f"0::/kubepods/pod{UID}/x\n".encode()
    (node.proc / "self").mkdir(parents=True)
    (node.proc / "self/cgroup").write_bytes(own)
    node.process(7, own)  # an id of the host's name space that hits upon us
    node.table = {"GPU-a": (7,)}
    assert node.jobs() == set()


def test_a_lost_gpu_keeps_the_job_that_it_was_lost_under(node: Node) -> None:
    node.process(10, SLURM_V2)
    node.table = {"GPU-a": (10,), "GPU-b": ()}
    node.jobs()
    node.table = {"GPU-a": None, "GPU-b": ()}
    assert node.jobs() is None
    assert node.row()["node_gpu_processes"] == 0
    node.table = {"GPU-a": None, "GPU-b": None}
    assert node.jobs() is None
    assert node.row()["node_gpu_processes"] == Unavailable("gpu_is_lost")
    node.table = {"GPU-a": (), "GPU-b": ()}
    assert node.jobs() == set()


def test_until_nvml_had_time_to_speak_what_was_known_before_holds(node: Node) -> None:
    assert node.jobs() is None
    assert node.collector.collect(node.now).rows == {}
    node.now += AWAIT_NVML_S
    assert node.jobs() == set()


def test_the_folder_tells_where_processes_do_not(node: Node) -> None:
    node.gpus = (
        GpuIdentity(gpu_uuid="GPU-a", pci_bus_id="", index=0),
        GpuIdentity(gpu_uuid="GPU-b", pci_bus_id="", index=1),
    )
    node.process(10, SLURM_V2)
    node.table = {"GPU-a": (10,), "GPU-b": ()}
    (node.mapping / "0").write_text("9999\n")  # left behind by an epilog that failed
    (node.mapping / "1").write_text("4711\n4712\n\n")
    (node.mapping / "1.7").write_text("4713\n")
    (node.mapping / "GPU-x").write_text("1\n")
    (node.mapping / "readme.txt").write_text("job 5\n")
    (node.mapping / "2").mkdir()
    assert node.jobs() == {
        ("GPU-a", "slurm", "4711"),
        ("GPU-b", "slurm", "4711"),
        ("GPU-b", "slurm", "4712"),
        ("GPU-b", "slurm", "4713"),
        ("GPU-x", "slurm", "1"),
    }
    (node.mapping / "1").write_text("")
    (node.mapping / "1.7").unlink()
    assert node.jobs() == {("GPU-a", "slurm", "4711"), ("GPU-x", "slurm", "1")}


def test_an_index_is_understood_as_soon_as_the_gpus_are_known(node: Node) -> None:
    node.collector = node.make(node.mapping, nvml=False)
    (node.mapping / "0").write_text("4711\n")
    first = node.collector.collect(0.0).inventory
    assert first is not None
    assert first.jobs == ()
    node.gpus = (GpuIdentity(gpu_uuid="GPU-a", pci_bus_id="", index=0),)
    share = node.collector.collect(5.0).inventory
    assert share is not None
    assert [job.gpu_uuid for job in share.jobs] == ["GPU-a"]


def test_a_folder_that_is_not_there_is_told_with_the_setting(node: Node) -> None:
    node.mapping.rmdir()
    with pytest.raises(CollectorError) as caught:
        node.collector.collect(0.0)
    assert caught.value.reason == "job_folder_no_such_file"
    assert "HPC_JOB_FOLDER" in caught.value.mend


def test_odd_job_files_do_not_block_or_flood(node: Node) -> None:
    os.mkfifo(node.mapping / "0")
    (node.mapping / "1").write_bytes(os.urandom(100_000))
    (node.mapping / "GPU-a").write_text("\n".join(str(number) for number in range(900)))
    for number in range(2, 600):
        (node.mapping / str(number)).write_text("7\n")
    assert len(read_mapping(str(node.mapping))["GPU-a"]) == 900
    node.table = {}
    jobs = node.jobs()
    assert jobs is not None
    assert len(jobs) == JOBS_AT_MOST
    assert {uuid for uuid, *_ in jobs} == {"GPU-a"}


def test_this_process_is_read() -> None:
    process = JobFiles("/proc").process(os.getpid())
    assert process.started.isdigit()
    with pytest.raises(FileNotFoundError):
        JobFiles("/proc").process(2**30)
