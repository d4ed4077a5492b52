"""The engine: clock, world and faults make frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_models.simulator.active import ActiveFault, row_of
from gpuwarden_models.simulator.faults import ADVANCE, END, end_fault, take_out
from gpuwarden_models.simulator.labels import Label, labels_of
from gpuwarden_models.simulator.machines import DISK_SCHEMA, NIC_SCHEMA, NODE_SCHEMA
from gpuwarden_models.simulator.parameters import DRAINED_AFTER_S, Parameters
from gpuwarden_models.simulator.plant import GPU_SCHEMA
from gpuwarden_models.simulator.shows import before, shows
from gpuwarden_models.simulator.storage import MOUNT_SCHEMA
from gpuwarden_models.simulator.story import ScriptedFault
from gpuwarden_models.simulator.topology import DISKS, EXPORTS, Topology, build_topology
from gpuwarden_models.simulator.world import Part, World
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Setting:
    """What a simulation is started with.

    Attributes:
        nodes: Number of nodes.
        gpus_per_node: 1 to 8.
        seed: Equal settings give equal frames, byte for byte.
        interval_s: Time between frames.
        start: Epoch seconds of the first frame.
        salt: Goes into boot ids and so into event ids: give a fresh one to each run that plays into
            a server, so that two runs never share an event id. Empty takes the seed.
        parameters: Numbers of the physics.
    """

    nodes: int
    gpus_per_node: int = 8
    seed: int = 0
    interval_s: float = 30.0
    start: float = 1_772_323_200.0  # 2026-03-01T00:00:00Z
    salt: str = ""
    parameters: Parameters = field(default_factory=Parameters)


class Simulation:
    """Makes one frame after another; faults may be scripted beforehand or injected between frames.

    `inject` and `repair` may be called from another thread.
    """

    def __init__(self, setting: Setting, faults: Iterable[ScriptedFault] = ()) -> None:
        """A fleet in steady state.

        Raises:
            ValueError: A size is out of range, or a fault names an entity that is not there.
        """
        if setting.interval_s <= 0:
            raise ValueError(f"interval_s is {setting.interval_s}: use a positive number")
        self.setting = setting
        topology = build_topology(setting.nodes, setting.gpus_per_node, setting.seed)
        salt = setting.salt or str(setting.seed)
        self._world = World(topology, setting.parameters, setting.seed, setting.start, salt)
        self._noise = np.random.default_rng([setting.seed, 1])
        self._silent_until: NDArray[np.float64] = np.zeros(setting.nodes)
        self._lock = Lock()
        self._waiting: list[ActiveFault] = []
        self._active: list[ActiveFault] = []
        self._past: list[ActiveFault] = []
        self._number = 0
        self._keys = _Keys(topology)
        self._former_keys: list[_Keys] = []  # kept, since whoever reads frames may know them by id
        for fault in faults:
            self._waiting.append(ActiveFault(fault, row_of(fault, self.topology)))

    @property
    def topology(self) -> Topology:
        """What there is now: parts are replaced."""
        return self._world.topology

    @property
    def parts(self) -> tuple[Part, ...]:
        """All GPUs so far, those first that were there from the start."""
        return tuple(self._world.parts)

    @property
    def now(self) -> float:
        """Epoch seconds of the latest frame."""
        return self._world.now

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the latest frame."""
        return self._world.now - self.setting.start

    def inject(self, fault: ScriptedFault) -> None:
        """Start a fault; an `at_s` in the past starts it with the next frame.

        Raises:
            ValueError: The fleet has no such entity.
        """
        row = row_of(fault, self.topology)
        with self._lock:
            now_s = self.elapsed_s
            self._waiting.append(ActiveFault(replace(fault, at_s=max(fault.at_s, now_s)), row))

    def repair(self, entity: str) -> int:
        """End all faults on an entity with the next frame; returns how many."""
        with self._lock:
            ended = 0
            for active in (*self._active, *self._waiting):
                if entity in (active.fault.entity, active.entity):
                    active.fault = replace(
                        active.fault, duration_s=max(self.elapsed_s - active.fault.at_s, 0.0)
                    )
                    ended += 1
            return ended

    def frames(self, count: int) -> Iterator[Frame]:
        """The next `count` frames."""
        for _ in range(count):
            yield self.next_frame()

    def next_frame(self) -> Frame:
        """Advance the clock by one interval and read everything."""
        with self._lock:
            first = self._number == 0
            world, dt = self._world, 0.0 if first else self.setting.interval_s
            world.begin_step(self.setting.start + self._number * self.setting.interval_s)
            self._number += 1
            if first:
                self._introduce()
            self._run_faults(dt)
            world.finish_step(dt)
            return self._frame()

    def labels(self) -> tuple[Label, ...]:
        """The truth about all faults so far and to come, in order of onset."""
        with self._lock:
            faults = [*self._past, *self._active, *self._waiting]
        ordered = sorted(faults, key=lambda f: (f.fault.at_s, f.fault.entity, f.fault.name))
        return tuple(
            label
            for active in ordered
            for label in labels_of(active, self.setting.start, self.topology)
        )

    def board_jobs(self) -> tuple[JobView, ...]:
        """All jobs so far, for jobs.csv."""
        board = self._world.board
        return tuple(
            JobView(
                job.job_id,
                job.user,
                tuple(self.topology.nodes[node] for node in job.nodes),
                job.start,
                None if job in board.running else job.end,
                job.state.value,
            )
            for job in (*board.ended, *board.running)
        )

    def _introduce(self) -> None:
        for node in range(len(self.topology.nodes)):
            self._world.other_event(node, EventKind.NODE_BOOT)
            self._world.inventory_event(node)

    def _run_faults(self, dt: float) -> None:
        now_s = self.elapsed_s
        due = [active for active in self._waiting if active.fault.at_s <= now_s]
        self._waiting = [active for active in self._waiting if active.fault.at_s > now_s]
        for active in due:
            if active.fault.kind.entity_kind is EntityKind.GPU:
                active.entity = self.topology.gpus[active.row].gpu_uuid
        self._active += due
        self._world.come_back()
        for active in tuple(self._active):
            active.elapsed_s = now_s - active.fault.at_s
            if active.elapsed_s >= active.fault.duration_s:
                if (ends := END.get(active.fault.name)) is not None:
                    ends(active, self._world)
                end_fault(active, self._world)
                self._active.remove(active)
                self._past.append(active)
            else:
                self._advance(active, dt)
                noticed = active.elapsed_s >= active.fault.needed_after_s + DRAINED_AFTER_S
                if active.fault.drained and noticed and active.once("taken out"):
                    take_out(active, self._world)

    def _advance(self, active: ActiveFault, dt: float) -> None:
        """One step of a fault; of what needs action it is watched whether anything shows."""
        world, advance = self._world, ADVANCE[active.fault.name]
        if active.shows_at is not None or not active.fault.kind.action_needed:
            advance(active, world, dt)
            return
        was = before(world)
        advance(active, world, dt)
        if shows(active, world, was, dt):
            active.shows_at = world.now

    def _frame(self) -> Frame:
        world, topology = self._world, self.topology
        if self._keys.topology is not topology:
            self._former_keys.append(self._keys)
            self._keys = _Keys(topology)
        heard = self._heard()
        answers = heard & (world.effects.driver_away_s == 0)
        hosts = world.machines.node.values.copy()
        hosts[world.effects.host_missing] = np.nan
        gpu_node = topology.gpu_node
        disk_node = np.repeat(np.arange(len(topology.nodes)), len(DISKS))
        mount_node = np.repeat(np.arange(len(topology.nodes)), len(EXPORTS))
        tables = (
            FrameTable(
                GPU_SCHEMA,
                self._keys.gpus,
                self._keys.gpus,
                gpu_node,
                world.plant.read(),
                answers[gpu_node] & ~world.effects.mute,
            ),
            FrameTable(
                NIC_SCHEMA,
                self._keys.nics,
                topology.nic_wire_keys,
                gpu_node,
                world.machines.nic.values.copy(),
                heard[gpu_node],
            ),
            FrameTable(
                DISK_SCHEMA,
                self._keys.disks,
                self._keys.disk_wire,
                disk_node,
                world.machines.disk.values.copy(),
                heard[disk_node],
            ),
            FrameTable(
                MOUNT_SCHEMA,
                self._keys.mounts,
                self._keys.mount_wire,
                mount_node,
                world.mounts.values.values.copy(),
                heard[mount_node],
            ),
            FrameTable(
                NODE_SCHEMA,
                topology.nodes,
                ("",) * len(topology.nodes),
                np.arange(len(topology.nodes)),
                hosts,
                heard,
            ),
        )
        late = frozenset(np.flatnonzero(world.effects.late).tolist())
        return Frame(world.now, topology.nodes, world.boot_ids, tables, world.take_events(), late)

    def _heard(self) -> NDArray[np.bool_]:
        rates, count = self.setting.parameters.rates, len(self.topology.nodes)
        now, interval = self._world.now, self.setting.interval_s
        begins = self._noise.random(count) < rates.scrape_outages_per_day * interval / 86_400.0
        length = self._noise.uniform(*rates.scrape_outage_s, count)
        self._silent_until = np.where(begins, now + length, self._silent_until)
        lost = self._noise.random(count) < rates.scrape_loss
        effects = self._world.effects
        silent = lost | (self._silent_until > now) | effects.silent | effects.down
        return ~np.asarray(silent, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class JobView:
    """One row of jobs.csv; `end` is None while it runs."""

    job_id: str
    user: str
    nodes: tuple[str, ...]
    start: float
    end: float | None
    state: str


class _Keys:
    """Names of the fleet's entities in row order, made once."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.gpus = tuple(gpu.gpu_uuid for gpu in topology.gpus)
        self.nics = tuple(topology.nic_row)
        self.disks = tuple(f"{node}/{disk}" for node in topology.nodes for disk in DISKS)
        self.disk_wire = DISKS * len(topology.nodes)
        self.mount_wire = tuple(EXPORTS) * len(topology.nodes)
        self.mounts = tuple(f"{node}/{point}" for node in topology.nodes for point in EXPORTS)
