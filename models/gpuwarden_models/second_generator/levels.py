"""What a fleet shows while nothing happens: regimes, autoregressions and a copula.

Every draw here has the shape of the fleet and of the time alone, and every filter looks back only,
so that what happens to one part changes nothing before its onset and nothing elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.second_generator.parameters import PARAMETERS
from gpuwarden_models.second_generator.plan import GPUS, HOUR_S, NICS, START_S, Job, lognormal

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Power, utilisation, traffic and writing in each regime of a run, and how long it holds: lognormal.
_REGIMES: tuple[tuple[float, float, float, float, tuple[float, float]], ...] = (
    (0.22, 0.30, 0.05, 0.1, (240.0, 0.6)),  # loading
    (0.93, 0.99, 1.00, 0.0, (2400.0, 0.9)),  # computing
    (0.55, 0.80, 0.25, 0.0, (150.0, 0.5)),  # evaluating
    (0.28, 0.45, 0.10, 1.0, (75.0, 0.5)),  # saving
)
_NEXT = ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.3, 0.7), (0.0, 0.9, 0.0, 0.1), (0.0, 1.0, 0.0, 0.0))


@dataclass(slots=True, eq=False)
class Readings:
    """Everything that is written, before what is lost is taken out. Arrays are entity x time.

    Attributes:
        at: Epoch seconds.
        step_s: Time between them.
        gpu: Gauges of GPUs by column.
        gpu_gain: Growth of their counters in each step.
        node: Gauges of nodes.
        node_gain: Growth of their counters.
        nic: Gauges of ports.
        nic_gain: Growth of their counters.
        mount_gain: Growth of the counters of each node's mount.
        xid: The last XID as dcgm-exporter shows it.
        gpu_lost: GPUs that nobody sees.
        dcgm_lost: Nodes whose dcgm-exporter is silent.
        node_lost: Nodes whose node_exporter is silent.
        fresh: GPUs whose driver starts: volatile counters begin anew.
        booted: Nodes that boot.
        lines: Epoch seconds, node and text of kernel lines.
    """

    at: Floats
    step_s: float
    gpu: dict[str, Floats]
    gpu_gain: dict[str, Floats]
    node: dict[str, Floats]
    node_gain: dict[str, Floats]
    nic: dict[str, Floats]
    nic_gain: dict[str, Floats]
    mount_gain: dict[str, Floats]
    xid: Floats
    gpu_lost: Flags
    dcgm_lost: Flags
    node_lost: Flags
    fresh: Flags
    booted: Flags
    lines: list[tuple[float, int, str]] = field(default_factory=list)


def times(hours: float, step_s: float) -> Floats:
    """The common grid."""
    return START_S + step_s * np.arange(max(2, round(hours * HOUR_S / step_s)), dtype=np.float64)


def quiet(seed: int, nodes: int, at: Floats, step_s: float, jobs: Sequence[Job]) -> Readings:
    """Readings of healthy nodes that run these jobs."""
    rng = np.random.default_rng([seed, 2])
    load = _load(nodes, at, jobs)
    shape, steps = (nodes * GPUS, at.size), at.size
    gpu = _gpus(rng, np.repeat(load, GPUS, axis=1), step_s)
    busy, traffic, saving = load[1], load[2], load[3]
    worn = np.ones(shape[0])
    some = rng.random(shape[0]) < PARAMETERS.wear_share
    worn[some] += 20.0 * rng.pareto(PARAMETERS.wear_tail, int(some.sum()))

    def counts(rate: float, rows: Floats) -> Floats:
        """Gamma mixtures of Poisson: calm mostly, a few at once at times."""
        mean = (rate * step_s / HOUR_S * rows)[:, None] * np.ones(steps)
        return rng.poisson(mean * rng.gamma(0.2, 5.0, mean.shape)).astype(np.float64)

    return Readings(
        at, step_s, gpu,
        {
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": counts(PARAMETERS.corrected_per_hour, worn),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": counts(PARAMETERS.replays_per_hour, worn[::-1]),
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": counts(
                PARAMETERS.flits_per_hour, np.roll(worn, shape[0] // 2)
            ),
            **{name: np.zeros(shape) for name in (
                "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
                "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
                "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
                "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
            )},
        },
        *_nodes(rng, busy, saving, step_s),
        *_ports(rng, traffic, step_s),
        _mounts(rng, saving, step_s),
        np.zeros(shape), np.zeros(shape, bool), np.zeros((nodes, steps), bool),
        np.zeros((nodes, steps), bool), np.zeros(shape, bool), np.zeros((nodes, steps), bool),
    )  # fmt: skip


def _load(nodes: int, at: Floats, jobs: Sequence[Job]) -> Floats:
    """Power, utilisation, traffic and writing by node and time: a semi-Markov chain a job."""
    load = np.zeros((4, nodes, at.size))
    for job in jobs:
        rng = np.random.default_rng([job.seed, 7])
        here = np.zeros((4, at.size))
        scale, moment, regime = float(rng.uniform(0.9, 1.06)), job.start, 0
        while moment < job.end:
            *levels, holds = _REGIMES[regime]
            until = moment + lognormal(rng, holds)
            first, last = np.searchsorted(at, [moment, min(until, job.end)])
            here[:, first:last] = np.array(levels)[:, None]
            moment, regime = until, int(rng.choice(4, p=_NEXT[regime]))
        here[0] *= scale
        for node in job.nodes:
            load[:, node] = np.maximum(load[:, node], here)
    return load


def _noise(rng: np.random.Generator, rows: int, steps: int, one: float, two: float) -> Floats:
    """AR(2) of unit variance, row by row."""
    fresh = rng.standard_normal((rows, steps))
    out = np.zeros((rows, steps))
    for k in range(2, steps):
        out[:, k] = one * out[:, k - 1] + two * out[:, k - 2] + fresh[:, k]
    variance = (1 - two) / ((1 + two) * ((1 - two) ** 2 - one**2))
    return np.asarray(out / variance**0.5, dtype=np.float64)


def _tailed(latent: Floats, weight: float = PARAMETERS.tail_weight) -> Floats:
    """A normal score made heavy in its tails."""
    return np.sinh(weight * latent) / weight


def _gpus(rng: np.random.Generator, load: Floats, step_s: float) -> dict[str, Floats]:
    """Gauges of GPUs; power and temperature are joined by a Gaussian copula of heavy margins."""
    rows, steps = load.shape[1:]
    column = (rows, 1)
    idle = PARAMETERS.idle_w[0] * np.exp(PARAMETERS.idle_w[1] * rng.standard_normal(column))
    busy = PARAMETERS.busy_w[0] * np.exp(PARAMETERS.busy_w[1] * rng.standard_normal(column))
    of_node = np.repeat(_noise(rng, rows // GPUS, steps, 0.9, -0.2), GPUS, axis=0)
    score = 0.7 * of_node + 0.714 * _noise(rng, rows, steps, 0.6, 0.1)
    power = idle + (busy - idle) * load[0] + _tailed(score) * (1.5 + 16.0 * load[0])
    power = np.clip(power, 55.0, PARAMETERS.limit_w * 1.01)
    joined = rng.uniform(*PARAMETERS.copula, column)
    other = _noise(rng, rows, steps, 0.8, 0.05)
    loose = rng.uniform(*PARAMETERS.loose_c, column)
    own = PARAMETERS.idle_c + rng.normal(0.0, PARAMETERS.own_c, column)
    slope = PARAMETERS.celsius_per_watt * np.exp(0.05 * rng.standard_normal(column))
    warm = _lagged(power, step_s / (step_s + PARAMETERS.lag_s))
    # The air of a node wanders over hours, for all of its GPUs alike.
    slow = float(np.exp(-step_s / HOUR_S / PARAMETERS.air_h))
    air = PARAMETERS.air_c * _noise(rng, rows // GPUS, steps, slow, 0.0)
    apart = joined * score + np.sqrt(1 - joined**2) * other
    heat = own + slope * warm + np.repeat(air, GPUS, axis=0)
    heat = heat + loose * _tailed(apart, PARAMETERS.heat_tail_weight)
    clock = np.where(load[1] > 0, 1980.0 - 180.0 * load[0] * np.clip(power / 650.0, 0, 1), 345.0)
    capped = power > 0.97 * PARAMETERS.limit_w
    return {
        "DCGM_FI_DEV_POWER_USAGE": power,
        "DCGM_FI_DEV_GPU_TEMP": np.round(heat),
        "DCGM_FI_DEV_MEMORY_TEMP": np.round(heat + 6.0 + 9.0 * load[0]),
        "DCGM_FI_DEV_GPU_UTIL": np.round(100 * np.clip(load[1] - 0.03 * np.abs(score), 0, 1)),
        "DCGM_FI_DEV_MEM_COPY_UTIL": np.round(60 * load[0]),
        "DCGM_FI_DEV_FB_USED": np.where(load[1] > 0, 71_000.0 + 50 * np.round(other), 640.0),
        "DCGM_FI_DEV_SM_CLOCK": np.round(clock / 15.0) * 15.0,
        "DCGM_FI_DEV_MEM_CLOCK": np.full((rows, steps), 2619.0),
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": np.full((rows, steps), PARAMETERS.limit_w),
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": np.where(load[1] > 0, 4.0 * capped, 1.0),
        "DCGM_FI_DEV_PCIE_LINK_GEN": np.full((rows, steps), 5.0),
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": np.full((rows, steps), 16.0),
        "DCGM_FI_DEV_ROW_REMAP_PENDING": np.zeros((rows, steps)),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": np.zeros((rows, steps)),
    }


def _lagged(series: Floats, weight: float) -> Floats:
    out = series.copy()
    for k in range(1, series.shape[1]):
        out[:, k] = out[:, k - 1] + weight * (series[:, k] - out[:, k - 1])
    return out


def _nodes(
    rng: np.random.Generator, busy: Floats, saving: Floats, step_s: float
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    rows, steps = busy.shape
    wander = _noise(rng, rows, steps, 0.7, 0.1)
    spread = np.exp(0.08 * _tailed(wander))
    gauges = {
        "node_load1": (2.0 + 26.0 * busy) * spread,
        "node_procs_running": np.round((1.0 + 15.0 * busy) * spread),
        "node_procs_blocked": np.round(3.0 * saving * spread),
        "node_memory_MemTotal_bytes": np.full((rows, steps), 2.16e12),
        "node_memory_MemAvailable_bytes": 2.0e12 - 5.0e11 * (busy > 0) * spread,
        "scrape_duration_seconds:dcgm": 0.12
        * np.exp(0.3 * _tailed(_noise(rng, rows, steps, 0.3, 0.0))),
    }
    gains = {
        "node_intr_total": step_s * (3_000.0 + 9_000.0 * busy) * spread,
        "node_context_switches_total": step_s * (8_000.0 + 40_000.0 * busy) * spread,
        "node_vmstat_pgpgout": step_s * (200.0 + 900_000.0 * saving) * spread,
        "node_pressure_cpu_waiting_seconds_total": step_s * 0.004 * busy * spread,
        "node_pressure_io_waiting_seconds_total": step_s * (0.002 + 0.25 * saving) * spread,
        "node_edac_correctable_errors_total": rng.poisson(
            4e-3 * step_s / HOUR_S * rng.gamma(0.2, 5.0, (rows, steps))
        ).astype(np.float64),
    }
    return gauges, gains


def _ports(
    rng: np.random.Generator, traffic: Floats, step_s: float
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    traffic = np.repeat(traffic, NICS, axis=0)
    rows, steps = traffic.shape
    sent = step_s * (2e4 + 5.5e9 * traffic) * np.exp(0.1 * _noise(rng, rows, steps, 0.5, 0.1))
    skew = np.exp(0.02 * rng.standard_normal((rows, 1)))
    rate = PARAMETERS.symbols_per_hour * step_s / HOUR_S * (1 + rng.pareto(1.3, (rows, 1)))
    gauges = {
        "node_infiniband_state_id": np.full((rows, steps), 4.0),
        "node_infiniband_physical_state_id": np.full((rows, steps), 5.0),
        "node_infiniband_rate_bytes_per_second": np.full((rows, steps), 5.0e10),
    }
    gains = {
        "node_infiniband_port_data_transmitted_bytes_total": sent,
        "node_infiniband_port_data_received_bytes_total": sent * skew,
        "node_infiniband_link_downed_total": np.zeros((rows, steps)),
        "node_infiniband_link_error_recovery_total": np.zeros((rows, steps)),
        "node_infiniband_symbol_error_total": rng.poisson(
            rate * rng.gamma(0.3, 3.3, (rows, steps))
        ).astype(np.float64),
        "node_infiniband_port_transmit_wait_total": sent * 1e-3 * traffic,
    }
    return gauges, gains


def _mounts(rng: np.random.Generator, saving: Floats, step_s: float) -> dict[str, Floats]:
    asked = rng.poisson(step_s * (0.3 + 900.0 * saving)).astype(np.float64)
    took = 0.004 * np.exp(0.25 * _tailed(_noise(rng, saving.shape[0], saving.shape[1], 0.6, 0.1)))
    name = "node_mountstats_nfs_"
    return {
        f"{name}total_write_bytes_total": asked * 1_048_576.0,
        f"{name}operations_requests_total:WRITE": asked,
        f"{name}operations_transmissions_total:WRITE": asked.copy(),
        f"{name}operations_major_timeouts_total:WRITE": np.zeros_like(asked),
        f"{name}operations_response_time_seconds_total:WRITE": asked * took,
        f"{name}operations_request_time_seconds_total:WRITE": asked * took * 1.3,
        f"{name}operations_queue_time_seconds_total:WRITE": asked * took * 0.2,
    }
