"""Readings of one GPU that hardly ever change, asked once in a while; run in the child."""

from __future__ import annotations

import ctypes

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import (
    Caller,
    CallError,
    Gpu,
    Query,
    Readings,
    getter,
    read_group,
)

SLOW_EVERY_S = 30.0
"""Modes, limits and worn parts change by an operator's hand or over days."""


def _modes(name: str, *metrics: str) -> Query:
    """A call that answers with one number a metric, such as present and pending mode."""

    def read(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
        return tuple(caller.call(name, gpu.handle)[: len(metrics)])

    return Query(name, read, metrics)


def _histogram(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    spare = caller.call("nvmlDeviceGetRowRemapperHistogram", gpu.handle)
    return spare.max, spare.high, spare.partial, spare.low, spare.none


def _sram(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    name = "nvmlDeviceGetSramEccErrorStatus"
    if not hasattr(pynvml, "c_nvmlEccSramErrorStatus_v1_t"):
        raise CallError(name, codes.FUNCTION_NOT_FOUND)
    found = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    caller.call_pointer(name, gpu.handle, ctypes.byref(found))
    return (
        found.aggregateUncParity,
        found.aggregateUncSecDed,
        found.aggregateCor,
        found.bThresholdExceeded,
    )


def _fabric(caller: Caller, gpu: Gpu) -> tuple[float, ...]:
    name = "nvmlDeviceGetGpuFabricInfoV"
    if not hasattr(pynvml, "c_nvmlGpuFabricInfo_v2_t"):
        raise CallError(name, codes.FUNCTION_NOT_FOUND)
    found = pynvml.c_nvmlGpuFabricInfo_v2_t()
    caller.call_pointer(name, gpu.handle, ctypes.byref(found))
    if found.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise CallError(name, codes.NOT_SUPPORTED)
    return found.state, found.status, found.healthMask


# Thresholds of nvmlTemperatureThresholds_t: 0 shutdown, 1 slowdown. Clocks: 1 SM, 2 memory.
SLOW_QUERIES: tuple[tuple[Query, ...], ...] = (
    (getter("nvmlDeviceGetTemperatureThreshold", "gpu_slowdown_temperature_celsius", 1),),
    (getter("nvmlDeviceGetTemperatureThreshold", "gpu_shutdown_temperature_celsius", 0),),
    (getter("nvmlDeviceGetEnforcedPowerLimit", "gpu_power_limit_watts", scale=1e-3),),
    (
        getter(
            "nvmlDeviceGetPowerManagementDefaultLimit", "gpu_power_limit_default_watts", scale=1e-3
        ),
    ),
    (getter("nvmlDeviceGetMaxClockInfo", "gpu_sm_clock_max_hertz", 1, scale=1e6),),
    (getter("nvmlDeviceGetMaxClockInfo", "gpu_memory_clock_max_hertz", 2, scale=1e6),),
    (getter("nvmlDeviceGetMaxPcieLinkGeneration", "gpu_pcie_link_generation_max"),),
    (getter("nvmlDeviceGetMaxPcieLinkWidth", "gpu_pcie_link_width_max"),),
    (getter("nvmlDeviceGetPersistenceMode", "gpu_persistence_mode"),),
    (_modes("nvmlDeviceGetEccMode", "gpu_ecc_mode", "gpu_ecc_mode_pending"),),
    (_modes("nvmlDeviceGetMigMode", "gpu_mig_mode"),),
    (_modes("nvmlDeviceGetRepairStatus", "gpu_channel_repair_pending", "gpu_tpc_repair_pending"),),
    (getter("nvmlDeviceGetUnrepairableMemoryFlag_v1", "gpu_memory_unrepairable"),),
    (
        Query(
            "nvmlDeviceGetRowRemapperHistogram",
            _histogram,
            (
                "gpu_row_remap_banks_max",
                "gpu_row_remap_banks_high",
                "gpu_row_remap_banks_partial",
                "gpu_row_remap_banks_low",
                "gpu_row_remap_banks_none",
            ),
        ),
    ),
    (
        Query(
            "nvmlDeviceGetSramEccErrorStatus",
            _sram,
            (
                "gpu_sram_parity_uncorrected_aggregate_total",
                "gpu_sram_secded_uncorrected_aggregate_total",
                "gpu_sram_corrected_aggregate_total",
                "gpu_sram_threshold_exceeded",
            ),
        ),
    ),
    (
        Query(
            "nvmlDeviceGetGpuFabricInfoV",
            _fabric,
            ("gpu_fabric_state", "gpu_fabric_error_code", "gpu_fabric_health_mask"),
        ),
    ),
)


def read_slow(caller: Caller, gpu: Gpu, readings: Readings, now: float) -> None:
    """Give what was read at most SLOW_EVERY_S ago, reading it again where it is older.

    Raises:
        CallError: The GPU is lost.
    """
    if gpu.slow_readings is None or now >= gpu.slow_due:
        fresh = Readings()
        for group in SLOW_QUERIES:
            read_group(caller, gpu, group, fresh)
        gpu.slow_readings = fresh
        gpu.slow_due = now + SLOW_EVERY_S
    readings.values.update(gpu.slow_readings.values)
    readings.missing.update(gpu.slow_readings.missing)
