"""What a diagnosis reads: readings of all planes side by side on one grid of times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_wire.metrics import EntityKind

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

NEEDED: Mapping[EntityKind, tuple[str, ...]] = MappingProxyType(
    {
        EntityKind.GPU: (
            "gpu_utilization_ratio",
            "gpu_power_watts",
            "gpu_power_limit_watts",
            "gpu_sm_clock_hertz",
            "gpu_temperature_celsius",
            "gpu_clock_event_reasons",
            "gpu_thermal_slowdown_seconds_total",
            "gpu_power_brake_seconds_total",
            "gpu_memory_used_bytes",
            "gpu_pcie_link_width",
            "gpu_pcie_link_width_max",
            "gpu_pcie_link_generation",
            "gpu_pcie_link_generation_max",
        ),
        EntityKind.NIC: (
            "nic_port_state",
            "nic_rate_bytes_per_second",
            "nic_transmitted_bytes_total",
            "nic_transmit_wait_total",
            "nic_symbol_errors_total",
            "nic_receive_errors_total",
            "nic_link_error_recovery_total",
            "nic_transmit_discards_total",
            "nic_out_of_sequence_total",
            "nic_packet_sequence_errors_total",
            "nic_local_ack_timeouts_total",
            "nic_adaptive_retransmits_total",
        ),
        EntityKind.NODE: (
            "node_load1",
            "node_processes_running",
            "node_processes_blocked",
            "node_interrupts_total",
            "node_context_switches_total",
            "node_pressure_cpu_seconds_total",
            "node_pressure_io_seconds_total",
            "node_pressure_memory_seconds_total",
            "node_job_steps_total",
            "node_job_step_seconds",
        ),
        EntityKind.DISK: (
            "disk_reads_completed_total",
            "disk_read_bytes_total",
            "disk_read_seconds_total",
            "disk_writes_completed_total",
            "disk_written_bytes_total",
            "disk_write_seconds_total",
            "disk_io_seconds_total",
            "disk_media_errors_total",
        ),
        EntityKind.MOUNT: (
            "mount_read_bytes_total",
            "mount_written_bytes_total",
            "mount_operations_total",
            "mount_round_trip_seconds_total",
            "mount_queue_seconds_total",
            "mount_execute_seconds_total",
            "mount_retransmits_total",
            "mount_major_timeouts_total",
            "mount_slots_in_use_ratio",
            "mount_backlog_requests",
        ),
    }
)
"""Metrics that a diagnosis reads. Each may be missing: what it would have told is then not said."""


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """Readings of all entities of one kind.

    Attributes:
        kind: Which.
        keys: Entity keys, unique over the fleet.
        node: Row of each entity's node in `Window.nodes`, shape (entities,).
        rail: Number of each entity among those of its node, -1 where it is not known: a NIC's
            rail, a GPU's index; shape (entities,).
        values: By metric, shape (entities, steps): a gauge's mean in the step, a state's last
            value, a counter's growth a second with resets guarded. NaN where it was not read.
    """

    kind: EntityKind
    keys: tuple[str, ...]
    node: Ints
    rail: Ints
    values: Mapping[str, Floats]

    def of(self, metric: str, steps: int) -> Floats:
        """One metric, all NaN where nobody reads it; shape (entities, steps)."""
        found = self.values.get(metric)
        return np.full((len(self.keys), steps), np.nan) if found is None else found


@dataclass(frozen=True, slots=True, eq=False)
class JobSpan:
    """A job as it ran in the window.

    Attributes:
        job: "KIND:ID".
        nodes: Rows of its nodes.
        gpus: Keys of its GPUs; empty takes all of its nodes.
        since: Epoch seconds.
        until: Epoch seconds, None while it runs.
        step_seconds: What a training step took by the job's own word, shape (steps,), NaN where
            it said nothing; None where it never does.
    """

    job: str
    nodes: Ints
    gpus: frozenset[str]
    since: float
    until: float | None
    step_seconds: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Everything side by side.

    Attributes:
        times: Epoch seconds at which each step begins, shape (steps,).
        step_s: Length of a step, seconds.
        first: Number of the first step that is asked about; those before are the past.
        nodes: Names.
        strips: By kind; a kind that is missing was not read.
        places: Rows of the nodes behind each place, by the place's key ("leaf:NAME").
        jobs: All that ran meanwhile.
    """

    times: Floats
    step_s: float
    first: int
    nodes: tuple[str, ...]
    strips: Mapping[EntityKind, Strip]
    places: Mapping[str, Ints]
    jobs: tuple[JobSpan, ...]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.times.size

    def strip(self, kind: EntityKind) -> Strip:
        """Readings of a kind; empty where there are none."""
        found = self.strips.get(kind)
        if found is not None:
            return found
        none: Ints = np.zeros(0, dtype=np.int64)
        return Strip(kind, (), none, none, {})

    def metric(self, kind: EntityKind, name: str) -> Floats:
        """One metric, shape (entities, steps)."""
        return self.strip(kind).of(name, self.steps)

    def rows_of(self, kind: EntityKind, job: JobSpan | None) -> Ints:
        """Rows of a kind's entities on a job's nodes; of all for None."""
        strip = self.strip(kind)
        if job is None:
            return np.arange(len(strip.keys))
        on = np.isin(strip.node, job.nodes)
        if kind is EntityKind.GPU and job.gpus:
            on &= np.array([key in job.gpus for key in strip.keys], dtype=np.bool_)
        return np.flatnonzero(on)

    def runs(self, job: JobSpan) -> Flags:
        """Steps in which a job ran, shape (steps,)."""
        began: Flags = self.times + self.step_s > job.since
        return began if job.until is None else began & (self.times < job.until)

    def until(self, last: int) -> Window:
        """The window as it was seen when step `last` ended."""
        kept = slice(0, last + 1)
        strips = {
            kind: replace(one, values={name: v[:, kept] for name, v in one.values.items()})
            for kind, one in self.strips.items()
        }
        jobs = tuple(
            replace(job, step_seconds=None if job.step_seconds is None else job.step_seconds[kept])
            for job in self.jobs
        )
        return replace(self, times=self.times[kept], strips=strips, jobs=jobs)
