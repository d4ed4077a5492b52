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
from gpuwarden_wire.metrics import EntityKind, Storage
from gpuwarden_wire.schema import Schema

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

# Bits of nvmlClocksEventReasons (nvml.h): GPU idle, software power cap, software thermal slowdown,
# hardware thermal slowdown, hardware power brake.
_IDLE, _POWER_CAP, _SOFTWARE_THERMAL, _HARDWARE_THERMAL, _BRAKE = 0x1, 0x4, 0x20, 0x40, 0x80
_WANDER_S = 5400.0
_BRAKED = 0.02
"""Share of the clock from which a brake is counted."""

GPU_SCHEMA: Schema = simulated_schema(EntityKind.GPU)
_PRESENT = [column.name for column in GPU_SCHEMA.columns].index("gpu_present")


_SINCE_BOOT = (
    "gpu_energy_joules_total",
    "gpu_thermal_slowdown_seconds_total",
    "gpu_power_brake_seconds_total",
    "gpu_power_cap_seconds_total",
    "gpu_ecc_corrected_volatile_total",
    "gpu_ecc_uncorrected_volatile_total",
    "gpu_pcie_replay_total",
    "gpu_nvlink_errors_total",
    "gpu_nvlink_recoveries_total",
    "gpu_aer_correctable_total",
    "gpu_aer_fatal_total",
    "gpu_row_remap_pending",  # a reset maps the rows that waited
)


class GpuPlant:
    """State of all GPUs; `values` is what NVML would read, in GPU_SCHEMA's columns.

    Attributes:
        values: float64, shape (columns, GPUs).
        lost: GPUs off the bus, shape (GPUs,).
        counters: Metrics that only rise.
    """

    counters: tuple[str, ...] = tuple(
        column.name for column in GPU_SCHEMA.columns if column.storage is Storage.COUNTER
    )

    def __init__(
        self, topology: Topology, parameters: Parameters, rng: np.random.Generator, load: Load
    ) -> None:
        """GPUs at the temperature that `load` settles at."""
        self._gpu, self._rates, self._rng = parameters.gpu, parameters.rates, rng
        # Background counts and those of faults draw apart: a fault changes nobody else's numbers.
        self._counts, self._fault_counts, self._others, self._parts = rng.spawn(4)
        count = len(topology.gpus)
        racks, rack_of_node = np.unique(topology.racks, return_inverse=True)
        rack = rack_of_node[topology.gpu_node]
        self._inlet = rng.uniform(*self._gpu.inlet_celsius, racks.size)[rack]
        self._inlet = self._inlet + rng.normal(0.0, self._gpu.inlet_spread_celsius, count)
        nodes = self._others.normal(0.0, self._gpu.node_spread_celsius, len(topology.nodes))
        self._inlet = self._inlet + nodes[topology.gpu_node]
        self._node = topology.gpu_node
        self._wander: Floats = np.zeros(len(topology.nodes))
        self._appetite = self._others.normal(1.0, self._gpu.appetite_spread, count)
        self._clocks = 1.0 - np.abs(self._others.normal(0.0, self._gpu.clock_spread, count))
        self._resistance = self._drawn_resistance(rng, count)
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
        self._sram_rate = self._rates.sram_corrected_per_hour * np.exp(
            self._others.normal(0.0, self._rates.tail_sigma, count)
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

    def replace(self, gpu: int) -> None:
        """Another part is in the slot: nothing counted, heat and draw of its own."""
        for metric in self.counters:
            self[metric][gpu] = 0.0
        for metric in ("gpu_row_remap_pending", "gpu_row_remap_failure", "gpu_recovery_action"):
            self[metric][gpu] = 0.0
        self["gpu_sram_threshold_exceeded"][gpu] = 0.0
        self._resistance[gpu] = self._drawn_resistance(self._parts, 1)[0]
        self._idle_watts[gpu] = self._parts.uniform(*self._gpu.idle_power_watts)
        rates = ((self._ecc_rate, self._rates.ecc_corrected_per_hour),)
        for rate, usual in (*rates, (self._link_rate, self._rates.nvlink_errors_per_hour)):
            rate[gpu] = usual * np.exp(self._parts.normal(0.0, self._rates.tail_sigma))

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
        settled = (
            self._wandered(dt) + effects.inlet_celsius + self._resistance * effects.cooling * watts
        )
        heat += (settled - heat) * (1.0 - np.exp(-dt / self._tau))
        self._read_load(load, watts, heat, throttle, capped, effects)
        self["gpu_power_limit_watts"][:] = effects.power_limit_watts
        self["gpu_energy_joules_total"] += watts * dt
        self["gpu_thermal_slowdown_seconds_total"] += dt * (throttle > 0.02)
        links = float(self._gpu.nvlinks)
        inactive = np.where(effects.training, links, np.minimum(effects.links_lost, links))
        self["gpu_nvlinks_active"][:] = links - inactive
        self["gpu_nvlinks_inactive"][:] = inactive
        self["gpu_pcie_link_generation"][:] = np.where(
            effects.training, 1.0, self._gpu.pcie_generation
        )
        self["gpu_pcie_link_width"][:] = effects.lanes
        self["gpu_power_brake_seconds_total"] += dt * (effects.brake > _BRAKED)
        self["gpu_clock_event_reasons"][effects.capped] = _POWER_CAP
        reasons = self["gpu_clock_event_reasons"].astype(np.int64)
        self["gpu_power_cap_seconds_total"] += dt * ((reasons & _POWER_CAP) > 0)
        self._count(effects, dt)

    def _wandered(self, dt: float) -> Floats:
        """Air at each GPU: a node's wanders over hours."""
        keep = float(np.exp(-dt / _WANDER_S))
        fresh = self._others.normal(0.0, self._gpu.inlet_wander_celsius, self._wander.size)
        self._wander = keep * self._wander + np.sqrt(1.0 - keep**2) * fresh
        return self._inlet + self._wander[self._node]

    def _draw(
        self, load: Load, effects: Effects, throttle: Floats, dt: float
    ) -> tuple[Floats, Flags]:
        keep = float(np.exp(-dt / 20.0))
        fresh = self._rng.normal(0.0, self._gpu.power_noise_watts, self.lost.size)
        self._noise = keep * self._noise + np.sqrt(1.0 - keep**2) * fresh
        wanted = self._wanted_watts(load) + self._noise * (0.15 + 0.85 * load.gpu)
        if effects.watts_noise.any():
            unsteady = self._fault_counts.normal(0.0, 1.0, self.lost.size) * effects.watts_noise
            wanted = wanted + unsteady * load.gpu
        left = (1.0 - throttle) * (1.0 - effects.brake) * effects.watts_share
        wanted = self._idle_watts + (wanted - self._idle_watts) * left
        limit = effects.power_limit_watts
        return np.clip(wanted, 50.0, limit), wanted > limit - 60.0

    def _wanted_watts(self, load: Load) -> Floats:
        busy = np.maximum(self._appetite * load.gpu_watts - self._idle_watts, 0.0)
        return self._idle_watts + busy * load.gpu

    def _read_load(
        self,
        load: Load,
        watts: Floats,
        heat: Floats,
        throttle: Floats,
        capped: Flags,
        effects: Effects,
    ) -> None:
        gpu, rng, count = self._gpu, self._rng, self.lost.size
        busy = load.gpu > 0.5
        wanted = self._wanted_watts(load) * effects.watts_share
        share = (watts / np.maximum(wanted, 1.0)).clip(0.0, 1.0)
        clock = gpu.sm_clock_max_hertz * (1.0 - 0.5 * (1.0 - share)) * (1.0 - throttle)
        clock = clock * (1.0 - effects.brake) * effects.clock_share * self._clocks
        clock = np.where(busy, clock - np.abs(rng.normal(0.0, 1.2e7, count)), clock)
        used = load.gpu_memory * gpu.memory_total_bytes
        used_share = np.where(load.gpu > 0.02, load.gpu, 0.0)
        used_share = np.where(load.spinning, 1.0, used_share)
        moved_share = np.where(load.spinning, load.gpu, used_share) * effects.memory_share
        self["gpu_sm_clock_hertz"][:] = np.round(clock / 1.5e7) * 1.5e7  # NVML steps of 15 MHz
        jitter = self._others.normal(0.0, gpu.power_jitter_watts, count) * load.gpu
        shown = np.clip(watts - np.abs(jitter), 50.0, None)
        self["gpu_power_watts"][:] = np.round(np.where(busy, shown, watts), 3)
        self["gpu_utilization_ratio"][:] = np.round(
            (used_share - np.abs(rng.normal(0.0, 0.02, count)) * busy).clip(0.0, 1.0), 2
        )
        self["gpu_memory_utilization_ratio"][:] = np.round(
            (0.45 * moved_share + rng.normal(0.0, 0.03, count) * busy).clip(0.0, 1.0), 2
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
            + _BRAKE * (effects.brake > _BRAKED)
        )
        self["gpu_probe_seconds"][:] = rng.gamma(6.0, 0.004, count) * effects.probe_factor

    def _count(self, effects: Effects, dt: float) -> None:
        hours = dt / 3600.0
        corrected = self._counts.poisson(self._ecc_rate * hours)
        corrected += self._fault_counts.poisson(effects.ecc_corrected_per_hour * hours)
        self["gpu_ecc_corrected_volatile_total"] += corrected
        self["gpu_ecc_corrected_aggregate_total"] += corrected
        self["gpu_pcie_replay_total"] += self._counts.poisson(self._replay_rate * hours)
        self["gpu_nvlink_errors_total"] += self._counts.poisson(self._link_rate * hours)
        self["gpu_sram_corrected_aggregate_total"] += self._others.poisson(self._sram_rate * hours)
        for metric, rate in (
            ("gpu_pcie_replay_total", effects.replays_per_hour),
            ("gpu_nvlink_errors_total", effects.nvlink_errors_per_hour),
            ("gpu_nvlink_recoveries_total", effects.nvlink_recoveries_per_hour),
            ("gpu_aer_correctable_total", effects.aer_correctable_per_hour),
            ("gpu_sram_corrected_aggregate_total", effects.sram_corrected_per_hour),
        ):
            if rate.any():
                self[metric] += self._fault_counts.poisson(rate * hours)

    def _set_constants(self) -> None:
        gpu = self._gpu
        constants = {
            "gpu_present": 1.0,
            "gpu_slowdown_temperature_celsius": gpu.slowdown_celsius,
            "gpu_sm_clock_max_hertz": gpu.sm_clock_max_hertz,
            "gpu_memory_clock_hertz": gpu.memory_clock_hertz,
            "gpu_memory_total_bytes": gpu.memory_total_bytes,
            "gpu_pcie_link_generation": gpu.pcie_generation,
            "gpu_pcie_link_generation_max": gpu.pcie_generation,
            "gpu_pcie_link_width": 16.0,
            "gpu_pcie_link_width_max": 16.0,
            "gpu_nvlinks_active": float(gpu.nvlinks),
        }
        for metric, value in constants.items():
            self[metric][:] = value

    def _drawn_resistance(self, rng: np.random.Generator, count: int) -> Floats:
        drawn = rng.normal(*self._gpu.thermal_resistance_normal, count)
        return drawn.clip(*self._gpu.thermal_resistance_bounds)

    def _heavy(self, median: float, sigma: float, count: int) -> Floats:
        return median * np.exp(self._rng.normal(0.0, sigma, count))
