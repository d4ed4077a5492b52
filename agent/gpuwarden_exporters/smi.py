"""nvidia_gpu_exporter and all-smi: their series by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpuwarden_exporters.identity import gpu_facts, gpu_uuid_of
from gpuwarden_exporters.rules import NOTHING, Meaning, Rule, Target, XidForm, XidSeries
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import METRIC_BY_NAME

# utkuozdemir/nvidia_gpu_exporter names its series after the fields of `nvidia-smi
# --help-query-gpu`, in base units, behind this prefix; a field without a value has no series.
NVIDIA_SMI = "nvidia_smi_"
NVIDIA_SMI_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "count": Rule("node_gpus_visible"),
        "temperature_gpu": Rule("gpu_temperature_celsius"),
        "temperature_memory": Rule("gpu_memory_temperature_celsius"),
        "power_draw_watts": Rule("gpu_power_watts"),
        "enforced_power_limit_watts": Rule("gpu_power_limit_watts"),
        "clocks_current_sm_clock_hz": Rule("gpu_sm_clock_hertz"),
        "clocks_current_memory_clock_hz": Rule("gpu_memory_clock_hertz"),
        "clocks_max_sm_clock_hz": Rule("gpu_sm_clock_max_hertz"),
        "clocks_event_reasons_active": Rule("gpu_clock_event_reasons"),
        "clocks_throttle_reasons_active": Rule("gpu_clock_event_reasons", rank=1),
        "clocks_event_reasons_counters_hw_thermal_slowdown_seconds": Rule(
            "gpu_thermal_slowdown_seconds_total"
        ),
        "clocks_event_reasons_counters_hw_power_brake_slowdown_seconds": Rule(
            "gpu_power_brake_seconds_total"
        ),
        "utilization_gpu_ratio": Rule("gpu_utilization_ratio", at_most=1.0),
        "utilization_memory_ratio": Rule("gpu_memory_utilization_ratio", at_most=1.0),
        "memory_used_bytes": Rule("gpu_memory_used_bytes"),
        "memory_total_bytes": Rule("gpu_memory_total_bytes"),
        "ecc_errors_corrected_volatile_total": Rule("gpu_ecc_corrected_volatile_total"),
        "ecc_errors_uncorrected_volatile_total": Rule("gpu_ecc_uncorrected_volatile_total"),
        "ecc_errors_corrected_aggregate_total": Rule("gpu_ecc_corrected_aggregate_total"),
        "ecc_errors_uncorrected_aggregate_total": Rule("gpu_ecc_uncorrected_aggregate_total"),
        "remapped_rows_correctable": Rule("gpu_rows_remapped_correctable_total"),
        "remapped_rows_uncorrectable": Rule("gpu_rows_remapped_uncorrectable_total"),
        "remapped_rows_pending": Rule("gpu_row_remap_pending"),
        "remapped_rows_failure": Rule("gpu_row_remap_failure"),
        "gpu_recovery_action": Rule("gpu_recovery_action"),
        "temperature_gpu_tlimit": Rule("gpu_temperature_margin_celsius"),
        "power_draw_instant_watts": Rule("gpu_power_instant_watts"),
        "power_default_limit_watts": Rule("gpu_power_limit_default_watts"),
        "pstate": Rule("gpu_performance_state"),
        "clocks_max_memory_clock_hz": Rule("gpu_memory_clock_max_hertz"),
        "memory_reserved_bytes": Rule("gpu_memory_reserved_bytes"),
        "clocks_event_reasons_counters_sw_power_cap_seconds": Rule("gpu_power_cap_seconds_total"),
        "clocks_event_reasons_counters_sw_thermal_slowdown_seconds": Rule(
            "gpu_software_thermal_slowdown_seconds_total"
        ),
        "ecc_mode_current": Rule("gpu_ecc_mode"),
        "ecc_mode_pending": Rule("gpu_ecc_mode_pending"),
        "ecc_errors_corrected_volatile_dram": Rule("gpu_ecc_dram_corrected_volatile_total"),
        "ecc_errors_uncorrected_volatile_dram": Rule("gpu_ecc_dram_uncorrected_volatile_total"),
        "ecc_errors_corrected_aggregate_dram": Rule("gpu_ecc_dram_corrected_aggregate_total"),
        "ecc_errors_uncorrected_aggregate_dram": Rule("gpu_ecc_dram_uncorrected_aggregate_total"),
        "ecc_errors_corrected_aggregate_sram": Rule("gpu_sram_corrected_aggregate_total"),
        "ecc_errors_uncorrected_aggregate_sram_parity": Rule(
            "gpu_sram_parity_uncorrected_aggregate_total"
        ),
        "ecc_errors_uncorrected_aggregate_sram_secded": Rule(
            "gpu_sram_secded_uncorrected_aggregate_total"
        ),
        "ecc_errors_uncorrected_aggregate_sram_threshold_exceeded": Rule(
            "gpu_sram_threshold_exceeded"
        ),
        **{
            f"remapped_rows_histogram_{left}": Rule(f"gpu_row_remap_banks_{left}")
            for left in ("max", "high", "partial", "low", "none")
        },
        "retired_pages_single_bit_ecc_count": Rule("gpu_retired_pages_corrected_total"),
        "retired_pages_double_bit_count": Rule("gpu_retired_pages_uncorrected_total"),
        "retired_pages_pending": Rule("gpu_retired_pages_pending"),
        "fabric_state": Rule("gpu_fabric_state"),
        "persistence_mode": Rule("gpu_persistence_mode"),
        "mig_mode_current": Rule("gpu_mig_mode"),
        "pcie_link_gen_current": Rule("gpu_pcie_link_generation"),
        "pcie_link_gen_max": Rule("gpu_pcie_link_generation_max"),
        "pcie_link_width_current": Rule("gpu_pcie_link_width"),
        "pcie_link_width_max": Rule("gpu_pcie_link_width_max"),
    }
)
# Of its NVML backend only.
_NVIDIA_SMI_XIDS = MappingProxyType(
    {
        "xid_errors_total": XidForm.COUNTED,
        "xid_last_timestamp_seconds": XidForm.SEEN_AT,
    }
)
# 0 where its last collection failed.
_NVIDIA_SMI_SUCCESS = "last_collect_success"
_GPU_PART = "gpu"

# lablup/all-smi, src/api/metrics/gpu.rs. Earlier versions wrote 0 for what they had not read.
ALL_SMI = "all_smi_"
_MHZ, _PERCENT = 1e6, 100.0
ALL_SMI_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "gpu_utilization": Rule("gpu_utilization_ratio", 1 / _PERCENT, at_most=_PERCENT),
        "gpu_memory_used_bytes": Rule("gpu_memory_used_bytes"),
        "gpu_memory_total_bytes": Rule("gpu_memory_total_bytes", zero_is_missing=True),
        "gpu_temperature_celsius": Rule("gpu_temperature_celsius", zero_is_missing=True),
        "gpu_power_consumption_watts": Rule("gpu_power_watts", zero_is_missing=True),
        "gpu_frequency_mhz": Rule("gpu_sm_clock_hertz", _MHZ, zero_is_missing=True),
        "gpu_power_limit_current_watts": Rule("gpu_power_limit_watts", zero_is_missing=True),
        "gpu_pcie_gen_current": Rule("gpu_pcie_link_generation", zero_is_missing=True),
        "gpu_pcie_width_current": Rule("gpu_pcie_link_width", zero_is_missing=True),
        "gpu_temperature_threshold_slowdown_celsius": Rule(
            "gpu_slowdown_temperature_celsius", zero_is_missing=True
        ),
    }
)


def nvidia_smi_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a series of nvidia_gpu_exporter means to us."""
    short = name.removeprefix(NVIDIA_SMI)
    if short == _NVIDIA_SMI_SUCCESS:
        return Meaning(success_of=_GPU_PART)
    uuid = gpu_uuid_of(labels.get("uuid", ""))
    if not uuid:
        return NOTHING
    facts = gpu_facts(
        uuid,
        pci_bus_id=labels.get("pci_bus_id", ""),
        index=labels.get("index", ""),
        model=labels.get("name", ""),
        serial=labels.get("serial", ""),
        driver_version=labels.get("driver_version", ""),
        vbios_version=labels.get("vbios_version", ""),
    )
    if (form := _NVIDIA_SMI_XIDS.get(short)) is not None:
        code = labels.get("xid", "")
        number = int(code) if code.isdecimal() and len(code) < 6 else None
        return Meaning(xid=XidSeries(form, uuid, number), gpu=facts)
    return Meaning(_targets(NVIDIA_SMI_RULES.get(short), uuid), gpu=facts)


def all_smi_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a series of all-smi means to us."""
    uuid = gpu_uuid_of(labels.get("gpu_uuid") or labels.get("uuid") or "")
    if not uuid:
        return NOTHING
    facts = gpu_facts(
        uuid,
        pci_bus_id=labels.get("pci_bus_id", ""),
        index=labels.get("gpu_index") or labels.get("index") or "",
        model=labels.get("gpu", ""),
        driver_version=labels.get("driver_version", ""),
        serial=labels.get("serial", ""),
        vbios_version=labels.get("vbios_version", ""),
    )
    return Meaning(_targets(ALL_SMI_RULES.get(name.removeprefix(ALL_SMI)), uuid), gpu=facts)


def _targets(rule: Rule | None, uuid: str) -> tuple[Target, ...]:
    if rule is None:
        return ()
    kind = METRIC_BY_NAME[rule.metric].entity_kind
    return (Target(kind, uuid if kind is EntityKind.GPU else "", rule, made_by=_GPU_PART),)
