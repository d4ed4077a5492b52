"""Readings of one GPU: each lane at its own pace, the latest of all together in every answer."""

from __future__ import annotations

from gpuwarden_agent.sources.nvml_calls import Caller, Gpu, Lane, Readings, read_group
from gpuwarden_agent.sources.nvml_fields import GROUPS, read_fields
from gpuwarden_agent.sources.nvml_links import (
    C2C_FIELDS,
    LINK_FIELDS,
    read_link_fields,
    read_links,
)
from gpuwarden_agent.sources.nvml_queries import QUERIES

_SPREAD_OVER = 8
"""GPUs of a node take their turns in a slow lane apart, so that no poll reads all of all."""

_MODES = ("gpu_mig_mode", "gpu_ecc_mode")
_MOST_C2C_LINKS = 64


def read_lanes(caller: Caller, gpu: Gpu, now: float) -> Readings:
    """Read what is due; what is not keeps its latest reading.

    Args:
        caller: Makes the calls.
        gpu: The GPU; what it does not answer is remembered with it.
        now: Monotonic seconds.

    Raises:
        CallError: The GPU is lost.
    """
    _read_due(caller, gpu, now)
    if _modes_changed(gpu):
        gpu.forget_support(now)
        _read_due(caller, gpu, now)
    gpu.modes = _modes(gpu)
    together = Readings()
    for lane in Lane:
        together.values.update(gpu.lanes[lane].values)
        together.missing.update(gpu.lanes[lane].missing)
    return together


def _read_due(caller: Caller, gpu: Gpu, now: float) -> None:
    for lane in Lane:
        due = gpu.due.get(lane)
        if due is not None and now < due:
            continue
        readings = Readings()
        for query in QUERIES[lane]:
            read_group(caller, gpu, query, readings)
        for group in GROUPS[lane]:
            read_fields(caller, gpu, group, readings)
        _read_link_lane(caller, gpu, lane, readings)
        gpu.lanes[lane] = readings
        turn = gpu.index % _SPREAD_OVER / _SPREAD_OVER if due is None else 0.0
        gpu.due[lane] = now + lane.value * (1.0 - turn)


def _read_link_lane(caller: Caller, gpu: Gpu, lane: Lane, readings: Readings) -> None:
    match lane:
        case Lane.POLL:
            read_links(caller, gpu, readings)
        case Lane.MINUTE:
            read_link_fields(caller, gpu, LINK_FIELDS, gpu.links or (), readings)
            count = int(readings.values.get("gpu_c2c_links", 0))
            links = range(min(count, _MOST_C2C_LINKS))
            read_link_fields(caller, gpu, C2C_FIELDS, links, readings)
        case Lane.HOUR:
            return


def note_processes(gpu: Gpu, readings: Readings) -> None:
    """The number of processes, which have a pace of their own."""
    if gpu.processes is not None:
        readings.values["gpu_compute_processes"] = float(gpu.processes)
    else:
        readings.miss(("gpu_compute_processes",), gpu.processes_code)


def _modes(gpu: Gpu) -> tuple[float | None, ...]:
    return tuple(gpu.lanes[Lane.MINUTE].values.get(metric) for metric in _MODES)


def _modes_changed(gpu: Gpu) -> bool:
    """A mode that cannot be read is no change."""
    if gpu.modes is None:
        return False
    pairs = zip(gpu.modes, _modes(gpu), strict=True)
    return any(a is not None and b is not None and a != b for a, b in pairs)
