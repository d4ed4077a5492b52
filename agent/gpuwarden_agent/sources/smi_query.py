"""What `nvidia-smi --query-gpu=… --format=csv` prints. Pure.

The header names the fields and their units, so that any selection in any order is read:
"uuid, temperature.gpu, power.draw [W], …" and "GPU-b75ff7a9-…, 41, 77.71 W, …".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_MEBI = 1024.0 * 1024.0
_MICRO, _PERCENT, _MEGA = 1e-6, 1e-2, 1e6

# What stands for a value that there is none of; anything else in brackets is kept as the reason.
_NO_SUCH_THING = frozenset(
    {"n/a", "not supported", "requested functionality has been deprecated", "feature is disabled"}
)
_REASONS = MappingProxyType(
    {
        "unknown error": "unknown_error",
        "gpu requires reset": "reset_required",
        "insufficient permissions": "no_permission",
        "gpu is lost": "gpu_is_lost",
        "err!": "unknown_error",
    }
)
_NUMBER = re.compile(r"(0x[0-9A-Fa-f]{1,16}|-?\d{1,20}(?:\.\d{1,9})?)(?: [A-Za-z%]{1,4})?")
_FIELD_IN_HELP = re.compile(r'"([a-z][A-Za-z0-9_.]*)"')
_UNIT = re.compile(r" \[[^\]]*\]$")

_SWITCH = MappingProxyType(
    {"no": 0.0, "yes": 1.0, "disabled": 0.0, "enabled": 1.0, "inactive": 0.0, "active": 1.0}
)
_PERFORMANCE = MappingProxyType({f"p{number}": float(number) for number in range(16)})
# nvmlGpuFabricState_t in nvidia-smi's words.
_FABRIC = MappingProxyType({"not started": 1.0, "in progress": 2.0, "completed": 3.0})
# nvmlDeviceGpuRecoveryAction_t in nvidia-smi's words.
_RECOVERY = MappingProxyType(
    {"none": 0.0, "reset": 1.0, "reboot": 2.0, "drain p2p": 3.0, "drain and reset": 4.0}
)


@dataclass(frozen=True, slots=True)
class SmiField:
    """One field of --query-gpu.

    Attributes:
        metric: Our metric.
        factor: From nvidia-smi's unit to ours.
        words: Numbers of the words that it prints; none where it prints a number.
    """

    metric: str
    factor: float = 1.0
    words: Mapping[str, float] | None = None


SMI_FIELDS: Mapping[str, SmiField] = MappingProxyType(
    {
        "temperature.gpu": SmiField("gpu_temperature_celsius"),
        "temperature.memory": SmiField("gpu_memory_temperature_celsius"),
        "power.draw": SmiField("gpu_power_watts"),
        "enforced.power.limit": SmiField("gpu_power_limit_watts"),
        "clocks.current.sm": SmiField("gpu_sm_clock_hertz", _MEGA),
        "clocks.current.memory": SmiField("gpu_memory_clock_hertz", _MEGA),
        "clocks.max.sm": SmiField("gpu_sm_clock_max_hertz", _MEGA),
        "clocks_event_reasons.active": SmiField("gpu_clock_event_reasons"),
        "clocks_throttle_reasons.active": SmiField("gpu_clock_event_reasons"),
        "clocks_event_reasons_counters.hw_thermal_slowdown": SmiField(
            "gpu_thermal_slowdown_seconds_total", _MICRO
        ),
        "clocks_event_reasons_counters.hw_power_brake_slowdown": SmiField(
            "gpu_power_brake_seconds_total", _MICRO
        ),
        "utilization.gpu": SmiField("gpu_utilization_ratio", _PERCENT),
        "utilization.memory": SmiField("gpu_memory_utilization_ratio", _PERCENT),
        "memory.used": SmiField("gpu_memory_used_bytes", _MEBI),
        "memory.total": SmiField("gpu_memory_total_bytes", _MEBI),
        **{
            f"ecc.errors.{errors}.{life}.total": SmiField(f"gpu_ecc_{errors}_{life}_total")
            for errors in ("corrected", "uncorrected")
            for life in ("volatile", "aggregate")
        },
        "remapped_rows.correctable": SmiField("gpu_rows_remapped_correctable_total"),
        "remapped_rows.uncorrectable": SmiField("gpu_rows_remapped_uncorrectable_total"),
        "remapped_rows.pending": SmiField("gpu_row_remap_pending", words=_SWITCH),
        "remapped_rows.failure": SmiField("gpu_row_remap_failure", words=_SWITCH),
        "gpu_recovery_action": SmiField("gpu_recovery_action", words=_RECOVERY),
        "temperature.gpu.tlimit": SmiField("gpu_temperature_margin_celsius"),
        "power.draw.instant": SmiField("gpu_power_instant_watts"),
        "power.default_limit": SmiField("gpu_power_limit_default_watts"),
        "pstate": SmiField("gpu_performance_state", words=_PERFORMANCE),
        "clocks.max.memory": SmiField("gpu_memory_clock_max_hertz", _MEGA),
        "memory.reserved": SmiField("gpu_memory_reserved_bytes", _MEBI),
        "clocks_event_reasons_counters.sw_power_cap": SmiField(
            "gpu_power_cap_seconds_total", _MICRO
        ),
        "clocks_event_reasons_counters.sw_thermal_slowdown": SmiField(
            "gpu_software_thermal_slowdown_seconds_total", _MICRO
        ),
        "ecc.mode.current": SmiField("gpu_ecc_mode", words=_SWITCH),
        "ecc.mode.pending": SmiField("gpu_ecc_mode_pending", words=_SWITCH),
        **{
            f"ecc.errors.{errors}.{life}.dram": SmiField(f"gpu_ecc_dram_{errors}_{life}_total")
            for errors in ("corrected", "uncorrected")
            for life in ("volatile", "aggregate")
        },
        "ecc.errors.corrected.aggregate.sram": SmiField("gpu_sram_corrected_aggregate_total"),
        "ecc.errors.uncorrected.aggregate.sram.parity": SmiField(
            "gpu_sram_parity_uncorrected_aggregate_total"
        ),
        "ecc.errors.uncorrected.aggregate.sram.secded": SmiField(
            "gpu_sram_secded_uncorrected_aggregate_total"
        ),
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": SmiField(
            "gpu_sram_threshold_exceeded", words=_SWITCH
        ),
        **{
            f"remapped_rows.histogram.{left}": SmiField(f"gpu_row_remap_banks_{left}")
            for left in ("max", "high", "partial", "low", "none")
        },
        "retired_pages.single_bit_ecc.count": SmiField("gpu_retired_pages_corrected_total"),
        "retired_pages.double_bit.count": SmiField("gpu_retired_pages_uncorrected_total"),
        "retired_pages.pending": SmiField("gpu_retired_pages_pending", words=_SWITCH),
        "fabric.state": SmiField("gpu_fabric_state", words=_FABRIC),
        "persistence_mode": SmiField("gpu_persistence_mode", words=_SWITCH),
        "mig.mode.current": SmiField("gpu_mig_mode", words=_SWITCH),
        "pcie.link.gen.current": SmiField("gpu_pcie_link_generation"),
        "pcie.link.gen.max": SmiField("gpu_pcie_link_generation_max"),
        "pcie.link.width.current": SmiField("gpu_pcie_link_width"),
        "pcie.link.width.max": SmiField("gpu_pcie_link_width_max"),
    }
)
SMI_FACTS = ("uuid", "pci.bus_id", "index", "serial", "name", "driver_version", "vbios_version")


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """One line of the answer.

    Attributes:
        facts: What is no reading, by field; "" where nvidia-smi has none.
        row: Readings by metric.
    """

    facts: Mapping[str, str]
    row: Mapping[str, Reading]


def parse_fields(help_text: str) -> tuple[str, ...]:
    """Which of our fields this nvidia-smi knows, from `nvidia-smi --help-query-gpu`.

    It refuses a whole query for one field that it does not know. Lines there begin like
    '"clocks_event_reasons.active" or "clocks_throttle_reasons.active"'.
    """
    known = set(_FIELD_IN_HELP.findall(help_text))
    wanted = [name for name in (*SMI_FACTS, *SMI_FIELDS) if name in known]
    if "clocks_event_reasons.active" in wanted and "clocks_throttle_reasons.active" in wanted:
        wanted.remove("clocks_throttle_reasons.active")
    return tuple(wanted)


def parse_query(text: str) -> list[SmiGpu]:
    """GPUs of an answer in --format=csv, header included; lines cut short are left out."""
    header: list[str] = []
    found: list[SmiGpu] = []
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]  # nvidia-smi quotes nothing
        if not header:
            header = [_UNIT.sub("", cell) for cell in cells]
        elif len(cells) == len(header):
            found.append(_gpu(dict(zip(header, cells, strict=True))))
    return found


def _gpu(cells: Mapping[str, str]) -> SmiGpu:
    facts = {name: _fact(cells.get(name, "")) for name in SMI_FACTS}
    row = {
        one.metric: parse_cell(cells[name], one)
        for name, one in SMI_FIELDS.items()
        if name in cells
    }
    return SmiGpu(facts, row)


def _fact(text: str) -> str:
    bare = text.strip()
    return "" if bare.strip("[]").lower() in _NO_SUCH_THING else bare


def parse_cell(text: str, smi_field: SmiField) -> Reading:
    """The reading in one cell: "77.71 W", "0x0000000000000001", "Yes", "[N/A]"."""
    bare = text.strip()
    words = bare.strip("[]").lower()
    if words in _NO_SUCH_THING:
        return NotSupported()
    if words in _REASONS:
        return Unavailable(_REASONS[words])
    if smi_field.words is not None:
        return smi_field.words.get(words, Unavailable("not_a_known_word"))
    number = _NUMBER.fullmatch(bare)
    if number is None:
        return Unavailable("not_a_number")
    value = float(int(number[1], 16)) if number[1].startswith("0x") else float(number[1])
    return value * smi_field.factor if value >= 0 else Unavailable("implausible_value")
