"""Hosts, NICs and disks: what they show while jobs compute, talk and write checkpoints."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.columns import Columns
from gpuwarden_models.simulator.effects import Effects
from gpuwarden_models.simulator.jobs import Load
from gpuwarden_models.simulator.measured import simulated_schema
from gpuwarden_models.simulator.parameters import Parameters
from gpuwarden_models.simulator.topology import DISKS, EXPORTS, Topology
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

# InfiniBand states as sysfs numbers them: 4 ACTIVE, 1 DOWN; physical 5 LinkUp, 3 Disabled.
_ACTIVE, _DOWN, _LINK_UP, _DISABLED = 4.0, 1.0, 5.0, 3.0
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

    def __init__(
        self, topology: Topology, parameters: Parameters, rng: np.random.Generator
    ) -> None:
        """Machines that have been up for a while."""
        self._topology, self._parameters, self._rng = topology, parameters, rng
        self._fault_counts, self._others = rng.spawn(2)
        nodes = len(topology.nodes)
        self.node = Columns(NODE_SCHEMA, nodes)
        self.nic = Columns(NIC_SCHEMA, len(topology.gpus))
        self.disk = Columns(DISK_SCHEMA, nodes * len(DISKS))
        self._down: Flags = np.zeros(len(topology.gpus), dtype=np.bool_)
        self.node["node_uptime_seconds"][:] = rng.uniform(86_400.0, 40 * 86_400.0, nodes)
        self.node["node_gpus_expected"][:] = topology.gpus_per_node
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
        self._press_nodes(load.busy, effects, dt)
        self.node["node_nvml_call_age_seconds"][:] = effects.driver_away_s
        used = load.gpu_watts.reshape(load.writing.size, -1) > 0
        self.node["node_gpu_processes"][:] = used.sum(axis=1)
        self._step_nics(load.gpu, effects, dt)
        self._step_disks(load.writing, dt)
        self._wear_disks(effects, dt)

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

    def _press_nodes(self, busy: Floats, effects: Effects, dt: float) -> None:
        """What host faults take from the readings of a sound host, and add to them."""
        node, fallen = self.node, effects.host_collapse
        corrected = self._parameters.rates.host_memory_corrected_per_hour
        rate = corrected + effects.memory_corrected_per_hour
        node["node_memory_corrected_errors_total"] += self._others.poisson(rate * dt / 3600.0)
        if not (fallen.any() or effects.pages_out.any()):
            return
        left = 1.0 - fallen
        node["node_interrupts_total"] -= np.floor(fallen * (8e3 + 1.6e5 * busy) * dt * 0.95)
        node["node_context_switches_total"] -= np.floor(fallen * (1.5e4 + 2.2e5 * busy) * dt * 0.95)
        node["node_processes_running"][:] = np.round(node["node_processes_running"] * left)
        node["node_processes_blocked"] += np.round(40.0 * fallen)
        node["node_load1"] += 80.0 * fallen
        node["node_pages_out_bytes_total"] += np.floor(dt * effects.pages_out)
        short = (effects.pages_out > 0) * fallen
        node["node_memory_available_bytes"] -= short * 0.9 * node["node_memory_available_bytes"]
        node["node_swap_used_bytes"][:] = short * 0.05 * _MEMORY_BYTES
        node["node_pressure_memory_seconds_total"] += dt * 0.8 * short
        node["node_pressure_memory_full_seconds_total"] += dt * 0.5 * short
        node["node_pressure_io_seconds_total"] += dt * 0.3 * short
        node["node_pressure_cpu_seconds_total"] += dt * 0.3 * fallen

    def _step_nics(self, load: Floats, effects: Effects, dt: float) -> None:
        nic, rng, ports_down = self.nic, self._rng, effects.ports_down
        up, full = ~ports_down, self._parameters.gpu.nic_bytes_per_second
        nic["nic_port_state"][:] = np.where(up, _ACTIVE, _DOWN)
        nic["nic_port_physical_state"][:] = np.where(up, _LINK_UP, _DISABLED)
        nic["nic_link_downed_total"] += ports_down & ~self._down
        self._down = ports_down.copy()
        rate = (0.32 * load + 1e-5) * full * rng.uniform(0.8, 1.1, load.size)
        rate = np.minimum(rate, 0.9 * full * effects.rate_share) * effects.rate_share
        nic["nic_rate_bytes_per_second"][:] = full * effects.rate_share
        nic["nic_received_bytes_total"] += np.floor(up * rate * dt)
        nic["nic_transmitted_bytes_total"] += np.floor(up * rate * dt)
        nic["nic_transmit_wait_total"] += rng.poisson(up * load * 2e4 * dt)
        symbols = self._parameters.rates.nic_symbol_errors_per_hour / 3600.0
        nic["nic_symbol_errors_total"] += rng.poisson(up * symbols * dt, load.size)
        if effects.symbol_errors_per_hour.any() or effects.recoveries_per_hour.any():
            hours, more = up * dt / 3600.0, self._fault_counts.poisson
            errors = more(effects.symbol_errors_per_hour * hours)
            nic["nic_symbol_errors_total"] += errors
            nic["nic_receive_errors_total"] += self._fault_counts.binomial(errors, 0.02)
            nic["nic_link_error_recovery_total"] += more(effects.recoveries_per_hour * hours)

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
        self._moved = (reads, writes)

    def _wear_disks(self, effects: Effects, dt: float) -> None:
        """Trouble of each node's first drive."""
        first = np.arange(effects.disk_gone.size) * len(DISKS)
        self.node["node_nvme_controllers_down"][:] = effects.disk_gone
        slower, errors = effects.disk_slower, effects.media_errors_per_hour
        if not (slower.any() or errors.any() or effects.disk_gone.any()):
            return
        disk, (reads, writes) = self.disk, self._moved
        disk["disk_read_seconds_total"][first] += slower * reads[first] * 9e-5
        disk["disk_write_seconds_total"][first] += slower * writes[first] * 2e-4
        disk["disk_io_seconds_total"][first] += np.minimum(0.02 * slower, 0.2) * dt
        disk["disk_in_flight"][first] += np.round(2.0 * slower)
        found = self._fault_counts.poisson(errors * dt / 3600.0)
        disk["disk_media_errors_total"][first] += found
        disk["disk_error_log_entries_total"][first] += found
        worn = errors > 0
        disk["disk_endurance_used_ratio"][first[worn]] = 0.9 + 0.02 * slower[worn]
        spare = np.clip(1.0 - 0.12 * slower[worn], 0.02, 1.0)
        disk["disk_available_spare_ratio"][first[worn]] = spare
        disk["disk_critical_warning"][first[worn]] = np.where(spare < 0.1, 1.0, 0.0)

    def new_disk(self, node: int) -> None:
        """The first drive of a node is another one."""
        row = node * len(DISKS)
        for metric in ("disk_media_errors_total", "disk_error_log_entries_total"):
            self.disk[metric][row] = 0.0
        self.disk["disk_critical_warning"][row] = 0.0
        self.disk["disk_available_spare_ratio"][row] = 1.0
        self.disk["disk_endurance_used_ratio"][row] = 0.0
