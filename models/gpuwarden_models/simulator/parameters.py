"""Every number of the simulator that is not drawn: one place to read, criticise and change.

Levels follow published figures where there are any; "assumed" marks the rest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class GpuParameters:
    """An 80 GB H100 SXM under training load.

    Attributes:
        model: NVIDIA's product name.
        driver_version: Kernel driver.
        idle_power_watts: Low and high of the idle draw; public H100 runs idle at 70 to 120 W.
        busy_power_watts: Low and high of a job's draw; medians of public H100 runs: 542 to 692 W.
        power_limit_watts: NVIDIA H100 SXM data sheet: 700 W.
        power_noise_watts: Standard deviation of the draw around a job's level (assumed).
        uneven_job_share: Share of jobs that load their GPUs unevenly; one of five public runs does.
        inlet_celsius: Low and high of the air at the GPU's heat sink (assumed).
        thermal_resistance: Mean and spread over GPUs, C/W: 650 W brings about 36 C, spread from the
            4 to 12 C between the GPUs of one node at equal load in public H100 runs.
        thermal_time_constant_s: Low and high (assumed; warm-ups of public runs take one to two
            minutes).
        memory_excess_celsius: HBM above core at full draw (assumed).
        max_operating_celsius: Where software slowdown begins (assumed: 87 C).
        slowdown_celsius: What NVML gives as slowdown threshold (assumed: 90 C).
        sm_clock_max_hertz: NVIDIA H100 SXM: 1980 MHz boost.
        memory_clock_hertz: 2619 MHz, HBM3.
        memory_total_bytes: 81,559 MiB as nvidia-smi prints for the 80 GB part.
        nvlinks: 18 links of the fourth generation.
    """

    model: str = "NVIDIA H100 80GB HBM3"
    driver_version: str = "570.124.06"
    idle_power_watts: tuple[float, float] = (70.0, 120.0)
    busy_power_watts: tuple[float, float] = (540.0, 680.0)
    power_limit_watts: float = 700.0
    power_noise_watts: float = 9.0
    uneven_job_share: float = 0.15
    inlet_celsius: tuple[float, float] = (22.0, 27.0)
    thermal_resistance: tuple[float, float] = (0.056, 0.0035)
    thermal_time_constant_s: tuple[float, float] = (20.0, 35.0)
    memory_excess_celsius: float = 9.0
    max_operating_celsius: float = 87.0
    slowdown_celsius: float = 90.0
    sm_clock_max_hertz: float = 1.98e9
    memory_clock_hertz: float = 2.619e9
    memory_total_bytes: float = 81_559 * 2.0**20
    nvlinks: int = 18


@dataclass(frozen=True, slots=True)
class JobParameters:
    """Training jobs that hold whole nodes.

    Attributes:
        nodes: Sizes of the partitions that run one job after another, largest first.
        length_s: Shortest and longest job, log-uniform between (assumed).
        gap_s: Shortest and longest pause between jobs (assumed).
        warm_up_s: Time from start to full load; public H100 runs.
        checkpoint_every_s: Shortest and longest period of checkpoints (assumed).
        checkpoint_s: Shortest and longest checkpoint (assumed).
        bad_ends: Share of jobs that end otherwise than planned, by state (assumed; published shares
            of failed and cancelled jobs are larger and count short ones).
    """

    nodes: tuple[int, ...] = (8, 4, 2, 1)
    length_s: tuple[float, float] = (1800.0, 43_200.0)
    gap_s: tuple[float, float] = (60.0, 1200.0)
    warm_up_s: float = 60.0
    checkpoint_every_s: tuple[float, float] = (600.0, 2400.0)
    checkpoint_s: tuple[float, float] = (15.0, 60.0)
    bad_ends: tuple[tuple[str, float], ...] = (
        ("FAILED", 0.08),
        ("CANCELLED", 0.05),
        ("TIMEOUT", 0.02),
    )


@dataclass(frozen=True, slots=True)
class RateParameters:
    """Background rates of errors that need no action.

    Attributes:
        ecc_corrected_per_hour: Median over GPUs; per-GPU rates are log-normal (heavy-tailed, as all
            public counts of correctable errors are).
        ecc_corrected_sigma: Sigma of that log-normal.
        pcie_replays_per_hour: Median over GPUs, same form.
        nvlink_errors_per_hour: Median over GPUs, same form.
        tail_sigma: Sigma of the last two.
        scrape_loss: Share of a node's readings that never arrive (assumed).
        scrape_outages_per_day: Longer gaps of one node a day (assumed).
        scrape_outage_s: Shortest and longest such gap.
    """

    ecc_corrected_per_hour: float = 0.004
    ecc_corrected_sigma: float = 1.6
    pcie_replays_per_hour: float = 0.02
    nvlink_errors_per_hour: float = 0.01
    tail_sigma: float = 1.5
    scrape_loss: float = 0.002
    scrape_outages_per_day: float = 0.5
    scrape_outage_s: tuple[float, float] = (60.0, 900.0)


@dataclass(frozen=True, slots=True)
class StorageParameters:
    """One NFS server for the whole fleet (all assumed).

    Attributes:
        server_bytes_per_second: What it takes and gives in all, at least.
        bytes_per_second_a_node: What it was bought for, so that larger fleets have larger ones.
        save_bytes_per_second: What a node writes while its job saves a checkpoint.
        load_bytes_per_second: What a node reads while its job starts.
        feed_bytes_per_second: What a node reads while its job computes.
        operation_bytes: Size of a request: rsize and wsize of 1 MiB.
        round_trip_s: Of a request on a server at ease.
        queue_s: Wait of a request for a slot while there are enough.
        slots: Slots of a mount.
        stalled_share: Share of its capacity that a stalled server has left: four nodes still get
            all that they ask for, sixty do not even while they compute.
        most_waiting: Bound on how many times its capacity is asked of it.
    """

    server_bytes_per_second: float = 3e10
    bytes_per_second_a_node: float = 5e8
    save_bytes_per_second: float = 2.5e9
    load_bytes_per_second: float = 1e9
    feed_bytes_per_second: float = 3e8
    operation_bytes: float = 2.0**20
    round_trip_s: float = 0.002
    queue_s: float = 1e-4
    slots: float = 64.0
    stalled_share: float = 0.37
    most_waiting: float = 40.0


@dataclass(frozen=True, slots=True)
class BootParameters:
    """How nodes and switches come back (all assumed).

    Attributes:
        node_s: Shortest and longest time for which a node that reboots is away.
        training_s: Time after a boot in which links train.
        leaf_s: Shortest and longest reboot of a leaf switch.
    """

    node_s: tuple[float, float] = (180.0, 360.0)
    training_s: float = 90.0
    leaf_s: tuple[float, float] = (180.0, 420.0)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of one simulation."""

    gpu: GpuParameters = GpuParameters()
    jobs: JobParameters = JobParameters()
    rates: RateParameters = RateParameters()
    storage: StorageParameters = StorageParameters()
    boots: BootParameters = BootParameters()


def parameters_hash(parameters: Parameters) -> str:
    """SHA-256 of all parameters, in hex; the order in which they stand does not count."""
    content = json.dumps(asdict(parameters), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()
