"""What each kind of GPU answers over the NVML stub, in NVML's own units."""

from __future__ import annotations

from collections.abc import Iterable

GIB = 1024**3

_ECC = {
    "ecc_corrected_volatile": 0,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_aggregate": 12,
    "ecc_uncorrected_aggregate": 0,
    "ecc_mode": 1,
    "ecc_mode_pending": 1,
}
_REMAP = {
    "remapped_corrected": 0,
    "remapped_uncorrected": 0,
    "remap_pending": 0,
    "remap_failure": 0,
    "banks_max": 640,
    "banks_high": 0,
    "banks_partial": 0,
    "banks_low": 0,
    "banks_none": 0,
}
_SRAM = {
    **dict.fromkeys(("sram_volatile_corrected", "sram_volatile_parity", "sram_volatile_secded"), 0),
    **dict.fromkeys(("sram_aggregate_parity", "sram_aggregate_secded"), 0),
    "sram_aggregate_corrected": 3,
    **dict.fromkeys(("sram_l2", "sram_sm", "sram_pcie", "sram_mcu", "sram_other"), 0),
    "sram_threshold_exceeded": 0,
}
_LINK_ERRORS = {"link_replays": 0, "link_recoveries": 0, "link_crc_flit_errors": 0}
_COMMON = {
    "temperature": 41,
    "temperature_shutdown": 98,
    "performance_state": 0,
    "persistence_mode": 1,
    "virtualization_mode": 0,
    "inforom_valid": 1,
    "clock_event_reasons": 0,
    "utilization_gpu": 97,
    "utilization_memory": 35,
    "energy_mj": 5_000_000_000,
    "bar1_total": 128 * GIB,
    "bar1_used": GIB // 4,
    "pcie_replays": 0,
    "pcie_width": 16,
    "pcie_width_max": 16,
}


def _fields(numbers: Iterable[int], value: float = 0.0) -> dict[str, float]:
    return {f"field_{number}": value for number in numbers}


_THROTTLED = {**_fields(range(75, 80)), "field_74": 4_000_000_000, **_fields((270, 271))}
_PCIE = {**_fields((95, 169)), **_fields(range(173, 184)), "field_197": 7e12, "field_198": 9e12}
_DRAM = {**_fields((11, 12, 23)), "field_22": 9}
_NVLINK4 = {"field_164": 26_562, "field_138": 5_000_000, "field_139": 6_000_000, "field_160": 0}
# Errors below 206 to 222; a bit error rate of 5e-12 is mantissa 5 in bits 8 to 11, exponent 12.
_NVLINK5 = {
    "field_164": 53_125,
    "field_202": 4_000_000_000,
    "field_204": 3_000_000_000,
    **_fields(range(206, 216)),
    **_fields((219, 221)),
    "field_220": 0x05_0F,
    "field_222": 0x05_0C,
    # Blocks by symbols that were corrected: most none, few one or two.
    **_fields(range(238, 251)),
    "field_235": 90_000_000_000,
    "field_236": 800_000,
    "field_237": 70,
}
# Registered with the fabric, nothing degraded (each flag 2: false), no misconfiguration (1).
_FABRIC = {
    "fabric_state": 3,
    "fabric_error": 0,
    "fabric_clique": 1,
    "fabric_mask": 0b0001_10_10_10_10,
    "fabric_health": 1,
    "fabric_version": 3,
}

A100_NUMBERS: dict[str, float] = {
    **_COMMON,
    **_ECC,
    **_REMAP,
    **_LINK_ERRORS,
    **_DRAM,
    "temperature_slowdown": 92,
    "temperature_memory_max": 95,
    "temperature_gpu_max": 85,
    "power_mw": 312_500,
    "power_limit_mw": 400_000,
    "power_limit_default_mw": 400_000,
    "clock_sm_mhz": 1410,
    "clock_memory_mhz": 1593,
    "clock_sm_max_mhz": 1410,
    "clock_memory_max_mhz": 1593,
    "memory_total": 80 * GIB,
    "memory_used": 61 * GIB,
    "mig_mode": 0,
    "mig_mode_pending": 0,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "field_82": 52,
    "field_74": 4_000_000_000,
    **_fields((75, 76, 77, 78, 79)),
}
H100_NUMBERS: dict[str, float] = {
    "event_types": 0xFF1F,
    **A100_NUMBERS,
    **_SRAM,
    **_THROTTLED,
    **_PCIE,
    **_NVLINK4,
    **_FABRIC,
    "fabric_version": 2,
    "temperature_slowdown": 95,
    "thermal_margin": 46,
    "power_mw": 648_125,
    "power_limit_mw": 700_000,
    "clock_sm_mhz": 1755,
    "clock_memory_mhz": 2619,
    "clock_sm_max_mhz": 1980,
    "clock_memory_max_mhz": 2619,
    "memory_reserved": GIB // 2,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "channel_repair_pending": 0,
    "tpc_repair_pending": 0,
    "field_185": 645_000,
    "field_186": 655_500,
    "field_187": 200_000,
    "field_188": 700_000,
    "power_limit_default_mw": 700_000,
    "field_192": 700_000,
    "field_193": -8,
    "field_194": -2,
    "field_195": 0,
    "field_196": 0,
    "field_230": 0,
    "field_269": 0,
}
B200_NUMBERS: dict[str, float] = {
    **{
        key: value
        for key, value in H100_NUMBERS.items()
        if key not in _LINK_ERRORS | _NVLINK4 | {"temperature_slowdown": 0}
    },
    **_NVLINK5,
    "fabric_version": 3,
    "power_mw": 921_000,
    "power_limit_mw": 1_000_000,
    "clock_sm_mhz": 1830,
    "clock_memory_mhz": 3996,
    "clock_sm_max_mhz": 1965,
    "clock_memory_max_mhz": 3996,
    "memory_total": 180 * GIB,
    "memory_used": 142 * GIB,
    "memory_unrepairable": 0,
    "field_185": 915_000,
    "field_186": 930_000,
    "field_188": 1_000_000,
    "power_limit_default_mw": 1_000_000,
    "field_192": 1_000_000,
    "field_258": 97,
    **_fields(range(301, 305)),
    "field_305": 32,
    "field_306": 0,
    "field_307": 0,
}
GB200_NUMBERS: dict[str, float] = {
    **{key: value for key, value in B200_NUMBERS.items() if not key.startswith("bar1_")},
    "power_mw": 1_050_000,
    "power_limit_mw": 1_200_000,
    "power_limit_default_mw": 1_200_000,
    "memory_total": 185 * GIB,
    "fabric_clique": 32_766,
    "field_170": 5,
    "field_171": 1,
    **_fields((231, 232, 233)),
    "field_186.1": 1_480_000,
}
L40S_NUMBERS: dict[str, float] = {
    **{
        key: value
        for key, value in A100_NUMBERS.items()
        if key not in {*_LINK_ERRORS, "field_82", "mig_mode", "mig_mode_pending"}
    },
    "fan_speed": 0,
    "power_mw": 287_000,
    "power_limit_mw": 350_000,
    "power_limit_default_mw": 350_000,
    "clock_sm_mhz": 2520,
    "clock_memory_mhz": 9001,
    "clock_sm_max_mhz": 2520,
    "clock_memory_max_mhz": 9001,
    "memory_total": 45 * GIB,
    "memory_used": 20 * GIB,
}
