"""dcgm-exporter: DCGM's fields by number, under the names of all its versions.

The names are those of DCGM's dcgm_fields.h. DCGM 4.6 gave about 200 fields new names and kept the
old ones as aliases, so that which of them a node serves depends on its exporter's CSV.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType

from gpuwarden_agent.exporters.identity import gpu_facts, gpu_uuid_of
from gpuwarden_agent.exporters.rules import (
    NOTHING,
    GpuFacts,
    Level,
    Meaning,
    Rule,
    Scale,
    Target,
    XidForm,
    XidSeries,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Missing, NotSupported, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME

_MEBI = 1024.0 * 1024.0
_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Field:
    """One DCGM field.

    Attributes:
        number: DCGM's field id; what joins its names.
        names: Metric names, the oldest first.
        rule: What it says to us.
        new_rule: Same for names that end in _RATIO, where they leave the scale open.
    """

    number: int
    names: tuple[str, ...]
    rule: Rule
    new_rule: Rule | None = field(default=None)

    def rule_of(self, name: str) -> Rule:
        """The rule for the field under one of its names."""
        return self.new_rule if self.new_rule and name.endswith("_RATIO") else self.rule


def _dev(*names: str) -> tuple[str, ...]:
    return tuple(f"DCGM_FI_DEV_{name}" for name in names)


def _percent(number: int, names: tuple[str, ...], metric: str) -> Field:
    """A field of whole percents; its name in _RATIO says nothing of the number."""
    return Field(
        number,
        names,
        Rule(metric, 1 / _PERCENT, level=Level.INSTANCE, at_most=_PERCENT),
        Rule(metric, scale=Scale.SHARE, level=Level.INSTANCE),
    )


def _link_error(number: int, kind: str, rank: int, *names: str) -> Field:
    return Field(
        number,
        _dev(*names),
        Rule("gpu_nvlink_errors_total", rank=rank, part=kind, split_by=("nvlink",)),
    )


# Field 112's bits are NVML's own; 1523's values are nvmlDeviceGpuRecoveryAction_t; 1508 follows
# NVML_FI_DEV_NVLINK_GET_STATE (nvml.h): 0 inactive, 1 active, 2 asleep to save power. Fields of
# rank 1 are those in coarser units. The violation fields count nanoseconds, whatever the help text
# of an exporter's CSV says (NVIDIA/dcgm-exporter#589).
_LINK_UP, _LINK_DOWN = frozenset({1, 2}), frozenset({0})
FIELDS: tuple[Field, ...] = (
    Field(
        4,
        ("DCGM_FI_DEV_COUNT", "DCGM_FI_SYSTEM_GPU_QUANTITY"),
        Rule("node_gpus_visible", level=Level.BOARD),
    ),
    Field(
        100,
        ("dcgm_sm_clock", *_dev("SM_CLOCK")),
        Rule("gpu_sm_clock_hertz", 1e6, rank=1),
    ),
    Field(1603, _dev("SM_CLOCK_HERTZ"), Rule("gpu_sm_clock_hertz")),
    Field(
        101,
        ("dcgm_memory_clock", *_dev("MEM_CLOCK")),
        Rule("gpu_memory_clock_hertz", 1e6, rank=1),
    ),
    Field(1604, _dev("MEMORY_CLOCK_HERTZ"), Rule("gpu_memory_clock_hertz")),
    Field(113, _dev("MAX_SM_CLOCK"), Rule("gpu_sm_clock_max_hertz", 1e6, rank=1)),
    Field(1608, _dev("SM_MAX_CLOCK_HERTZ"), Rule("gpu_sm_clock_max_hertz")),
    Field(
        112,
        _dev("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS"),
        Rule("gpu_clock_event_reasons"),
    ),
    Field(
        140,
        ("dcgm_memory_temp", *_dev("MEMORY_TEMP", "MEMORY_TEMP_CELSIUS")),
        Rule("gpu_memory_temperature_celsius"),
    ),
    Field(
        150,
        ("dcgm_gpu_temp", *_dev("GPU_TEMP", "GPU_TEMP_CELSIUS")),
        Rule("gpu_temperature_celsius"),
    ),
    Field(
        158,
        _dev("SLOWDOWN_TEMP", "GPU_TEMP_SLOWDOWN_CELSIUS"),
        Rule("gpu_slowdown_temperature_celsius"),
    ),
    Field(
        155,
        ("dcgm_power_usage", *_dev("POWER_USAGE", "BOARD_POWER_WATTS")),
        Rule("gpu_power_watts"),
    ),
    Field(
        164,
        _dev("ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS"),
        Rule("gpu_power_limit_watts"),
    ),
    Field(
        156,
        ("dcgm_total_energy_consumption", *_dev("TOTAL_ENERGY_CONSUMPTION")),
        Rule("gpu_energy_joules_total", 1e-3, rank=1),
    ),
    Field(1611, _dev("GPU_ENERGY_JOULES_TOTAL"), Rule("gpu_energy_joules_total")),
    Field(
        202,
        ("dcgm_pcie_replay_counter", *_dev("PCIE_REPLAY_COUNTER", "PCIE_REPLAY_TOTAL")),
        Rule("gpu_pcie_replay_total"),
    ),
    _percent(
        203,
        ("dcgm_gpu_utilization", *_dev("GPU_UTIL", "GPU_UTIL_RATIO")),
        "gpu_utilization_ratio",
    ),
    _percent(
        204,
        ("dcgm_mem_copy_utilization", *_dev("MEM_COPY_UTIL", "MEM_COPY_UTIL_RATIO")),
        "gpu_memory_utilization_ratio",
    ),
    Field(235, _dev("PCIE_MAX_LINK_GEN"), Rule("gpu_pcie_link_generation_max")),
    Field(236, _dev("PCIE_MAX_LINK_WIDTH"), Rule("gpu_pcie_link_width_max")),
    Field(237, _dev("PCIE_LINK_GEN"), Rule("gpu_pcie_link_generation")),
    Field(238, _dev("PCIE_LINK_WIDTH"), Rule("gpu_pcie_link_width")),
    Field(
        250,
        _dev("FB_TOTAL"),
        Rule("gpu_memory_total_bytes", _MEBI, rank=1, level=Level.INSTANCE),
    ),
    Field(1625, _dev("FB_CAPACITY_BYTES"), Rule("gpu_memory_total_bytes", level=Level.INSTANCE)),
    Field(
        252,
        ("dcgm_fb_used", *_dev("FB_USED")),
        Rule("gpu_memory_used_bytes", _MEBI, rank=1, level=Level.INSTANCE),
    ),
    Field(1627, _dev("FB_USED_BYTES"), Rule("gpu_memory_used_bytes", level=Level.INSTANCE)),
    Field(
        310,
        ("dcgm_ecc_sbe_volatile_total", *_dev("ECC_SBE_VOL_TOTAL")),
        Rule("gpu_ecc_corrected_volatile_total", level=Level.INSTANCE),
    ),
    Field(
        311,
        ("dcgm_ecc_dbe_volatile_total", *_dev("ECC_DBE_VOL_TOTAL")),
        Rule("gpu_ecc_uncorrected_volatile_total", level=Level.INSTANCE),
    ),
    Field(
        312,
        ("dcgm_ecc_sbe_aggregate_total", *_dev("ECC_SBE_AGG_TOTAL")),
        Rule("gpu_ecc_corrected_aggregate_total", level=Level.INSTANCE),
    ),
    Field(
        313,
        ("dcgm_ecc_dbe_aggregate_total", *_dev("ECC_DBE_AGG_TOTAL")),
        Rule("gpu_ecc_uncorrected_aggregate_total", level=Level.INSTANCE),
    ),
    Field(
        393,
        _dev("UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_UNCORRECTABLE_TOTAL"),
        Rule("gpu_rows_remapped_uncorrectable_total"),
    ),
    Field(
        394,
        _dev("CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_CORRECTABLE_TOTAL"),
        Rule("gpu_rows_remapped_correctable_total"),
    ),
    Field(395, _dev("ROW_REMAP_FAILURE", "ROW_REMAP_FAILED"), Rule("gpu_row_remap_failure")),
    Field(396, _dev("ROW_REMAP_PENDING"), Rule("gpu_row_remap_pending")),
    _link_error(409, "crc", 0, "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_CRC_FLIT_ERROR_TOTAL"),
    _link_error(429, "replay", 0, "NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVLINK_REPLAY_ERROR_TOTAL"),
    _link_error(
        439, "recovery", 0, "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "NVLINK_RECOVERY_ERROR_TOTAL"
    ),
    _link_error(497, "crc", 1, "NVLINK_ERROR_DL_CRC", "NVLINK_CRC_ERROR_TOTAL"),
    _link_error(498, "recovery", 1, "NVLINK_ERROR_DL_RECOVERY", "NVLINK_RECOVERY_TOTAL"),
    _link_error(499, "replay", 1, "NVLINK_ERROR_DL_REPLAY", "NVLINK_REPLAY_TOTAL"),
    _link_error(1525, "crc", 2, "NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL"),
    _link_error(1527, "replay", 2, "NVLINK_REPLAY_ERROR_PER_LINK_TOTAL"),
    _link_error(1528, "recovery", 2, "NVLINK_RECOVERY_ERROR_PER_LINK_TOTAL"),
    Field(
        1423,
        _dev("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"),
        Rule("gpu_thermal_slowdown_seconds_total", 1e-9),
    ),
    Field(
        1424,
        _dev("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"),
        Rule("gpu_power_brake_seconds_total", 1e-9),
    ),
    Field(
        1508,
        _dev("NVLINK_GET_STATE"),
        Rule("gpu_nvlinks_active", split_by=("nvlink",), counts=_LINK_UP),
    ),
    Field(
        1508,
        _dev("NVLINK_GET_STATE"),
        Rule("gpu_nvlinks_inactive", split_by=("nvlink",), counts=_LINK_DOWN),
    ),
    Field(
        1523,
        _dev("GET_GPU_RECOVERY_ACTION", "GPU_RECOVERY_ACTION"),
        Rule("gpu_recovery_action"),
    ),
)

XID_NAMES = MappingProxyType(
    {
        # field 230
        "dcgm_xid_errors": XidForm.LAST_CODE,
        "DCGM_FI_DEV_XID_ERRORS": XidForm.LAST_CODE,
        "DCGM_FI_DEV_XID_ERROR": XidForm.LAST_CODE,
        # dcgm-exporter's own
        "DCGM_EXP_XID_ERRORS_COUNT": XidForm.IN_WINDOW,
        "DCGM_EXP_XID_ERRORS_TOTAL": XidForm.COUNTED,
    }
)


def _by_name() -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for one in FIELDS:
        for name in one.names:
            found[name] = (*found.get(name, ()), one.rule_of(name))
    return found


_RULES = MappingProxyType(_by_name())
_PREFIXES = ("DCGM_", "dcgm_")


# dcgm_structs.h: DCGM_INT32_BLANK 0x7ffffff0, DCGM_INT64_BLANK 0x7ffffffffffffff0,
# DCGM_FP64_BLANK 140737488355328.0 (2**47); +1 not found, +2 not supported, +3 not permitted. A
# float holds the 64-bit ones only as 2**63: which of them it was cannot be told then.
_BLANKS = (0x7FFFFFF0, 2**47)
_INT64_BLANK = 0x7FFFFFFFFFFFFFF0
_BLANK_WIDTH = 16
_BLANK_REASONS: tuple[Missing, ...] = (
    Unavailable("dcgm_blank"),
    Unavailable("dcgm_not_found"),
    NotSupported(),
    Unavailable("permission_denied"),
)


def blank_reading(value: float) -> Missing | None:
    """What a sentinel of DCGM stands for; None where the number is one."""
    if not isfinite(value):
        return None
    if value >= _INT64_BLANK:
        return _blank_of(int(value) - _INT64_BLANK if isinstance(value, int) else 0)
    for blank in _BLANKS:
        if blank <= value < blank + _BLANK_WIDTH:
            return _blank_of(int(value - blank))
    return None


def _blank_of(offset: int) -> Missing:
    return _BLANK_REASONS[offset] if offset < len(_BLANK_REASONS) else _BLANK_REASONS[0]


def is_dcgm(name: str) -> bool:
    """The series is of a dcgm-exporter."""
    return name.startswith(_PREFIXES)


def dcgm_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a series of dcgm-exporter means to us."""
    uuid = gpu_uuid_of(labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid") or "")
    host = labels.get("Hostname") or labels.get("hostname") or ""
    if not uuid:
        return NOTHING
    facts = _facts(uuid, labels)
    if (form := XID_NAMES.get(name)) is not None:
        return Meaning((), XidSeries(form, uuid, _code(labels)), facts, host, "", blank_reading)
    of_instance = bool(labels.get("GPU_I_ID"))
    targets = tuple(_target(rule, uuid, labels, of_instance) for rule in _RULES.get(name, ()))
    return Meaning(targets, None, facts, host, "", blank_reading)


def _target(rule: Rule, uuid: str, labels: dict[str, str], of_instance: bool) -> Target:
    kind = METRIC_BY_NAME[rule.metric].entity_kind
    entity = uuid if kind is EntityKind.GPU else ""
    part = "/".join((rule.part, *(labels.get(label, "") for label in rule.split_by)))
    return Target(kind, entity, rule, part, of_instance)


def _facts(uuid: str, labels: dict[str, str]) -> GpuFacts:
    def label(*names: str) -> str:
        return next((labels[name] for name in names if labels.get(name)), "")

    return gpu_facts(
        uuid,
        pci_bus_id=label("pci_bus_id"),
        index=label("gpu"),
        model=label("modelName", "model_name"),
        serial=label("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL"),
        driver_version=label("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"),
        vbios_version=label("DCGM_FI_DEV_VBIOS_VERSION"),
    )


def _code(labels: dict[str, str]) -> int | None:
    text = labels.get("xid", "")
    return int(text) if text.isdecimal() and len(text) < 6 else None
