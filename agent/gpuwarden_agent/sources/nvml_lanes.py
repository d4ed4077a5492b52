"""Readings of one GPU: each lane at its own pace, the latest of all together in every answer."""

from __future__ import annotations

from gpuwarden_agent.sources.nvml_calls import (
    Caller,
    Columns,
    Gpu,
    Lane,
    Readings,
    columns_of,
    read_group,
)
from gpuwarden_agent.sources.nvml_fields import GROUPS, read_fields
from gpuwarden_agent.sources.nvml_gpm import sample
from gpuwarden_agent.sources.nvml_links import (
    C2C_FIELDS,
    LINK_FIELDS,
    read_link_fields,
    read_links,
)
from gpuwarden_agent.sources.nvml_mig import read_instances
from gpuwarden_agent.sources.nvml_plan import make_plan
from gpuwarden_agent.sources.nvml_processes import read_processes
from gpuwarden_agent.sources.nvml_queries import QUERIES

_SPREAD_OVER = 2
"""GPUs of a node take their turns in a slow lane apart, so that no poll reads all of all. By
halves: of those that come together only the first finds the processor's caches cold."""

_MODES = ("gpu_mig_mode", "gpu_ecc_mode")
_MOST_C2C_LINKS = 64


def read_lanes(
    caller: Caller, gpu: Gpu, now: float, polled: Columns | None
) -> tuple[Columns, Columns]:
    """Read what is due; what is not keeps its latest reading.

    Args:
        caller: Makes the calls.
        gpu: The GPU; what it does not answer is remembered with it.
        now: Monotonic seconds.
        polled: What the GPU's plan brought, None where it has none that holds.

    Returns:
        Readings of the poll, and all others; the same object where none was read anew.

    Raises:
        CallError: The GPU is lost.
    """
    if polled is None:
        polled = _poll_without_plan(caller, gpu)
    elif now < gpu.next_due and gpu.rest is not None:
        gpu.pids = None
        return polled, gpu.rest
    _read_due(caller, gpu, now)
    if _modes_changed(gpu):
        gpu.forget_support(now)
        gpu.gpm.forget()
        polled = _poll_without_plan(caller, gpu)
        _read_due(caller, gpu, now)
    gpu.modes = _modes(gpu)
    _count_processes(caller, gpu, now)
    if sample(caller, gpu, now):
        gpu.rest = None
    gpu.next_due = min(gpu.processes_due, gpu.gpm.due, *gpu.due.values())
    if gpu.rest is None:
        gpu.rest = columns_of(*gpu.lanes.values(), _processes_of(gpu), gpu.gpm.readings)
    return polled, gpu.rest


def _poll_without_plan(caller: Caller, gpu: Gpu) -> Columns:
    readings = _read_lane(caller, gpu, Lane.POLL)
    gpu.plan = make_plan(caller, gpu, readings)
    return columns_of(readings)


def _read_due(caller: Caller, gpu: Gpu, now: float) -> None:
    for lane in (Lane.MINUTE, Lane.HOUR):
        due = gpu.due.get(lane)
        if due is not None and now < due:
            continue
        gpu.lanes[lane] = _read_lane(caller, gpu, lane)
        gpu.rest = None
        turn = gpu.index % _SPREAD_OVER / _SPREAD_OVER if due is None else 0.0
        gpu.due[lane] = now + lane.value * (1.0 - turn)


def _read_lane(caller: Caller, gpu: Gpu, lane: Lane) -> Readings:
    readings = Readings()
    for query in QUERIES[lane]:
        read_group(caller, gpu, query, readings)
    for group in GROUPS[lane]:
        read_fields(caller, gpu, group, readings)
    _read_link_lane(caller, gpu, lane, readings)
    if lane is Lane.MINUTE:
        read_instances(caller, gpu, readings)
    return readings


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


def _count_processes(caller: Caller, gpu: Gpu, now: float) -> None:
    before = gpu.processes, gpu.processes_code
    gpu.pids = read_processes(caller, gpu, now)
    if (gpu.processes, gpu.processes_code) != before:
        gpu.rest = None


def _processes_of(gpu: Gpu) -> Readings:
    """The number of processes, which have a pace of their own."""
    readings = Readings()
    if gpu.processes is not None:
        readings.values["gpu_compute_processes"] = float(gpu.processes)
    else:
        readings.miss(("gpu_compute_processes",), gpu.processes_code)
    return readings


def _modes(gpu: Gpu) -> tuple[float | None, ...]:
    return tuple(gpu.lanes[Lane.MINUTE].values.get(metric) for metric in _MODES)


def _modes_changed(gpu: Gpu) -> bool:
    """A mode that cannot be read is no change."""
    if gpu.modes is None:
        return False
    pairs = zip(gpu.modes, _modes(gpu), strict=True)
    return any(a is not None and b is not None and a != b for a, b in pairs)
