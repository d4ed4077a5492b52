"""The GPUs' physics: power, heat, clocks and error counters, all GPUs in one step."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.effects import Effects
from gpuwarden_models.simulator.jobs import Load
from gpuwarden_models.simulator.measured import simulated_schema
from gpuwarden_models.simulator.parameters import Parameters
from gpuwarden_models.simulator.topology import Topology
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

# Bits of nvmlClocksEventReasons (nvml.h): GPU idle, software power cap, software thermal slowdown,
# hardware thermal slowdown.
_IDLE, _POWER_CAP, _SOFTWARE_THERMAL, _HARDWARE_THERMAL = 0x1, 0x4, 0x20, 0x40

_GENERATION = 5.0

GPU_SCHEMA: Schema = simulated_schema(EntityKind.GPU)
_PRESENT = [column.name for column in GPU_SCHEMA.columns].index("gpu_present")


_SINCE_BOOT = (
    "gpu_energy_joules_total",
    "gpu_thermal_slowdown_seconds_total",
    "gpu_power_brake_seconds_total",
    "gpu_ecc_corrected_volatile_total",
    "gpu_ecc_uncorrected_volatile_total",
    "gpu_pcie_replay_total",
    "gpu_nvlink_errors_total",
    "gpu_row_remap_pending",  # a reset maps the rows that waited
)


class GpuPlant:
    """State of all GPUs; `values` is what NVML would read, in GPU_SCHEMA's columns.

    Attributes:
        values: float64, shape (columns, GPUs).
        lost: GPUs off the bus, shape (GPUs,).
    """

    def __init__(
        self, topology: Topology, parameters: Parameters, rng: np.random.Generator, load: Load
    ) -> None:
        """GPUs at the temperature that `load` settles at."""
        self._gpu, self._rates, self._rng = parameters.gpu, parameters.rates, rng
        # Background counts and those of faults draw apart: a fault changes nobody else's numbers.
        self._counts, self._fault_counts = rng.spawn(2)
        count = len(topology.gpus)
        racks, rack_of_node = np.unique(topology.racks, return_inverse=True)
        rack = rack_of_node[topology.gpu_node]
        self._inlet = rng.uniform(*self._gpu.inlet_celsius, racks.size)[rack]
        self._inlet = self._inlet + rng.normal(0.0, 0.7, count)
        self._resistance = rng.normal(*self._gpu.thermal_resistance, count).clip(0.048, 0.066)
        self._tau = rng.uniform(*self._gpu.thermal_time_constant_s, count)
        self._idle_watts = rng.uniform(*self._gpu.idle_power_watts, count)
        self._ecc_rate = self._heavy(
            self._rates.ecc_corrected_per_hour, self._rates.ecc_corrected_sigma, count
        )
        self._replay_rate = self._heavy(
            self._rates.pcie_replays_per_hour, self._rates.tail_sigma, count
        )
        self._link_rate = self._heavy(
            self._rates.nvlink_errors_per_hour, self._rates.tail_sigma, count
        )
        self._noise: Floats = np.zeros(count)
        self.lost: Flags = np.zeros(count, dtype=np.bool_)
        self.values: Floats = np.zeros((len(GPU_SCHEMA.columns), count))
        self._column: dict[str, Floats] = {
            column.name: self.values[i] for i, column in enumerate(GPU_SCHEMA.columns)
        }
        self._set_constants()
        watts = self._wanted_watts(load)
        self._heat: Floats = self._inlet + self._resistance * watts
        self["gpu_energy_joules_total"][:] = rng.uniform(1e9, 2e10, count)

    def __getitem__(self, metric: str) -> Floats:
        """One metric of all GPUs, a view to read and write."""
        return self._column[metric]

    def __setitem__(self, metric: str, values: Floats) -> None:
        """Overwrite one metric of all GPUs in place; makes `plant[metric] += x` work."""
        self._column[metric][:] = values

    def read(self) -> Floats:
        """What an agent reads now, a copy; of a lost GPU only that it is not present."""
        values = self.values.copy()
        values[:, self.lost] = np.nan
        values[_PRESENT, self.lost] = 0.0
        return values

    def repair(self, gpu: int) -> None:
        """The GPU returns sound: flags cleared, volatile counters at 0 as after a driver reload."""
        self.lost[gpu] = False
        self["gpu_present"][gpu] = 1.0
        for metric in (
            "gpu_row_remap_pending",
            "gpu_row_remap_failure",
            "gpu_recovery_action",
            "gpu_ecc_corrected_volatile_total",
            "gpu_ecc_uncorrected_volatile_total",
        ):
            self[metric][gpu] = 0.0

    def restart(self, gpus: NDArray[np.int64]) -> None:
        """The node booted: what the driver counts starts anew, an off-bus GPU stays off."""
        for metric in _SINCE_BOOT:
            self[metric][gpus] = 0.0

    def count_uncorrected(self, gpu: int, errors: int = 1) -> None:
        """Count uncorrected ECC errors of one GPU."""
        self["gpu_ecc_uncorrected_volatile_total"][gpu] += errors
        self["gpu_ecc_uncorrected_aggregate_total"][gpu] += errors

    def step(self, load: Load, effects: Effects, dt: float) -> None:
        """Advance all GPUs by `dt` seconds under a load and the effects of faults."""
        heat = self._heat
        throttle = ((heat - self._gpu.max_operating_celsius) / 10.0).clip(0.0, 0.6)
        watts, capped = self._draw(load, effects, throttle, dt)
        settled = self._inlet + effects.inlet_celsius + self._resistance * effects.cooling * watts
        heat += (settled - heat) * (1.0 - np.exp(-dt / self._tau))
        self._read_load(load, watts, heat, throttle, capped)
        self["gpu_power_limit_watts"][:] = effects.power_limit_watts
        self["gpu_energy_joules_total"] += watts * dt
        self["gpu_thermal_slowdown_seconds_total"] += dt * (throttle > 0.02)
        links = float(self._gpu.nvlinks)
        self["gpu_nvlinks_active"][:] = np.where(effects.training, 0.0, links)
        self["gpu_nvlinks_inactive"][:] = np.where(effects.training, links, 0.0)
        self["gpu_pcie_link_generation"][:] = np.where(effects.training, 1.0, _GENERATION)
        self["gpu_clock_event_reasons"][effects.capped] = _POWER_CAP
        self._count(effects, dt)

    def _draw(
        self, load: Load, effects: Effects, throttle: Floats, dt: float
    ) -> tuple[Floats, Flags]:
        keep = float(np.exp(-dt / 20.0))
        fresh = self._rng.normal(0.0, self._gpu.power_noise_watts, self.lost.size)
        self._noise = keep * self._noise + np.sqrt(1.0 - keep**2) * fresh
        wanted = self._wanted_watts(load) + self._noise * (0.15 + 0.85 * load.gpu)
        wanted = self._idle_watts + (wanted - self._idle_watts) * (1.0 - throttle)
        limit = effects.power_limit_watts
        return np.clip(wanted, 50.0, limit), wanted > limit - 60.0

    def _wanted_watts(self, load: Load) -> Floats:
        busy = np.maximum(load.gpu_watts - self._idle_watts, 0.0)
        return self._idle_watts + busy * load.gpu

    def _read_load(
        self, load: Load, watts: Floats, heat: Floats, throttle: Floats, capped: Flags
    ) -> None:
        gpu, rng, count = self._gpu, self._rng, self.lost.size
        busy = load.gpu > 0.5
        share = (watts / np.maximum(self._wanted_watts(load), 1.0)).clip(0.0, 1.0)
        clock = gpu.sm_clock_max_hertz * (1.0 - 0.5 * (1.0 - share)) * (1.0 - throttle)
        clock = np.where(busy, clock - np.abs(rng.normal(0.0, 1.2e7, count)), clock)
        used = load.gpu_memory * gpu.memory_total_bytes
        used_share = np.where(load.gpu > 0.02, load.gpu, 0.0)
        self["gpu_sm_clock_hertz"][:] = np.round(clock / 1.5e7) * 1.5e7  # NVML steps of 15 MHz
        self["gpu_power_watts"][:] = np.round(watts, 3)
        self["gpu_utilization_ratio"][:] = np.round(
            (used_share - np.abs(rng.normal(0.0, 0.02, count)) * busy).clip(0.0, 1.0), 2
        )
        self["gpu_memory_utilization_ratio"][:] = np.round(
            (0.45 * used_share + rng.normal(0.0, 0.03, count) * busy).clip(0.0, 1.0), 2
        )
        self["gpu_memory_used_bytes"][:] = used
        hot = gpu.memory_excess_celsius * watts / gpu.power_limit_watts
        self["gpu_temperature_celsius"][:] = np.round(heat)  # NVML gives whole degrees
        self["gpu_memory_temperature_celsius"][:] = np.round(heat + hot)
        self["gpu_clock_event_reasons"][:] = (
            _IDLE * (load.gpu < 0.02)
            + _POWER_CAP * (capped & busy)
            + _SOFTWARE_THERMAL * (throttle > 0.02)
            + _HARDWARE_THERMAL * (heat >= gpu.slowdown_celsius)
        )
        self["gpu_probe_seconds"][:] = rng.gamma(6.0, 0.004, count)

    def _count(self, effects: Effects, dt: float) -> None:
        hours = dt / 3600.0
        corrected = self._counts.poisson(self._ecc_rate * hours)
        corrected += self._fault_counts.poisson(effects.ecc_corrected_per_hour * hours)
        self["gpu_ecc_corrected_volatile_total"] += corrected
        self["gpu_ecc_corrected_aggregate_total"] += corrected
        self["gpu_pcie_replay_total"] += self._counts.poisson(self._replay_rate * hours)
        self["gpu_nvlink_errors_total"] += self._counts.poisson(self._link_rate * hours)

    def _set_constants(self) -> None:
        gpu = self._gpu
        constants = {
            "gpu_present": 1.0,
            "gpu_slowdown_temperature_celsius": gpu.slowdown_celsius,
            "gpu_sm_clock_max_hertz": gpu.sm_clock_max_hertz,
            "gpu_memory_clock_hertz": gpu.memory_clock_hertz,
            "gpu_memory_total_bytes": gpu.memory_total_bytes,
            "gpu_pcie_link_generation": _GENERATION,
            "gpu_pcie_link_generation_max": _GENERATION,
            "gpu_pcie_link_width": 16.0,
            "gpu_pcie_link_width_max": 16.0,
            "gpu_nvlinks_active": float(gpu.nvlinks),
        }
        for metric, value in constants.items():
            self[metric][:] = value

    def _heavy(self, median: float, sigma: float, count: int) -> Floats:
        return median * np.exp(self._rng.normal(0.0, sigma, count))
