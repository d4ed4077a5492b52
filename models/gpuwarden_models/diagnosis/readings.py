"""What is read of a plant: ticks become the counters and gauges that a diagnosis gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gpuwarden_models.diagnosis.mechanics import Tick, tick
from gpuwarden_models.diagnosis.plant import (
    BLOCK,
    DISK_S,
    GPUS,
    MOUNTS,
    NIC_BYTES,
    REQUEST,
    Floats,
    Parts,
    Site,
)
from gpuwarden_verdict.diagnosis.window import JobSpan, Strip, Window
from gpuwarden_wire.metrics import EntityKind

STEP_S = 60.0
_TICK_S = 10.0
_CLOCK, _IDLE_W = 1.98e9, 75.0
_UNREAD = 0.01
"""Share of the node minutes of which nothing arrives."""
Recorded = dict[str, list[Floats]]


def play(
    site: Site,
    state_at: Callable[[float], Parts],
    minutes: int,
    first: int,
    rng: np.random.Generator,
) -> Window:
    """A window of a plant.

    Args:
        site: The plant; its jobs go on where they stand.
        state_at: Parts by seconds since the window's begin.
        minutes: Length.
        first: Minute from which it is asked about.
        rng: Noise.
    """
    noted: dict[EntityKind, Recorded] = {kind: {} for kind in EntityKind}
    told: list[Floats] = []
    ticks = round(STEP_S / _TICK_S)
    for minute in range(minutes):
        begin = minute * STEP_S
        parts = state_at(begin)
        seen = [tick(site, parts, begin + n * _TICK_S, _TICK_S) for n in range(ticks)]
        told.append(np.mean([one.steps for one in seen], axis=0))
        for kind, values in _minute(site, parts, seen, rng).items():
            for name, row in values.items():
                noted[kind].setdefault(name, []).append(row)
    return _window(site, noted, np.array(told).T, first, rng)


def _minute(
    site: Site, parts: Parts, seen: list[Tick], rng: np.random.Generator
) -> Mapping[EntityKind, Mapping[str, Floats]]:
    mean = {
        name: np.mean([getattr(one, name) for one in seen], axis=0)
        for name in ("busy", "spins", "sent", "read", "written", "cached", "saves", "starved")
    }
    return {
        EntityKind.GPU: _gpus(site, parts, mean, rng),
        EntityKind.NIC: _nics(parts, mean, rng),
        EntityKind.NODE: _nodes(site, parts, mean, rng),
        EntityKind.DISK: _disks(parts, mean, rng),
        EntityKind.MOUNT: _mounts(site, parts, seen, rng),
    }


def _gpus(
    site: Site, parts: Parts, mean: Mapping[str, Floats], rng: np.random.Generator
) -> Mapping[str, Floats]:
    count = parts.clock.size
    full = np.full(count, 90.0)
    for work in site.works:
        full[work.gpus] = work.watts
    active = mean["busy"] + mean["spins"]
    drawn = mean["busy"] * parts.clock**1.6 + 0.22 * mean["spins"]
    watts = np.minimum(_IDLE_W + (full - _IDLE_W) * drawn, parts.watts_limit)
    clock = _CLOCK * np.where(active > 0.05, parts.clock, 0.6) * rng.normal(1, 0.004, count)
    held = np.clip(parts.heat * (active > 0.3) * rng.uniform(0.8, 1.2, count), 0.0, 1.0)
    return {
        "gpu_utilization_ratio": np.clip(active * rng.normal(1, 0.01, count), 0.0, 1.0),
        "gpu_power_watts": watts * rng.normal(1, 0.015, count),
        "gpu_power_limit_watts": parts.watts_limit.copy(),
        "gpu_sm_clock_hertz": clock,
        "gpu_temperature_celsius": 30.0
        + watts / 18.0
        + 18.0 * parts.heat
        + rng.normal(0, 1, count),
        "gpu_clock_event_reasons": np.where(held > 0.3, 64.0, 4.0 * (watts > 0.9 * 700)),
        "gpu_thermal_slowdown_seconds_total": held,
        "gpu_power_brake_seconds_total": np.zeros(count),
        "gpu_memory_used_bytes": np.where(full > 90.0, 6e10, 5e8),
        "gpu_pcie_link_width": parts.lanes.copy(),
        "gpu_pcie_link_width_max": np.full(count, 16.0),
        "gpu_pcie_link_generation": np.full(count, 5.0),
        "gpu_pcie_link_generation_max": np.full(count, 5.0),
    }


def _nics(
    parts: Parts, mean: Mapping[str, Floats], rng: np.random.Generator
) -> Mapping[str, Floats]:
    count, sent = parts.link.size, mean["sent"]
    load = sent / (0.5 * NIC_BYTES)
    noise = rng.poisson(0.02, count) / 60.0  # a stray error now and then
    lost = rng.poisson(parts.lost * np.minimum(1.0, 3 * load)) / 60.0
    waits = (200.0 + 4e4 * load) * parts.jam * rng.lognormal(0.0, 0.25, count)
    return {
        "nic_port_state": np.full(count, 4.0),
        "nic_rate_bytes_per_second": NIC_BYTES * parts.trained,
        "nic_transmitted_bytes_total": sent * rng.normal(1, 0.01, count)
        + rng.uniform(0, 2e4, count),
        "nic_transmit_wait_total": waits,
        "nic_symbol_errors_total": noise + 0.3 * lost,
        "nic_receive_errors_total": 0.1 * lost,
        "nic_transmit_discards_total": np.zeros(count),
        "nic_out_of_sequence_total": 0.6 * lost,
        "nic_local_ack_timeouts_total": np.zeros(count),
    }


def _nodes(
    site: Site, parts: Parts, mean: Mapping[str, Floats], rng: np.random.Generator
) -> Mapping[str, Floats]:
    nodes = site.nodes
    presses, used = np.full(nodes, 0.004), np.zeros(nodes)
    for work in site.works:
        presses[work.nodes] += work.presses
        used[work.nodes] = 1.0
    busy = (mean["busy"] + mean["spins"]).reshape(nodes, GPUS).mean(axis=1)
    short = 1.0 - parts.cpu
    stolen, hung = short * (1.0 - parts.stuck), short * parts.stuck
    calls = (9e3 + 1.5e5 * busy) * rng.normal(1, 0.05, nodes) * (1.0 - 0.9 * hung)
    waits = mean["saves"] + mean["starved"] * (mean["read"] > 1e6)
    return {
        "node_load1": 3 + 50 * busy + 120 * stolen + rng.normal(0, 2, nodes).clip(-2),
        "node_processes_running": rng.poisson(2.0 + 30.0 * used + 150.0 * stolen).astype(
            np.float64
        ),
        "node_processes_blocked": rng.poisson(0.1 + 6.0 * waits + 20.0 * hung).astype(np.float64),
        "node_interrupts_total": calls,
        "node_context_switches_total": calls * 1.4 * rng.normal(1, 0.05, nodes),
        "node_pressure_cpu_seconds_total": np.clip(
            (presses + 0.9 * stolen) * rng.lognormal(0, 0.2, nodes), 0, 1
        ),
        "node_pressure_io_seconds_total": np.clip(
            (0.002 + 0.4 * waits) * rng.lognormal(0, 0.2, nodes), 0, 1
        ),
        "node_pressure_memory_seconds_total": rng.exponential(1e-4, nodes),
    }


def _disks(
    parts: Parts, mean: Mapping[str, Floats], rng: np.random.Generator
) -> Mapping[str, Floats]:
    count = parts.disk.size
    reads = mean["cached"] / BLOCK + rng.uniform(5, 30, count)
    writes = rng.uniform(10, 60, count)
    each = DISK_S * parts.disk * rng.lognormal(0, 0.15, count)
    return {
        "disk_reads_completed_total": reads,
        "disk_read_bytes_total": reads * BLOCK,
        "disk_read_seconds_total": reads * each,
        "disk_writes_completed_total": writes,
        "disk_written_bytes_total": writes * BLOCK,
        "disk_write_seconds_total": writes * each * 2,
        "disk_io_seconds_total": np.clip((reads + writes) * each / 4.0, 0, 1),
        "disk_media_errors_total": np.zeros(count),
    }


def _mounts(
    site: Site, parts: Parts, seen: list[Tick], rng: np.random.Generator
) -> Mapping[str, Floats]:
    """The mount of the jobs, and after it, node by node, one that hardly anybody uses."""
    busy, quiet = _used(parts, seen, rng), _unused(site, rng)
    return {name: np.stack([one, quiet[name]], axis=1).ravel() for name, one in busy.items()}


def _used(parts: Parts, seen: list[Tick], rng: np.random.Generator) -> Mapping[str, Floats]:
    count = parts.client_s.size
    idle = rng.poisson(0.5, count) + 0.1
    asked = np.array([(one.read + one.written) / REQUEST + idle for one in seen])
    noise = rng.lognormal(0, 0.1, count)
    answers = np.array([one.answer_s for one in seen]) * asked * noise
    queues = np.array([one.queue_s for one in seen]) * asked * noise
    operations = asked.mean(axis=0)
    lost = parts.client_lost + (parts.server_lost if parts.server_from == 0 else 0.0)
    return {
        "mount_read_bytes_total": np.mean([one.read for one in seen], axis=0),
        "mount_written_bytes_total": np.mean([one.written for one in seen], axis=0),
        "mount_operations_total": operations,
        "mount_round_trip_seconds_total": answers.mean(axis=0),
        "mount_queue_seconds_total": queues.mean(axis=0),
        "mount_execute_seconds_total": (answers + queues).mean(axis=0) * 1.01,
        "mount_retransmits_total": rng.poisson(lost * operations * 60.0) / 60.0,
        "mount_major_timeouts_total": np.zeros(count),
        "mount_slots_in_use_ratio": np.mean([one.slots for one in seen], axis=0),
        "mount_backlog_requests": np.mean([one.backlog for one in seen], axis=0),
    }


def _unused(site: Site, rng: np.random.Generator) -> Mapping[str, Floats]:
    asked = rng.uniform(0.5, 6.0, site.nodes)
    answers = asked * 0.003 * rng.lognormal(0, 0.2, site.nodes)
    zeros = np.zeros(site.nodes)
    return {
        "mount_read_bytes_total": asked * 4e3,
        "mount_written_bytes_total": asked * 4e3,
        "mount_operations_total": asked,
        "mount_round_trip_seconds_total": answers,
        "mount_queue_seconds_total": asked * 1e-4,
        "mount_execute_seconds_total": answers + asked * 1e-4,
        "mount_retransmits_total": zeros,
        "mount_major_timeouts_total": zeros,
        "mount_slots_in_use_ratio": zeros + 0.02,
        "mount_backlog_requests": zeros,
    }


def _window(
    site: Site,
    noted: Mapping[EntityKind, Recorded],
    steps: Floats,
    first: int,
    rng: np.random.Generator,
) -> Window:
    minutes = steps.shape[1]
    names = tuple(f"n{row + 1:03d}" for row in range(site.nodes))
    silent = rng.random((site.nodes, minutes)) < _UNREAD
    strips = {}
    for kind, values in noted.items():
        if values:
            each = len(next(iter(values.values()))[0]) // site.nodes
            node = np.repeat(np.arange(site.nodes), each)
            keys = tuple(_key(kind, names, row, each) for row in range(node.size))
            table = {name: np.array(rows).T for name, rows in values.items()}
            for one in table.values():
                one[silent[node]] = np.nan
            strips[kind] = Strip(kind, keys, node, np.tile(np.arange(each), site.nodes), table)
    leaves = {f"leaf:l{one}": np.flatnonzero(site.leaf == one) for one in np.unique(site.leaf)}
    jobs = tuple(
        JobSpan(
            work.name,
            work.nodes,
            frozenset(),
            -1e6,
            None,
            _told(steps[work.nodes[0]]) if work.tells else None,
        )
        for work in site.works
    )
    times = np.arange(minutes, dtype=np.float64) * STEP_S + 1_772_323_200.0
    return Window(times, STEP_S, first, names, strips, leaves, jobs)


def _told(rate: Floats) -> Floats:
    return np.where(rate > 1e-3, 1.0 / np.maximum(rate, 1e-3), np.nan)


def _key(kind: EntityKind, names: tuple[str, ...], row: int, each: int) -> str:
    node, index = names[row // each], row % each
    match kind:
        case EntityKind.GPU:
            return f"GPU-{node}-{index}"
        case EntityKind.NIC:
            return f"{node}/mlx5_{index}/1"
        case EntityKind.DISK:
            return f"{node}/nvme0n1"
        case EntityKind.MOUNT:
            return f"{node}/{MOUNTS[index]}"
        case _:
            return node
