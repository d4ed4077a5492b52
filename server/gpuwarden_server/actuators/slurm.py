"""Slurm by scontrol: drain and resume with our reason, requeue what runs elsewhere.

scontrol, and not slurmrestd: on Debian's 22.05 node paths of the REST API are read-only.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

from gpuwarden_server.actuators.document import SlurmTarget
from gpuwarden_server.actuators.ports import ActuatorError
from gpuwarden_server.actuators.programs import Variables, run_program
from gpuwarden_server.actuators.slurm_text import SlurmNode, parse_nodes
from gpuwarden_verdict.actuation import Found, Wanted

_MEND = (
    "Look at `scontrol ping` as the server's user; it must be SlurmUser, root or an operator of"
    " Slurm, and `config` or SLURM_CONF must name the cluster's slurm.conf"
)


class SlurmActuator:
    """One Slurm cluster."""

    def __init__(self, target: SlurmTarget, variables: Variables) -> None:
        """Make it.

        Args:
            target: Its settings.
            variables: Environment of its programs.
        """
        self._target = target
        own = {} if target.config is None else {"SLURM_CONF": str(target.config)}
        self._variables = {**variables, **own, "SLURM_TIME_FORMAT": "standard"}

    def read(self, nodes: Collection[str]) -> Mapping[str, Found]:
        """What slurmctld says of all its nodes, and of the jobs on those asked about."""
        known = parse_nodes(self._scontrol("-o", "show", "node"))
        asked = set(nodes) if self._target.move_from is not None else set()
        return {
            name: node.found(self._jobs_on(name) if name in asked else ())
            for name, node in known.items()
        }

    def exclude(self, wanted: Wanted) -> None:
        """Drain: what runs goes on, nothing new starts."""
        node = self._node(wanted.node_id)
        if node.is_out and not node.is_ours:
            return  # a person was faster: theirs stays
        name = wanted.node_id
        self._scontrol("update", f"nodename={name}", "state=drain", f"reason={wanted.text}")

    def move(self, node_id: str, jobs: Collection[str]) -> None:
        """Requeue each job, to start elsewhere at once."""
        failed = []
        for job in jobs:
            try:
                self._move(job, node_id)
            except ActuatorError as error:
                failed.append(f"{job}: {error.reason}")
        if failed:
            mend = "Jobs that were submitted with --no-requeue stay until their users end them"
            raise ActuatorError(f"jobs on {node_id} stay: {'; '.join(failed)}", mend)

    def _move(self, job: str, node_id: str) -> None:
        """Requeue one job and let it start now; its node is drained, so it goes elsewhere.

        A requeued job waits for two minutes ("BeginTime") unless told to start now, and takes that
        only once it has ended where it ran.
        """
        if not self._state(job):
            return  # it ended by itself
        if job in self._jobs_on(node_id):
            self._scontrol("requeue", job)
        deadline = time.monotonic() + self._target.common.timeout_s
        while (state := self._state(job)).startswith("COMPLETING"):
            if time.monotonic() > deadline:
                raise ActuatorError("it was requeued, and has not ended yet where it ran", _MEND)
            time.sleep(0.1)
        if state == "PENDING|BeginTime":
            self._scontrol("update", f"jobid={job}", "starttime=now")

    def _state(self, job: str) -> str:
        """State and why, "" for a job that has ended and is forgotten."""
        try:
            return self._run("squeue", "-h", "-j", job, "-o", "%T|%r").strip()
        except ActuatorError as error:
            if "Invalid job id" in error.reason:
                return ""
            raise

    def release(self, node_id: str) -> None:
        """End our drain; a node that is down besides stays down."""
        node = self._node(node_id)
        if not node.is_ours:
            return
        state = "undrain" if "DOWN" in node.states else "resume"
        self._scontrol("update", f"nodename={node_id}", f"state={state}")

    def _node(self, node_id: str) -> SlurmNode:
        nodes = parse_nodes(self._scontrol("-o", "show", "node", node_id))
        if node_id not in nodes:
            raise ActuatorError(f"slurmctld has no node {node_id}", _MEND)
        return nodes[node_id]

    def _jobs_on(self, node_id: str) -> tuple[str, ...]:
        return tuple(self._run("squeue", "-h", "-t", "R,S", "-w", node_id, "-o", "%A").split())

    def _scontrol(self, *arguments: str) -> str:
        return self._run("scontrol", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        folder = self._target.programs
        path = str(Path(folder) / program) if folder else program
        timeout_s = self._target.common.timeout_s
        return run_program((path, *arguments), timeout_s, variables=self._variables, mend=_MEND)
