"""The numbers of the simulator, read from `parameters.toml`, which gives the source of each."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gpuwarden_models.simulator.fault_names import FaultName

PARAMETERS_FILE = Path(__file__).with_name("parameters.toml")

_COMMON_KEYS = (
    "is",
    "ramp_s",
    "needed_at",
    "drawn_ramp_s",
    "lasting_s",
    "severity",
    "precursor_share",
    "repair_shares",
    "dense_per_day",
    "h100_per_million_hours",
    "a100_per_million_hours",
)
_ROW = TypeVar("_ROW")

Range = tuple[float, float]


class GpuModel(StrEnum):
    """GPUs whose numbers the file has."""

    H100 = "h100"
    A100 = "a100"


@cache
def _file() -> Mapping[str, Any]:
    return MappingProxyType(tomllib.loads(PARAMETERS_FILE.read_text(encoding="utf-8")))


def _table(path: str) -> Mapping[str, Any]:
    table: Mapping[str, Any] = _file()
    for word in path.split("."):
        table = table[word]
    return table


def _value(path: str, key: str) -> Any:
    value = _table(path)[key][0]
    return tuple(value) if isinstance(value, list) else value


def source_of(path: str, key: str) -> str:
    """Where a number comes from, "assumed" where nobody has published it.

    Args:
        path: Its table, "mechanisms.ecc_wear".
        key: Its name.
    """
    return str(_table(path)[key][1])


def words_of(name: FaultName) -> tuple[str, str]:
    """On what a mechanism comes, and what happens, in words."""
    about, _, text = _value(f"mechanisms.{name}", "is").partition(": ")
    return about.partition(", ")[2], text


def parameters_hash() -> str:
    """SHA-256 in hex of all values of the file; order, comments, sources and words do not count."""

    def bare(node: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: bare(value) if isinstance(value, dict) else value[0]
            for key, value in node.items()
            if key not in ("is", "version", "published")
        }

    content = json.dumps(bare(_file()), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _filled(row: type[_ROW], path: str, **others: object) -> _ROW:
    """A dataclass with the values of a table of the file."""
    own = {one.name for one in fields(row)}  # type: ignore[arg-type]  # callers give dataclasses
    return row(**{key: _value(path, key) for key in _table(path) if key in own}, **others)


def _number(path: str, key: str) -> float:
    return float(_value(path, key))


def _range(path: str, key: str) -> Range:
    low, high = _value(path, key)
    return float(low), float(high)


_H100, _JOBS, _BACKGROUND, _STORAGE, _BOOTS = (
    "gpu.h100",
    "jobs",
    "background",
    "storage",
    "boots",
)


@dataclass(frozen=True, slots=True)
class GpuParameters:
    """One model of GPU under training load; an 80 GB H100 SXM where nothing is said.

    Attributes:
        model: NVIDIA's product name.
        driver_version: Kernel driver.
        idle_power_watts: Low and high of the idle draw.
        busy_power_watts: Low and high of a job's draw.
        power_limit_watts: Of the board.
        power_noise_watts: Standard deviation of the draw around a job's level.
        power_jitter_watts: Of single readings under load, which heat does not follow.
        uneven_job_share: Share of jobs that load their GPUs unevenly.
        inlet_celsius: Low and high of the air at the GPU's heat sink.
        inlet_spread_celsius: Spread of it within a node.
        node_spread_celsius: Spread of it between the nodes of a rack.
        inlet_wander_celsius: How far the air of a node wanders over hours.
        appetite_spread: Spread of the draw at equal load, as a share.
        clock_spread: Spread of the clock at equal load, as a share.
        thermal_resistance_normal: Mean and spread over GPUs, C/W.
        thermal_resistance_bounds: Lowest and highest.
        thermal_time_constant_s: Low and high.
        memory_excess_celsius: HBM above core at full draw.
        max_operating_celsius: Where software slowdown begins.
        slowdown_celsius: What NVML gives as slowdown threshold.
        shutdown_celsius: Where the board switches itself off.
        sm_clock_max_hertz: Highest clock.
        memory_clock_hertz: Of HBM.
        memory_total_bytes: As the driver gives it.
        nvlinks: Links of each GPU.
        pcie_generation: Of its link.
        nic_bytes_per_second: Of the NIC beside it.
    """

    model: str = str(_value(_H100, "model"))
    driver_version: str = str(_value(_H100, "driver_version"))
    idle_power_watts: Range = _range(_H100, "idle_power_watts")
    busy_power_watts: Range = _range(_H100, "busy_power_watts")
    power_limit_watts: float = _number(_H100, "power_limit_watts")
    power_noise_watts: float = _number(_H100, "power_noise_watts")
    power_jitter_watts: float = _number(_H100, "power_jitter_watts")
    uneven_job_share: float = _number(_H100, "uneven_job_share")
    inlet_celsius: Range = _range(_H100, "inlet_celsius")
    inlet_spread_celsius: float = _number(_H100, "inlet_spread_celsius")
    node_spread_celsius: float = _number(_H100, "node_spread_celsius")
    inlet_wander_celsius: float = _number(_H100, "inlet_wander_celsius")
    appetite_spread: float = _number(_H100, "appetite_spread")
    clock_spread: float = _number(_H100, "clock_spread")
    thermal_resistance_normal: Range = _range(_H100, "thermal_resistance_normal")
    thermal_resistance_bounds: Range = _range(_H100, "thermal_resistance_bounds")
    thermal_time_constant_s: Range = _range(_H100, "thermal_time_constant_s")
    memory_excess_celsius: float = _number(_H100, "memory_excess_celsius")
    max_operating_celsius: float = _number(_H100, "max_operating_celsius")
    slowdown_celsius: float = _number(_H100, "slowdown_celsius")
    shutdown_celsius: float = _number(_H100, "shutdown_celsius")
    sm_clock_max_hertz: float = _number(_H100, "sm_clock_max_hertz")
    memory_clock_hertz: float = _number(_H100, "memory_clock_hertz")
    memory_total_bytes: float = _number(_H100, "memory_total_bytes")
    nvlinks: int = int(_value(_H100, "nvlinks"))
    pcie_generation: float = _number(_H100, "pcie_generation")
    nic_bytes_per_second: float = _number(_H100, "nic_bytes_per_second")


@dataclass(frozen=True, slots=True)
class JobParameters:
    """Training jobs that hold whole nodes.

    Attributes:
        nodes: Sizes of the partitions that run one job after another, largest first.
        length_s: Shortest and longest job, log-uniform between.
        gap_s: Shortest and longest pause between jobs.
        warm_up_s: Time from start to full load.
        checkpoint_every_s: Shortest and longest period of checkpoints.
        checkpoint_s: Shortest and longest checkpoint.
        failed_share: Share of jobs that end so of themselves.
        cancelled_share: The same.
        timeout_share: The same.
        paused_load: Load of a GPU whose job waits.
        spin_load: Load of a GPU that waits in a collective at full utilisation.
        collective_timeout_s: Shortest and longest time until a job notices that a rank is gone.
    """

    nodes: tuple[int, ...] = _value(_JOBS, "nodes")
    length_s: Range = _range(_JOBS, "length_s")
    gap_s: Range = _range(_JOBS, "gap_s")
    warm_up_s: float = _number(_JOBS, "warm_up_s")
    checkpoint_every_s: Range = _range(_JOBS, "checkpoint_every_s")
    checkpoint_s: Range = _range(_JOBS, "checkpoint_s")
    failed_share: float = _number(_JOBS, "failed_share")
    cancelled_share: float = _number(_JOBS, "cancelled_share")
    timeout_share: float = _number(_JOBS, "timeout_share")
    paused_load: float = _number(_JOBS, "paused_load")
    spin_load: float = _number(_JOBS, "spin_load")
    collective_timeout_s: Range = _range(_JOBS, "collective_timeout_s")


@dataclass(frozen=True, slots=True)
class RateParameters:
    """Background rates of errors and losses that need no action; medians over parts.

    Attributes:
        ecc_corrected_per_hour: Of a GPU; per-GPU rates are log-normal.
        ecc_corrected_sigma: Sigma of that log-normal.
        sram_corrected_per_hour: Of a GPU, same form.
        pcie_replays_per_hour: The same.
        nvlink_errors_per_hour: The same.
        tail_sigma: Sigma of the last three.
        nic_symbol_errors_per_hour: Of a NIC.
        host_memory_corrected_per_hour: Of a node.
        scrape_loss: Share of a node's readings that never arrive.
        scrape_outages_per_day: Longer gaps of one node a day.
        scrape_outage_s: Shortest and longest such gap.
    """

    ecc_corrected_per_hour: float = _number(_BACKGROUND, "ecc_corrected_per_hour")
    ecc_corrected_sigma: float = _number(_BACKGROUND, "ecc_corrected_sigma")
    sram_corrected_per_hour: float = _number(_BACKGROUND, "sram_corrected_per_hour")
    pcie_replays_per_hour: float = _number(_BACKGROUND, "pcie_replays_per_hour")
    nvlink_errors_per_hour: float = _number(_BACKGROUND, "nvlink_errors_per_hour")
    tail_sigma: float = _number(_BACKGROUND, "tail_sigma")
    nic_symbol_errors_per_hour: float = _number(_BACKGROUND, "nic_symbol_errors_per_hour")
    host_memory_corrected_per_hour: float = _number(_BACKGROUND, "host_memory_corrected_per_hour")
    scrape_loss: float = _number(_BACKGROUND, "scrape_loss")
    scrape_outages_per_day: float = _number(_BACKGROUND, "scrape_outages_per_day")
    scrape_outage_s: Range = _range(_BACKGROUND, "scrape_outage_s")


@dataclass(frozen=True, slots=True)
class StorageParameters:
    """One NFS server for the whole fleet.

    Attributes:
        server_bytes_per_second: What it takes and gives in all, at least.
        bytes_per_second_a_node: What it was bought for, so that larger fleets have larger ones.
        save_bytes_per_second: What a node writes while its job saves a checkpoint.
        load_bytes_per_second: What a node reads while its job starts.
        feed_bytes_per_second: What a node reads while its job computes.
        operation_bytes: Size of a request.
        round_trip_s: Of a request on a server at ease.
        queue_s: Wait of a request for a slot while there are enough.
        slots: Slots of a mount.
        stalled_share: Share of its capacity that a stalled server has left: four nodes still get
            all that they ask for, sixty do not even while they compute.
        most_waiting: Bound on how many times its capacity is asked of it.
    """

    server_bytes_per_second: float = _number(_STORAGE, "server_bytes_per_second")
    bytes_per_second_a_node: float = _number(_STORAGE, "bytes_per_second_a_node")
    save_bytes_per_second: float = _number(_STORAGE, "save_bytes_per_second")
    load_bytes_per_second: float = _number(_STORAGE, "load_bytes_per_second")
    feed_bytes_per_second: float = _number(_STORAGE, "feed_bytes_per_second")
    operation_bytes: float = _number(_STORAGE, "operation_bytes")
    round_trip_s: float = _number(_STORAGE, "round_trip_s")
    queue_s: float = _number(_STORAGE, "queue_s")
    slots: float = _number(_STORAGE, "slots")
    stalled_share: float = _number(_STORAGE, "stalled_share")
    most_waiting: float = _number(_STORAGE, "most_waiting")


@dataclass(frozen=True, slots=True)
class BootParameters:
    """How nodes, switches and parts come back.

    Attributes:
        node_s: Shortest and longest time for which a node that reboots is away.
        training_s: Time after a boot in which links train.
        leaf_s: Shortest and longest reboot of a leaf switch.
        replacement_s: Shortest and longest time for which a node is away for another part.
    """

    node_s: Range = _range(_BOOTS, "node_s")
    training_s: float = _number(_BOOTS, "training_s")
    leaf_s: Range = _range(_BOOTS, "leaf_s")
    replacement_s: Range = _range(_BOOTS, "replacement_s")


@dataclass(frozen=True, slots=True)
class PartParameters:
    """How faults come to parts; the file says what each number is.

    Attributes:
        shared_sigma: Log-normal spread of a part's rate of all faults.
        own_sigma: Of its rate of one mechanism.
        lemon_share: Share of parts that are lemons.
        lemon_factor: Factor on their rates.
        top_of_rack_factor: Rate of the top of a rack by that of the bottom.
        recurs_share: Share of faults that come again where the part stayed.
        recurs_after_median_days: Median of the time until then.
        recurs_after_sigma: Of its log-normal.
        storm_per_hour: Fewest and most repeats of a code while its fault lasts.
        storm_tail: Exponent of the tail of these repeats.
        storm_most_per_hour: Bound of it.
        drained_share: Share of faulty nodes that are taken out before the repair.
        echo_share: Share of faults whose GPU, job and peers speak too.
    """

    shared_sigma: float = _number("parts", "shared_sigma")
    own_sigma: float = _number("parts", "own_sigma")
    lemon_share: float = _number("parts", "lemon_share")
    lemon_factor: float = _number("parts", "lemon_factor")
    top_of_rack_factor: float = _number("parts", "top_of_rack_factor")
    recurs_share: float = _number("parts", "recurs_share")
    recurs_after_median_days: float = _number("parts", "recurs_after_median_days")
    recurs_after_sigma: float = _number("parts", "recurs_after_sigma")
    storm_per_hour: Range = _range("parts", "storm_per_hour")
    storm_tail: float = _number("parts", "storm_tail")
    storm_most_per_hour: float = _number("parts", "storm_most_per_hour")
    drained_share: float = _number("parts", "drained_share")
    echo_share: float = _number("parts", "echo_share")


@dataclass(frozen=True, slots=True)
class Mechanism:
    """How one fault unfolds and how often it comes.

    Attributes:
        ramp_s: Onset to full effect of a scripted fault that says nothing.
        needed_at: Share of the ramp after which action is needed.
        drawn_ramp_s: Shortest and longest ramp of drawn faults, log-uniform between.
        lasting_s: Shortest and longest time from the moment action is needed to the repair (from
            onset to the end for confounders), log-uniform between.
        severity: Lowest and highest; scales the effect.
        precursor_share: Share of drawn faults that announce themselves.
        repair_shares: Of repairs in place, by reboot, by replacement.
        dense_per_day: Onsets by entity and day in training recordings.
        per_million_hours: Onsets by 10^6 GPU-hours, by GPU model.
        numbers: Of its own, by name.
    """

    ramp_s: float
    needed_at: float
    drawn_ramp_s: Range
    lasting_s: Range
    severity: Range
    precursor_share: float
    repair_shares: tuple[float, ...]
    dense_per_day: float
    per_million_hours: Mapping[GpuModel, float]
    numbers: Mapping[str, float]


def _mechanism(name: FaultName) -> Mechanism:
    path = f"mechanisms.{name}"
    own = {key: _number(path, key) for key in _table(path) if key not in _COMMON_KEYS}
    rates = {model: _number(path, f"{model}_per_million_hours") for model in GpuModel}
    return _filled(
        Mechanism, path, per_million_hours=MappingProxyType(rates), numbers=MappingProxyType(own)
    )


MECHANISMS: Mapping[FaultName, Mechanism] = MappingProxyType(
    {name: _mechanism(name) for name in FaultName}
)
"""As the file has them."""

SHAPES: Mapping[str, float] = MappingProxyType(
    {key: _number("shapes", key) for key in _file()["shapes"]}
)
"""Shapes of precursors by name, with their shares."""

DRAINED_AFTER_S = _number("parts", "drained_after_s")
"""From the moment action is needed until somebody takes the node out."""


@dataclass(frozen=True, slots=True)
class Published:
    """A figure of published fleets.

    Attributes:
        text: As published.
        bounds: Lowest and highest that the simulator may make of it.
        source: Where it is published.
    """

    text: str
    bounds: Range
    source: str


PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        name: Published(text, (bounds[0], bounds[1]), source)
        for name, (text, bounds, source) in _file()["published"].items()
    }
)
"""By the name of the figure."""

STRENGTH_NORMAL_LOG: Range = _range("strength", "normal_log")


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of one simulation; H100s where nothing is said."""

    gpu: GpuParameters = GpuParameters()
    jobs: JobParameters = JobParameters()
    rates: RateParameters = RateParameters()
    storage: StorageParameters = StorageParameters()
    boots: BootParameters = BootParameters()
    parts: PartParameters = PartParameters()


def parameters_for(model: GpuModel, factor: float = 1.0) -> Parameters:
    """Numbers of one model of GPU.

    Args:
        model: Which.
        factor: Moves the background's rates, noise and losses; rates of faults are moved where
            they are drawn.
    """
    gpu = _filled(GpuParameters, f"gpu.{model}")
    moved = {
        one.name: factor * getattr(RateParameters(), one.name)
        for one in fields(RateParameters)
        if one.name.endswith(("_per_hour", "_per_day", "_loss"))
    }
    return Parameters(
        gpu=replace(
            gpu,
            power_noise_watts=factor * gpu.power_noise_watts,
            power_jitter_watts=factor * gpu.power_jitter_watts,
            inlet_wander_celsius=factor * gpu.inlet_wander_celsius,
        ),
        rates=replace(RateParameters(), **moved),
    )
