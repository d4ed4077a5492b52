"""Hosts, NICs and disks: what they show while jobs compute, talk and write checkpoints."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.columns import Columns
from gpuwarden_models.simulator.effects import Effects
from gpuwarden_models.simulator.jobs import Load
from gpuwarden_models.simulator.measured import simulated_schema
from gpuwarden_models.simulator.topology import DISKS, EXPORTS, Topology
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

# InfiniBand states as sysfs numbers them: 4 ACTIVE, 1 DOWN; physical 5 LinkUp, 3 Disabled.
_ACTIVE, _DOWN, _LINK_UP, _DISABLED = 4.0, 1.0, 5.0, 3.0
_NDR_BYTES_PER_SECOND = 50e9  # 400 Gb/s, NVIDIA ConnectX-7

_MEMORY_BYTES = 2.0**41

NODE_SCHEMA: Schema = simulated_schema(EntityKind.NODE)
NIC_SCHEMA: Schema = simulated_schema(EntityKind.NIC)
DISK_SCHEMA: Schema = simulated_schema(EntityKind.DISK)


class Machines:
    """State of nodes, NICs and disks.

    Attributes:
        node: Values in NODE_SCHEMA's columns, shape (columns, nodes).
        nic: Values in NIC_SCHEMA's columns, one NIC a GPU.
        disk: Values in DISK_SCHEMA's columns, len(DISKS) a node.
    """

    def __init__(self, topology: Topology, rng: np.random.Generator) -> None:
        """Machines that have been up for a while."""
        self._topology, self._rng = topology, rng
        nodes = len(topology.nodes)
        self.node = Columns(NODE_SCHEMA, nodes)
        self.nic = Columns(NIC_SCHEMA, len(topology.gpus))
        self.disk = Columns(DISK_SCHEMA, nodes * len(DISKS))
        self._down: Flags = np.zeros(len(topology.gpus), dtype=np.bool_)
        self.node["node_uptime_seconds"][:] = rng.uniform(86_400.0, 40 * 86_400.0, nodes)
        self.node["node_gpus_expected"][:] = topology.gpus_per_node
        self.nic["nic_rate_bytes_per_second"][:] = _NDR_BYTES_PER_SECOND
        self._set_constants()

    def _set_constants(self) -> None:
        """What a sound machine shows all the time: 0 would be a fault of its own."""
        self.node["node_clock_synchronised"][:] = 1.0
        self.node["node_clock_error_seconds"][:] = 1e-4
        self.node["node_memory_total_bytes"][:] = _MEMORY_BYTES
        self.node["node_nfs_mounts"][:] = len(EXPORTS)
        self.disk["disk_available_spare_ratio"][:] = 1.0
        self.disk["disk_endurance_used_ratio"][:] = 0.03
        self.disk["disk_temperature_celsius"][:] = 41.0

    def step(self, load: Load, lost: Flags, effects: Effects, dt: float) -> None:
        """Advance all machines by `dt` seconds."""
        self._step_nodes(load.busy, load.writing, lost, dt)
        self.node["node_nvml_call_age_seconds"][:] = effects.driver_away_s
        used = load.gpu_watts.reshape(load.writing.size, -1) > 0
        self.node["node_gpu_processes"][:] = used.sum(axis=1)
        self._step_nics(load.gpu, effects.ports_down, dt)
        self._step_disks(load.writing, dt)

    def restart(self, nodes: NDArray[np.int64]) -> None:
        """Nodes booted: what their kernels count starts anew."""
        per_node = self._topology.gpus_per_node
        for columns, each in ((self.node, 1), (self.nic, per_node), (self.disk, len(DISKS))):
            rows = (nodes[:, None] * each + np.arange(each)).ravel()
            for metric in columns.counters:
                columns[metric][rows] = 0.0
        self.node["node_uptime_seconds"][nodes] = 0.0

    def stall(self, nodes: Flags, share: float, dt: float) -> None:
        """Programs on some nodes wait for storage, `share` of the time."""
        self.node["node_pressure_io_seconds_total"] += dt * share * nodes
        self.node["node_pressure_io_full_seconds_total"] += 0.5 * dt * share * nodes
        self.node["node_processes_blocked"] += np.round(12.0 * share) * nodes

    def _step_nodes(self, busy: Floats, writing: Flags, lost: Flags, dt: float) -> None:
        node, rng, count = self.node, self._rng, busy.size
        visible = self._topology.gpus_per_node - lost.reshape(count, -1).sum(axis=1)
        node["node_gpus_visible"][:] = visible
        node["node_gpus_on_pci"][:] = visible
        node["node_uptime_seconds"] += dt
        node["node_load1"][:] = 2.0 + 60.0 * busy + rng.normal(0.0, 1.5, count).clip(-2.0, None)
        node["node_memory_available_bytes"][:] = _MEMORY_BYTES * (0.95 - 0.3 * busy)
        node["node_processes_running"][:] = rng.poisson(1.0 + 40.0 * busy)
        node["node_processes_blocked"][:] = rng.poisson(0.1 + 6.0 * writing)
        node["node_interrupts_total"] += rng.poisson((8e3 + 1.6e5 * busy) * dt)
        node["node_context_switches_total"] += rng.poisson((1.5e4 + 2.2e5 * busy) * dt)
        node["node_pages_out_bytes_total"] += dt * (2e5 + 2.5e9 * writing)
        node["node_pressure_cpu_seconds_total"] += dt * (0.002 + 0.01 * busy)
        node["node_pressure_io_seconds_total"] += dt * (0.001 + 0.15 * writing)
        node["node_pressure_io_full_seconds_total"] += dt * (0.0005 + 0.05 * writing)
        node["node_pressure_memory_seconds_total"] += dt * 1e-5
        node["node_pressure_memory_full_seconds_total"] += dt * 1e-6

    def _step_nics(self, load: Floats, ports_down: Flags, dt: float) -> None:
        nic, rng = self.nic, self._rng
        up = ~ports_down
        nic["nic_port_state"][:] = np.where(up, _ACTIVE, _DOWN)
        nic["nic_port_physical_state"][:] = np.where(up, _LINK_UP, _DISABLED)
        nic["nic_link_downed_total"] += ports_down & ~self._down
        self._down = ports_down.copy()
        rate = (0.32 * load + 1e-5) * _NDR_BYTES_PER_SECOND * rng.uniform(0.8, 1.1, load.size)
        nic["nic_received_bytes_total"] += np.floor(up * rate * dt)
        nic["nic_transmitted_bytes_total"] += np.floor(up * rate * dt)
        nic["nic_transmit_wait_total"] += rng.poisson(up * load * 2e4 * dt)
        nic["nic_symbol_errors_total"] += rng.poisson(up * 1e-6 * dt, load.size)

    def _step_disks(self, writing: Flags, dt: float) -> None:
        disk, rng = self.disk, self._rng
        spread = np.repeat(writing.astype(np.float64), len(DISKS))
        writes = rng.poisson((20.0 + 9e3 * spread) * dt)
        reads = rng.poisson(np.full(spread.size, 30.0 * dt))
        disk["disk_reads_completed_total"] += reads
        disk["disk_read_bytes_total"] += reads * 131_072.0
        disk["disk_read_seconds_total"] += reads * 9e-5
        disk["disk_writes_completed_total"] += writes
        disk["disk_written_bytes_total"] += writes * 131_072.0
        disk["disk_write_seconds_total"] += writes * 2e-4
        disk["disk_in_flight"][:] = rng.poisson(0.05 + 20.0 * spread)
        disk["disk_io_seconds_total"] += dt * (0.003 + 0.8 * spread)
        disk["disk_io_weighted_seconds_total"] += dt * (0.004 + 18.0 * spread)
