"""The NVML calls behind the gpu_* metrics, run in the child; the only user of pynvml's getters.

Each call is noted in shared memory while it is in flight. Calls that a GPU does not have are
remembered, so that they are not made again at every poll.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_flight import FlightRecorder

Handle = Any
"""pynvml's device handle: a ctypes pointer to an opaque struct."""

FORGET_SUPPORT_AFTER_S = 3600.0
"""Support is asked afresh hourly: MIG mode and ECC mode change what a GPU answers."""

# "Value not available" as NVML spells it in unsigned fields, nvml.h NVML_VALUE_NOT_AVAILABLE.
_NO_READING = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


class CallError(Exception):
    """An NVML call that did not succeed.

    Attributes:
        call: NVML function.
        code: nvmlReturn_t.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {codes.reason_of(code)}")
        self.call = call
        self.code = code


class Caller:
    """Makes NVML calls by name and notes each while it is in flight."""

    def __init__(self, recorder: FlightRecorder) -> None:
        self._recorder = recorder
        self.gpu_uuid = ""
        """GPU that the calls are about from now on."""

    def call(self, name: str, *arguments: Any, patience_s: float = 0.0) -> Any:
        """Call pynvml's function `name`.

        Raises:
            CallError: NVML's code; FUNCTION_NOT_FOUND where pynvml or the driver lacks the call.
        """
        function = getattr(pynvml, name, None)
        if function is None:
            raise CallError(name, codes.FUNCTION_NOT_FOUND)
        self._recorder.begin(name, self.gpu_uuid, patience_s)
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise CallError(name, error.value) from error
        except UnicodeDecodeError as error:  # pynvml decodes strings; a sick board returns noise
            raise CallError(name, codes.NO_DATA) from error
        finally:
            self._recorder.end()

    def call_pointer(self, name: str, *arguments: Any) -> None:
        """Call the driver's own function with structs that the caller keeps: for hot calls.

        Raises:
            CallError: NVML's code; FUNCTION_NOT_FOUND where the driver lacks the call.
        """
        self._recorder.begin(name, self.gpu_uuid, 0.0)
        try:
            code = pynvml._nvmlGetFunctionPointer(name)(*arguments)
        except pynvml.NVMLError as error:
            raise CallError(name, error.value) from error
        finally:
            self._recorder.end()
        if code != codes.SUCCESS:
            raise CallError(name, code)


@dataclass(slots=True)
class Gpu:
    """One GPU as the child knows it.

    Attributes:
        uuid, pci_bus_id, index, serial, model, vbios_version: As in GpuAnswer.
        handle: Valid for the present poll.
        absent: Keys of queries that this GPU does not answer.
        links: NVLink numbers that exist, None before they were counted.
        link_counts: Last counts by metric and link; kept for links that are down.
        link_readings: What the counters of all links came to, None before they were read.
        links_due: Monotonic seconds from which the counters are read again.
        fields: Room for the field values asked for, None before it is known which.
        link_fields: Likewise for those of its links.
        slow_readings: Readings of what hardly ever changes, None before they were read.
        slow_due: Monotonic seconds from which those are read again.
        forget_at: Monotonic seconds at which support is asked afresh.
        processes_due: Monotonic seconds from which its processes are asked for again.
    """

    uuid: str
    pci_bus_id: str
    index: int
    handle: Handle
    serial: str = ""
    model: str = ""
    vbios_version: str = ""
    absent: set[str] = field(default_factory=set)
    links: tuple[int, ...] | None = None
    link_counts: dict[str, dict[int, float]] = field(default_factory=dict)
    link_readings: Readings | None = None
    links_due: float = 0.0
    fields: Any = None
    link_fields: Any = None
    slow_readings: Readings | None = None
    slow_due: float = 0.0
    forget_at: float = 0.0
    processes_due: float = 0.0

    def forget_support(self, now: float) -> None:
        """Ask afresh what this GPU answers."""
        self.absent.clear()
        self.links = self.fields = self.link_fields = None
        self.link_readings = self.slow_readings = None
        self.forget_at = now + FORGET_SUPPORT_AFTER_S


@dataclass(frozen=True, slots=True)
class Query:
    """One NVML call and the metrics made from it.

    Attributes:
        key: Name of the call with its arguments; what the support memory holds.
        read: Makes the call and returns one raw number a metric.
        metrics: Metric names.
        scale: Factor from NVML's unit to the registry's.
    """

    key: str
    read: Callable[[Caller, Gpu], tuple[float, ...]]
    metrics: tuple[str, ...]
    scale: float = 1.0


def getter(name: str, metric: str, *arguments: int, scale: float = 1.0) -> Query:
    """A call that answers with one number."""

    def read(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
        return (caller.call(name, gpu.handle, *arguments),)

    return Query(":".join((name, *map(str, arguments))), read, (metric,), scale)


def _utilization(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    rates = caller.call("nvmlDeviceGetUtilizationRates", gpu.handle)
    return rates.gpu, rates.memory


def _memory(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    version = getattr(pynvml, "nvmlMemory_v2", None)
    if version is None:
        raise CallError("nvmlDeviceGetMemoryInfo_v2", codes.FUNCTION_NOT_FOUND)
    memory = caller.call("nvmlDeviceGetMemoryInfo", gpu.handle, version)
    return memory.used, memory.total, memory.reserved


def _old_memory(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    memory = caller.call("nvmlDeviceGetMemoryInfo", gpu.handle)
    return memory.used, memory.total


def _remapped_rows(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    rows: tuple[float, ...] = caller.call("nvmlDeviceGetRemappedRows", gpu.handle)
    return rows


def _ecc(metric: str, error_type: int, counter_type: int) -> Query:
    return getter("nvmlDeviceGetTotalEccErrors", metric, error_type, counter_type)


# NVML API reference, enums: sensor 0 = GPU die; clock 1 = SM, 2 = memory;
# ECC error type 0 = corrected, 1 = uncorrected; ECC counter 0 = volatile, 1 = aggregate.
# Power is in mW, energy in mJ, clocks in MHz, utilisation in percent. Alternatives of one metric
# stand in one tuple: newer call first, the call that older drivers have behind it.
QUERIES: tuple[tuple[Query, ...], ...] = (
    (
        getter("nvmlDeviceGetTemperatureV", "gpu_temperature_celsius", 0),
        getter("nvmlDeviceGetTemperature", "gpu_temperature_celsius", 0),
    ),
    (getter("nvmlDeviceGetMarginTemperature", "gpu_temperature_margin_celsius"),),
    (getter("nvmlDeviceGetPowerUsage", "gpu_power_watts", scale=1e-3),),
    (getter("nvmlDeviceGetPerformanceState", "gpu_performance_state"),),
    (getter("nvmlDeviceGetTotalEnergyConsumption", "gpu_energy_joules_total", scale=1e-3),),
    (getter("nvmlDeviceGetClockInfo", "gpu_sm_clock_hertz", 1, scale=1e6),),
    (getter("nvmlDeviceGetClockInfo", "gpu_memory_clock_hertz", 2, scale=1e6),),
    (
        getter("nvmlDeviceGetCurrentClocksEventReasons", "gpu_clock_event_reasons"),
        getter("nvmlDeviceGetCurrentClocksThrottleReasons", "gpu_clock_event_reasons"),
    ),
    (
        Query(
            "nvmlDeviceGetUtilizationRates",
            _utilization,
            ("gpu_utilization_ratio", "gpu_memory_utilization_ratio"),
            scale=1e-2,
        ),
    ),
    (
        Query(
            "nvmlDeviceGetMemoryInfo:2",
            _memory,
            ("gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_memory_reserved_bytes"),
        ),
        # counts what the driver reserves as used
        Query(
            "nvmlDeviceGetMemoryInfo",
            _old_memory,
            ("gpu_memory_used_bytes", "gpu_memory_total_bytes"),
        ),
    ),
    (_ecc("gpu_ecc_corrected_volatile_total", 0, 0),),
    (_ecc("gpu_ecc_uncorrected_volatile_total", 1, 0),),
    (_ecc("gpu_ecc_corrected_aggregate_total", 0, 1),),
    (_ecc("gpu_ecc_uncorrected_aggregate_total", 1, 1),),
    (
        Query(
            "nvmlDeviceGetRemappedRows",
            _remapped_rows,
            (
                "gpu_rows_remapped_correctable_total",
                "gpu_rows_remapped_uncorrectable_total",
                "gpu_row_remap_pending",
                "gpu_row_remap_failure",
            ),
        ),
    ),
    (getter("nvmlDeviceGetPcieReplayCounter", "gpu_pcie_replay_total"),),
    (getter("nvmlDeviceGetCurrPcieLinkGeneration", "gpu_pcie_link_generation"),),
    (getter("nvmlDeviceGetCurrPcieLinkWidth", "gpu_pcie_link_width"),),
)


@dataclass(slots=True)
class Readings:
    """Numbers and codes of one GPU, by metric name."""

    values: dict[str, float] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    def note(self, metric: str, raw: float, scale: float = 1.0) -> None:
        """Keep a raw number, scaled; NVML's "not available" is no number."""
        if raw in _NO_READING:
            self.missing[metric] = codes.NO_DATA
        else:
            self.values[metric] = raw * scale

    def miss(self, metrics: tuple[str, ...], code: int) -> None:
        """Keep why there is no number."""
        for metric in metrics:
            self.missing[metric] = code


def read_group(caller: Caller, gpu: Gpu, group: tuple[Query, ...], readings: Readings) -> None:
    """Read one group of alternatives: the first that this GPU has decides.

    Raises:
        CallError: The GPU is lost; every other code is a missing reading.
    """
    for query in group:
        if query.key in gpu.absent:
            continue
        try:
            numbers = query.read(caller, gpu)
        except CallError as error:
            if error.code in codes.LOST:
                raise
            if error.code in codes.ABSENT:
                gpu.absent.add(query.key)
                continue
            readings.miss(query.metrics, error.code)
            return
        for metric, raw in zip(query.metrics, numbers, strict=True):
            readings.note(metric, raw, query.scale)
        readings.miss(group[0].metrics[len(query.metrics) :], codes.NOT_SUPPORTED)
        return
    readings.miss(group[0].metrics, codes.NOT_SUPPORTED)
