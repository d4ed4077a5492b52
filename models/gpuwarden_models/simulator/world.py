"""Everything that faults can touch, and the place where events are made."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuwarden_kernel_log import parse_line
from gpuwarden_models.frames import NodeEvent
from gpuwarden_models.simulator.effects import Effects
from gpuwarden_models.simulator.jobs import JobBoard, JobState
from gpuwarden_models.simulator.machines import NODE_SCHEMA, Machines
from gpuwarden_models.simulator.parameters import Parameters
from gpuwarden_models.simulator.plant import GpuPlant
from gpuwarden_models.simulator.storage import Mounts
from gpuwarden_models.simulator.topology import DISKS, EXPORTS, SimulatedGpu, Topology
from gpuwarden_wire.events import (
    Attribute,
    Event,
    EventKind,
    GpuIdentity,
    GpuJob,
    Inventory,
    JobKind,
)
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU and the time from which it was in its slot, epoch seconds."""

    gpu: SimulatedGpu
    since: float


class World:
    """The simulated fleet between two frames.

    Attributes:
        topology: What there is.
        parameters: Its numbers.
        board: Jobs.
        plant: GPUs.
        machines: Hosts, NICs, disks.
        mounts: Network file systems.
        effects: What faults do in the present step.
        rng: Draws of faults; the background draws elsewhere, so a fault does not change it.
        now: Epoch seconds.
        boot_ids: Boot of each node.
        parts: All GPUs that ever were there, with the time from which they were.
    """

    def __init__(
        self, topology: Topology, parameters: Parameters, seed: int, start: float, salt: str
    ) -> None:
        """A fleet in steady state at `start`."""
        jobs, physics, hosts, faults = (
            np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)
        )
        self.topology, self.parameters = topology, parameters
        self.board = JobBoard(topology, parameters, jobs, start)
        self.load = self.board.advance(start)
        self.plant = GpuPlant(topology, parameters, physics, self.load)
        self.machines = Machines(topology, parameters, hosts)
        self.rng = faults
        self.now = start
        self.mounts = Mounts(topology, parameters.storage, np.random.default_rng([seed, 3]))
        self._salt, self._boots = salt, [0] * len(topology.nodes)
        self._boot_ids = [self._boot_id(node) for node in range(len(topology.nodes))]
        self.effects = self._no_effects()
        self.board.take_changes()  # who ran before is told with the nodes' first inventories
        self._line_number = [1000] * len(topology.nodes)
        self._other_number = 0
        self._events: list[NodeEvent] = []
        self._away: dict[int, tuple[float, list[Callable[[], None]]]] = {}
        self._generation = [0] * len(topology.gpus)
        self.parts: list[Part] = [Part(gpu, start) for gpu in topology.gpus]

    @property
    def boot_ids(self) -> tuple[str, ...]:
        """Present boot of each node."""
        return tuple(self._boot_ids)

    def _boot_id(self, node: int) -> str:
        name = f"gpuwarden-simulated/{self._salt}/{self.topology.nodes[node]}"
        again = f"/{self._boots[node]}" if self._boots[node] else ""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name + again))

    def reboot(self, nodes: NDArray[np.int64]) -> None:
        """Nodes come back from a reboot: counters and kernels' sequences start anew."""
        per_node = self.topology.gpus_per_node
        self.plant.restart((nodes[:, None] * per_node + np.arange(per_node)).ravel())
        self.machines.restart(nodes)
        self.mounts.restart(nodes)
        for node in nodes.tolist():
            self._boots[node] += 1
            self._boot_ids[node] = self._boot_id(node)
            self._line_number[node] = 1000
            self.other_event(node, EventKind.NODE_BOOT, booted_at=self.now)
            self.inventory_event(node)

    def send_away(self, node: int, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """A node goes away for a reboot; its job ends, and `then` is done once it is back."""
        if not self.effects.down[node]:
            self.stop_jobs(np.array([node]), JobState.CANCELLED)
        until, waiting = self._away.get(node, (0.0, []))
        until = max(until, self.now + seconds)
        self._away[node] = (until, [*waiting, then])
        self.board.drain(np.array([node]), until)
        self.effects.down[node] = True

    def come_back(self) -> None:
        """Nodes whose reboot is over are there again; the others stay away."""
        over = [node for node, (until, _) in self._away.items() if until <= self.now]
        for node in self._away:
            self.effects.down[node] = node not in over
        for node in over:
            _, waiting = self._away.pop(node)
            self.reboot(np.array([node]))
            for then in waiting:
                then()

    def replace_gpu(self, gpu: int) -> None:
        """Another part is in the slot, with a serial and a UUID of its own."""
        self._generation[gpu] += 1
        part = self.topology.gpus[gpu].next_part(self._generation[gpu])
        gpus = (*self.topology.gpus[:gpu], part, *self.topology.gpus[gpu + 1 :])
        self.topology = replace(self.topology, gpus=gpus)
        self.plant.replace(gpu)
        self.parts.append(Part(part, self.now))

    def stop_jobs(self, nodes: NDArray[np.int64], state: JobState) -> str:
        """End the jobs on some nodes; returns the id of one, "" where none ran."""
        jobs = {id(job): job for node in nodes.tolist() if (job := self.board.job_on(node))}
        for job in jobs.values():
            self.board.stop(job, self.now, state)
        return next((job.job_id for job in jobs.values()), "")

    def begin_step(self, now: float) -> None:
        """Move the clock; faults act between this and `finish_step`."""
        self.now = now
        self.effects = self._no_effects()
        self.load = self.board.advance(now)

    def finish_step(self, dt: float) -> None:
        """Let the hardware follow load and effects for `dt` seconds."""
        self.plant.step(self.load, self.effects, dt)
        self.machines.step(self.load, self.plant.lost, self.effects, dt)
        self.mounts.step(self.load, self.load.busy, self.effects, dt)
        over = self.mounts.pressure - 1.0
        if over > 0:
            waiting = self.load.writing | self.load.reading | (self.load.busy > 0)
            self.machines.stall(waiting, min(0.1 * over, 0.9), dt)
        for node in self.board.take_changes():
            if not self.effects.down[node]:
                self.inventory_event(node)

    @property
    def events_waiting(self) -> int:
        """How many events wait to be taken."""
        return len(self._events)

    def take_events(self) -> tuple[NodeEvent, ...]:
        """Events since the last call, in order."""
        events, self._events = tuple(self._events), []
        return events

    def kernel_line(
        self, node: int, message: str, kind: EntityKind, entity: str, delay_s: float = 0.0
    ) -> None:
        """The kernel of a node logs a message about one of its entities.

        Raises:
            ValueError: The message is none that the kernel-log reader knows.
        """
        found = parse_line(message)
        if found is None:
            raise ValueError(f"not a recognised kernel line: {message!r}")
        self._line_number[node] += 1
        event = Event(
            id=f"kmsg:{self.boot_ids[node]}:{self._line_number[node]}",
            kind=EventKind.KERNEL_LOG,
            observed_at=self.now + delay_s,
            entity_kind=kind,
            entity=entity,
            family=found.family.value,
            xid=found.xid,
            pci_bus_id=found.pci_bus_id,
            pid=found.pid,
            process=found.process,
            severity=found.severity.value,
            device=found.device,
            text=found.text,
        )
        self._append(node, event)

    def gpu_line(self, gpu: int, message: str, delay_s: float = 0.0) -> None:
        """The kernel logs a message about a GPU."""
        part = self.topology.gpus[gpu]
        self.kernel_line(part.node, message, EntityKind.GPU, part.gpu_uuid, delay_s)

    def other_event(
        self,
        node: int,
        kind: EventKind,
        entity_kind: EntityKind = EntityKind.NODE,
        entity: str = "",
        **facts: Attribute,
    ) -> None:
        """An event that is no kernel line; `facts` become its attributes."""
        self._other_number += 1
        event = Event(
            id=f"{kind}:{self.boot_ids[node]}:{self._other_number}",
            kind=kind,
            observed_at=self.now,
            entity_kind=entity_kind,
            entity=entity,
            attributes=dict(facts),
        )
        self._append(node, event)

    def inventory_event(self, node: int) -> None:
        """The node says what it has; a lost GPU stays in it until another one takes its slot."""
        self._other_number += 1
        event = Event(
            id=f"{EventKind.INVENTORY}:{self.boot_ids[node]}:{self._other_number}",
            kind=EventKind.INVENTORY,
            observed_at=self.now,
            inventory=self._inventory(node),
        )
        self._append(node, event)

    def _inventory(self, node: int) -> Inventory:
        per_node = self.topology.gpus_per_node
        rows = range(node * per_node, (node + 1) * per_node)
        gpu, job = self.parameters.gpu, self.board.job_on(node)
        return Inventory(
            gpus=tuple(
                GpuIdentity(
                    gpu_uuid=part.gpu_uuid,
                    pci_bus_id=part.pci_bus_id,
                    serial=part.serial,
                    index=part.index,
                    model=gpu.model,
                    driver_version=gpu.driver_version,
                    nics=(part.nic,),
                )
                for part in (self.topology.gpus[row] for row in rows)
            ),
            nics=tuple(self.topology.gpus[row].nic for row in rows),
            disks=DISKS,
            gpus_expected=per_node,
            labels={
                "rack": self.topology.racks[node],
                "leaf": self.topology.leaves[node],
                "power": self.topology.powers[node],
                "mounts": ";".join(EXPORTS),
            },
            jobs=()
            if job is None
            else tuple(
                GpuJob(
                    gpu_uuid=self.topology.gpus[row].gpu_uuid,
                    kind=JobKind.SLURM,
                    job_id=job.job_id,
                )
                for row in rows
            ),
        )

    def _append(self, node: int, event: Event) -> None:
        if self.effects.down[node]:
            return
        self._events.append(NodeEvent(self.topology.nodes[node], self.boot_ids[node], event))

    def _no_effects(self) -> Effects:
        return Effects(
            len(self.topology.gpus),
            len(self.topology.nodes),
            self.parameters.gpu.power_limit_watts,
            len(NODE_SCHEMA.columns),
        )
