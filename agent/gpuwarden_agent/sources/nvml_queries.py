"""The NVML calls behind the gpu_* metrics that are no field values; a table, run in the child."""

from __future__ import annotations

import struct
from ctypes import byref
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Lane, Query, Raw
from gpuwarden_agent.sources.nvml_fabric import FABRIC_METRICS, read_fabric

_Numbers = tuple[float | None, ...]
_CORRUPTED_INFOROM = 14


def _getter(name: str, metric: str, *arguments: int, scale: float = 1.0, form: str = "I") -> Query:
    """A call that gives one number: `form` is its type in C, by the letters of struct."""

    def read(caller: Caller, gpu: Gpu) -> _Numbers:
        return (caller.call(name, gpu.handle, *arguments),)

    raw = Raw(name, form, (metric,), arguments)
    return Query(":".join((name, *map(str, arguments))), read, (metric,), scale, raw)


def _versioned(name: str, metric: str, *fields: int) -> Query:
    """A call that gives one int behind a version and other members that the caller sets."""

    def read(caller: Caller, gpu: Gpu) -> _Numbers:
        return (caller.call(name, gpu.handle, *fields),)

    size = 8 + 4 * len(fields)
    start = struct.pack(f"={1 + len(fields)}I", size | 1 << 24, *fields)  # NVML_STRUCT_VERSION
    raw = Raw(name, f"{len(start)}xi", (metric,), start=start)
    return Query(":".join((name, *map(str, fields))), read, (metric,), raw=raw)


def _known(name: str, call: str) -> Any:
    """What an older pynvml does not have is a call that it does not have."""
    found = getattr(pynvml, name, None)
    if found is None:
        raise CallError(call, codes.FUNCTION_NOT_FOUND)
    return found


def _utilization(caller: Caller, gpu: Gpu) -> _Numbers:
    rates = caller.call("nvmlDeviceGetUtilizationRates", gpu.handle)
    return rates.gpu, rates.memory


def _memory(caller: Caller, gpu: Gpu) -> _Numbers:
    version = _known("nvmlMemory_v2", "nvmlDeviceGetMemoryInfo_v2")
    memory = caller.call("nvmlDeviceGetMemoryInfo", gpu.handle, version)
    return memory.used, memory.total, memory.reserved


def _memory_v1(caller: Caller, gpu: Gpu) -> _Numbers:
    memory = caller.call("nvmlDeviceGetMemoryInfo", gpu.handle)
    return memory.used, memory.total, None


def _bar1(caller: Caller, gpu: Gpu) -> _Numbers:
    memory = caller.call("nvmlDeviceGetBAR1MemoryInfo", gpu.handle)
    return memory.bar1Used, memory.bar1Total


def _remapped_rows(caller: Caller, gpu: Gpu) -> _Numbers:
    return tuple(caller.call("nvmlDeviceGetRemappedRows", gpu.handle))


def _histogram(caller: Caller, gpu: Gpu) -> _Numbers:
    banks = caller.call("nvmlDeviceGetRowRemapperHistogram", gpu.handle)
    return banks.max, banks.high, banks.partial, banks.low, banks.none


def _sram(caller: Caller, gpu: Gpu) -> _Numbers:
    name = "nvmlDeviceGetSramEccErrorStatus"
    found = _known("c_nvmlEccSramErrorStatus_v1_t", name)()
    caller.call(name, gpu.handle, byref(found))
    return tuple(getattr(found, member) for member, _ in _SRAM)


def _pair(name: str, *metrics: str) -> Query:
    def read(caller: Caller, gpu: Gpu) -> _Numbers:
        return tuple(caller.call(name, gpu.handle))

    return Query(name, read, metrics)


def _inforom(caller: Caller, gpu: Gpu) -> _Numbers:
    try:
        caller.call("nvmlDeviceValidateInforom", gpu.handle)
    except CallError as error:
        if error.code == _CORRUPTED_INFOROM:
            return (0.0,)
        raise
    return (1.0,)


def _ecc(metric: str, error_type: int, counter_type: int) -> Query:
    return _getter("nvmlDeviceGetTotalEccErrors", metric, error_type, counter_type, form="Q")


# Members of nvmlEccSramErrorStatus_v1_t; "parity" and "SEC-DED" are uncorrected errors.
_SRAM = (
    ("volatileCor", "gpu_sram_corrected_volatile_total"),
    ("volatileUncParity", "gpu_sram_parity_uncorrected_volatile_total"),
    ("volatileUncSecDed", "gpu_sram_secded_uncorrected_volatile_total"),
    ("aggregateCor", "gpu_sram_corrected_aggregate_total"),
    ("aggregateUncParity", "gpu_sram_parity_uncorrected_aggregate_total"),
    ("aggregateUncSecDed", "gpu_sram_secded_uncorrected_aggregate_total"),
    ("aggregateUncBucketL2", "gpu_sram_l2_uncorrected_aggregate_total"),
    ("aggregateUncBucketSm", "gpu_sram_sm_uncorrected_aggregate_total"),
    ("aggregateUncBucketPcie", "gpu_sram_pcie_uncorrected_aggregate_total"),
    ("aggregateUncBucketMcu", "gpu_sram_mcu_uncorrected_aggregate_total"),
    ("aggregateUncBucketOther", "gpu_sram_other_uncorrected_aggregate_total"),
    ("bThresholdExceeded", "gpu_sram_threshold_exceeded"),
)
_MEMORY = ("gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_memory_reserved_bytes")
_RATES = ("gpu_utilization_ratio", "gpu_memory_utilization_ratio")
_REMAPS = (
    "gpu_rows_remapped_correctable_total",
    "gpu_rows_remapped_uncorrectable_total",
    "gpu_row_remap_pending",
    "gpu_row_remap_failure",
)

# nvmlMemory_v2_t: version, total, reserved, free, used
_RAW_MEMORY = Raw(
    "nvmlDeviceGetMemoryInfo_v2",
    "8xQQ8xQ",
    ("gpu_memory_total_bytes", "gpu_memory_reserved_bytes", "gpu_memory_used_bytes"),
    start=struct.pack("=I", 40 | 2 << 24),
)

# NVML API reference, enums: sensor 0 = GPU die; threshold 0 = shutdown, 1 = slowdown, 2 = memory's
# highest, 3 = GPU's highest; clock 1 = SM, 2 = memory; ECC error type 0 = corrected,
# 1 = uncorrected; ECC counter 0 = volatile, 1 = aggregate. Power is in mW, energy in mJ, clocks in
# MHz, utilisation and fan speed in percent. Alternatives of one metric stand in one tuple: newer
# call first, the call that older drivers have behind it.
QUERIES: dict[Lane, tuple[tuple[Query, ...], ...]] = {
    Lane.POLL: (
        (
            _versioned("nvmlDeviceGetTemperatureV", "gpu_temperature_celsius", 0),
            _getter("nvmlDeviceGetTemperature", "gpu_temperature_celsius", 0),
        ),
        (_versioned("nvmlDeviceGetMarginTemperature", "gpu_temperature_margin_celsius"),),
        (_getter("nvmlDeviceGetPowerUsage", "gpu_power_watts", scale=1e-3),),
        (_getter("nvmlDeviceGetEnforcedPowerLimit", "gpu_power_limit_watts", scale=1e-3),),
        (
            _getter(
                "nvmlDeviceGetTotalEnergyConsumption",
                "gpu_energy_joules_total",
                scale=1e-3,
                form="Q",
            ),
        ),
        (_getter("nvmlDeviceGetClockInfo", "gpu_sm_clock_hertz", 1, scale=1e6),),
        (_getter("nvmlDeviceGetClockInfo", "gpu_memory_clock_hertz", 2, scale=1e6),),
        (_getter("nvmlDeviceGetPerformanceState", "gpu_performance_state"),),
        (
            _getter("nvmlDeviceGetCurrentClocksEventReasons", "gpu_clock_event_reasons", form="Q"),
            _getter(
                "nvmlDeviceGetCurrentClocksThrottleReasons", "gpu_clock_event_reasons", form="Q"
            ),
        ),
        (
            Query(
                "nvmlDeviceGetUtilizationRates",
                _utilization,
                _RATES,
                scale=1e-2,
                raw=Raw("nvmlDeviceGetUtilizationRates", "II", _RATES),
            ),
        ),
        (
            Query("nvmlDeviceGetMemoryInfo_v2", _memory, _MEMORY, raw=_RAW_MEMORY),
            Query("nvmlDeviceGetMemoryInfo", _memory_v1, _MEMORY),
        ),
        (_ecc("gpu_ecc_corrected_volatile_total", 0, 0),),
        (_ecc("gpu_ecc_uncorrected_volatile_total", 1, 0),),
        (_ecc("gpu_ecc_corrected_aggregate_total", 0, 1),),
        (_ecc("gpu_ecc_uncorrected_aggregate_total", 1, 1),),
        (
            Query(
                "nvmlDeviceGetRemappedRows",
                _remapped_rows,
                _REMAPS,
                raw=Raw("nvmlDeviceGetRemappedRows", "IIII", _REMAPS, results=(0, 4, 8, 12)),
            ),
        ),
        (_getter("nvmlDeviceGetPcieReplayCounter", "gpu_pcie_replay_total"),),
        (_getter("nvmlDeviceGetCurrPcieLinkGeneration", "gpu_pcie_link_generation"),),
        (_getter("nvmlDeviceGetCurrPcieLinkWidth", "gpu_pcie_link_width"),),
    ),
    Lane.MINUTE: (
        (_getter("nvmlDeviceGetFanSpeed", "gpu_fan_speed_ratio", scale=1e-2),),
        (
            Query(
                "nvmlDeviceGetBAR1MemoryInfo",
                _bar1,
                ("gpu_bar1_used_bytes", "gpu_bar1_total_bytes"),
            ),
        ),
        (_pair("nvmlDeviceGetEccMode", "gpu_ecc_mode", "gpu_ecc_mode_pending"),),
        (_pair("nvmlDeviceGetMigMode", "gpu_mig_mode", "gpu_mig_mode_pending"),),
        (_getter("nvmlDeviceGetPersistenceMode", "gpu_persistence_mode"),),
        (Query("nvmlDeviceGetSramEccErrorStatus", _sram, tuple(metric for _, metric in _SRAM)),),
        (
            Query(
                "nvmlDeviceGetRowRemapperHistogram",
                _histogram,
                tuple(
                    f"gpu_row_remap_banks_{left}"
                    for left in ("max", "high", "partial", "low", "none")
                ),
            ),
        ),
        (
            _pair(
                "nvmlDeviceGetRepairStatus", "gpu_channel_repair_pending", "gpu_tpc_repair_pending"
            ),
        ),
        (_getter("nvmlDeviceGetUnrepairableMemoryFlag_v1", "gpu_memory_unrepairable"),),
        (
            Query("nvmlDeviceGetGpuFabricInfoV:3", read_fabric(3), FABRIC_METRICS),
            Query("nvmlDeviceGetGpuFabricInfoV:2", read_fabric(2), FABRIC_METRICS),
        ),
    ),
    Lane.HOUR: (
        (_getter("nvmlDeviceGetTemperatureThreshold", "gpu_shutdown_temperature_celsius", 0),),
        (_getter("nvmlDeviceGetTemperatureThreshold", "gpu_slowdown_temperature_celsius", 1),),
        (_getter("nvmlDeviceGetTemperatureThreshold", "gpu_memory_temperature_max_celsius", 2),),
        (_getter("nvmlDeviceGetTemperatureThreshold", "gpu_temperature_max_celsius", 3),),
        (_getter("nvmlDeviceGetMaxClockInfo", "gpu_sm_clock_max_hertz", 1, scale=1e6),),
        (_getter("nvmlDeviceGetMaxClockInfo", "gpu_memory_clock_max_hertz", 2, scale=1e6),),
        (_getter("nvmlDeviceGetMaxPcieLinkGeneration", "gpu_pcie_link_generation_max"),),
        (_getter("nvmlDeviceGetMaxPcieLinkWidth", "gpu_pcie_link_width_max"),),
        (
            _getter(
                "nvmlDeviceGetPowerManagementDefaultLimit",
                "gpu_power_limit_default_watts",
                scale=1e-3,
            ),
        ),
        (_getter("nvmlDeviceGetVirtualizationMode", "gpu_virtualization_mode"),),
        (Query("nvmlDeviceValidateInforom", _inforom, ("gpu_inforom_valid",)),),
    ),
}
