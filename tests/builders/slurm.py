"""A real Slurm on loopback: munged, slurmctld and four slurmds, all in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.fakes.waiting import wait_for

NODES = ("n1", "n2", "n3", "n4")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sbatch", "scancel")
_START_S = 60.0
_CONFIG = """\
ClusterName=gpuwardentest
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.socket,cred_expire=3
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
SwitchType=switch/none
ReturnToService=1
SlurmctldTimeout=30
SlurmdTimeout=60
InactiveLimit=0
KillWait=2
MinJobAge=300
TCPTimeout=5
MessageTimeout=20
JobRequeue=1
GresTypes=gpu
NodeName=n[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[4]}] \
CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000 \
Gres=gpu:8 State=UNKNOWN
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class SlurmCluster:
    """Four fake nodes with eight GPUs each; use it as a context.

    Attributes:
        folder: Everything of it.
        config: Its slurm.conf.
    """

    def __init__(self) -> None:
        missing = [name for name in _PROGRAMS if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            why = f"{missing[0]} is not installed" if missing else "needs root"
            pytest.skip(f"needs Slurm: {why}; apt install slurmctld slurmd slurm-client munge")
        self.folder = Path(tempfile.mkdtemp(prefix="gpuwarden-slurm-", dir="/tmp"))
        self.config = self.folder / "slurm.conf"
        self._stack = ExitStack()

    def __enter__(self) -> SlurmCluster:
        self._write()
        munge = self.folder / "munge"
        self._run(
            "munged",
            "--foreground",
            f"--key-file={munge}/munge.key",
            f"--socket={munge}/munge.socket",
            f"--pid-file={munge}/munged.pid",
            f"--log-file={munge}/munged.log",
            f"--seed-file={munge}/munged.seed",
            "--num-threads=2",
        )
        wait_for((munge / "munge.socket").exists, _START_S, "munged's socket")
        self._run("slurmctld", "-D", "-c")
        for node in NODES:
            self._run("slurmd", "-D", "-N", node)
        wait_for(lambda: [self.state(n) for n in NODES] == ["IDLE"] * 4, _START_S, "idle nodes")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(subprocess.SubprocessError):
            self.command("scancel", "--user=root")
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *arguments: str) -> str:
        """Run a client of Slurm; its output."""
        done = subprocess.run(
            arguments,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    def variables(self) -> dict[str, str]:
        """Environment of Slurm's programs."""
        return {"PATH": os.environ["PATH"], "HOME": "/root", "SLURM_CONF": str(self.config)}

    def state(self, node: str) -> str:
        """The node's state as scontrol has it; "" while slurmctld does not answer."""
        return self._field(node, "State")

    def reason(self, node: str) -> str:
        """The node's reason, "" for none."""
        return self._field(node, "Reason")

    def drain(self, node: str, reason: str) -> None:
        """As a person does."""
        self.command("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        """As a person does."""
        self.command("scontrol", "update", f"nodename={node}", "state=resume")

    def submit(self) -> tuple[str, str]:
        """A job that sleeps on one node; its id, and the node that Slurm chose."""
        path = self.folder / "job.sh"
        path.write_text("#!/bin/sh\nsleep 300\n")
        log = self.folder / "log" / "job.out"
        job = self.command("sbatch", "--parsable", "-n2", "-o", str(log), str(path)).strip()
        return job, wait_for(lambda: self.job_node(job), _START_S, f"job {job} runs")

    def job_node(self, job: str) -> str:
        """Where a job runs, "" where it does not."""
        return self.command("squeue", "-h", "-t", "R", "-j", job, "-o", "%N").strip()

    def _field(self, node: str, name: str) -> str:
        try:
            text = self.command("scontrol", "show", "node", node)
        except subprocess.CalledProcessError:
            return ""
        for line in text.splitlines():
            word, _, rest = line.strip().partition(f"{name}=")
            if rest and not word:
                return rest.split()[0] if name == "State" else rest
        return ""

    def _write(self) -> None:
        folder = self.folder
        folder.chmod(0o755)
        for name in ("state", "log", "dev", "munge", *(f"spool/{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        (folder / "munge").chmod(0o755)
        for gpu in range(8):  # Slurm counts character devices only; any will do
            os.mknod(folder / "dev" / f"gpu{gpu}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        key = folder / "munge" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.config.write_text(_CONFIG.format(folder=folder, ports=_free_ports(5)))
        gres = f"NodeName=n[1-4] Name=gpu File={folder}/dev/gpu[0-7]\n"
        (folder / "gres.conf").write_text(gres)

    def _run(self, *arguments: str) -> None:
        log = self._stack.enter_context((self.folder / "log" / f"{arguments[0]}.err").open("ab"))
        process = subprocess.Popen(
            arguments, env=self.variables(), stdout=log, stderr=log, start_new_session=True
        )
        self._stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        # Steps of jobs are in the group: none may stay behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)


def _free_ports(count: int) -> list[int]:
    """Ports in a row that nobody listens on."""
    for first in range(20_000 + os.getpid() % 500 * 16, 32_000, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    one = stack.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(first, first + count))
    raise AssertionError(f"no {count} free ports in a row")
