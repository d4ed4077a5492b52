"""DCGM's fields by number, under the names of all its versions, and what they are to us.

The names are those of DCGM's dcgm_fields.h. DCGM 4.6 gave about 200 fields new names and kept the
old ones as aliases, so that which of them a node serves depends on its exporter's CSV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpuwarden_exporters.rules import Level, Rule, Scale, worst
from gpuwarden_wire.readings import NotSupported, Reading

_MEBI = 1024.0 * 1024.0
_MEGA, _MILLI, _NANO, _PERCENT = 1e6, 1e-3, 1e-9, 1e-2
_LINK = ("nvlink",)


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


def _named(names: str) -> tuple[str, ...]:
    """Names as a text; those in capitals lack the prefix that they share."""
    return tuple(
        name if name.startswith("dcgm_") else f"DCGM_FI_DEV_{name}" for name in names.split()
    )


def _board(number: int, metric: str, names: str, factor: float = 1.0, rank: int = 0) -> Field:
    """A field of the physical GPU."""
    return Field(number, _named(names), Rule(metric, factor, rank=rank))


def _own(number: int, metric: str, names: str, factor: float = 1.0, rank: int = 0) -> Field:
    """A field that rows of a MIG instance give of the instance."""
    return Field(number, _named(names), Rule(metric, factor, rank=rank, level=Level.INSTANCE))


def _percent(number: int, metric: str, names: str) -> Field:
    """A field of whole percents; its name in _RATIO says nothing of the number."""
    return Field(
        number,
        _named(names),
        Rule(metric, _PERCENT, level=Level.INSTANCE, at_most=100.0),
        Rule(metric, scale=Scale.SHARE, level=Level.INSTANCE),
    )


def _link_error(number: int, kind: str, rank: int, names: str) -> Field:
    """A part of the errors of NVLinks up to the fourth generation."""
    rule = Rule("gpu_nvlink_errors_total", rank=rank, part=kind, split_by=_LINK)
    return Field(number, _named(names), rule)


def _links(number: int, metric: str, names: str) -> Field:
    """A counter of NVLink 5, added up over links where it is given by link."""
    return Field(number, _named(names), Rule(metric, split_by=_LINK))


def _worst_link(number: int, metric: str, names: str) -> Field:
    return Field(number, _named(names), Rule(metric, split_by=_LINK, combine=worst))


# Field 1508 follows NVML_FI_DEV_NVLINK_GET_STATE (nvml.h): 0 inactive, 1 active, 2 asleep to save
# power.
_LINK_UP, _LINK_DOWN = frozenset({1, 2}), frozenset({0})

# dcgmFabricManagerStatus_t (dcgm_structs.h): 4 is a registration that ended with an error, which
# NVML calls completed and tells in the error code; 5 and 6 are DCGM's own trouble.
_FABRIC: Mapping[int, Reading] = MappingProxyType(
    {0: NotSupported(), 1: 1.0, 2: 2.0, 3: 3.0, 4: 3.0}
)

# Bits of 112 are NVML's own, values of 1523 are nvmlDeviceGpuRecoveryAction_t. Fields of rank 1 are
# those in coarser units. The violation fields count nanoseconds, whatever the help text of an
# exporter's CSV says (NVIDIA/dcgm-exporter#589).
_LOAD: tuple[Field, ...] = (
    Field(
        4,
        ("DCGM_FI_DEV_COUNT", "DCGM_FI_SYSTEM_GPU_QUANTITY"),
        Rule("node_gpus_visible"),
    ),
    _board(66, "gpu_persistence_mode", "PERSISTENCE_MODE GPU_PERSISTENCE_MODE"),
    _board(67, "gpu_mig_mode", "MIG_MODE"),
    _board(100, "gpu_sm_clock_hertz", "dcgm_sm_clock SM_CLOCK", _MEGA, 1),
    _board(1603, "gpu_sm_clock_hertz", "SM_CLOCK_HERTZ"),
    _board(101, "gpu_memory_clock_hertz", "dcgm_memory_clock MEM_CLOCK", _MEGA, 1),
    _board(1604, "gpu_memory_clock_hertz", "MEMORY_CLOCK_HERTZ"),
    _board(113, "gpu_sm_clock_max_hertz", "MAX_SM_CLOCK", _MEGA, 1),
    _board(1608, "gpu_sm_clock_max_hertz", "SM_MAX_CLOCK_HERTZ"),
    _board(114, "gpu_memory_clock_max_hertz", "MAX_MEM_CLOCK", _MEGA, 1),
    _board(1609, "gpu_memory_clock_max_hertz", "MEMORY_MAX_CLOCK_HERTZ"),
    _board(112, "gpu_clock_event_reasons", "CLOCK_THROTTLE_REASONS CLOCKS_EVENT_REASONS"),
    _board(190, "gpu_performance_state", "PSTATE GPU_PSTATE"),
    _percent(203, "gpu_utilization_ratio", "dcgm_gpu_utilization GPU_UTIL GPU_UTIL_RATIO"),
    _percent(
        204,
        "gpu_memory_utilization_ratio",
        "dcgm_mem_copy_utilization MEM_COPY_UTIL MEM_COPY_UTIL_RATIO",
    ),
    _own(250, "gpu_memory_total_bytes", "FB_TOTAL", _MEBI, 1),
    _own(1625, "gpu_memory_total_bytes", "FB_CAPACITY_BYTES"),
    _own(252, "gpu_memory_used_bytes", "dcgm_fb_used FB_USED", _MEBI, 1),
    _own(1627, "gpu_memory_used_bytes", "FB_USED_BYTES"),
    _own(253, "gpu_memory_reserved_bytes", "FB_RESERVED", _MEBI, 1),
    _own(1628, "gpu_memory_reserved_bytes", "FB_RESERVED_BYTES"),
    _board(90, "gpu_bar1_total_bytes", "BAR1_TOTAL", _MEBI),
    _board(92, "gpu_bar1_used_bytes", "BAR1_USED", _MEBI),
)
_COOLING_AND_POWER: tuple[Field, ...] = (
    _board(150, "gpu_temperature_celsius", "dcgm_gpu_temp GPU_TEMP GPU_TEMP_CELSIUS"),
    _board(
        140,
        "gpu_memory_temperature_celsius",
        "dcgm_memory_temp MEMORY_TEMP MEMORY_TEMP_CELSIUS",
    ),
    _board(153, "gpu_temperature_margin_celsius", "GPU_TEMP_LIMIT GPU_TEMP_MARGIN_CELSIUS"),
    _board(158, "gpu_slowdown_temperature_celsius", "SLOWDOWN_TEMP GPU_TEMP_SLOWDOWN_CELSIUS"),
    _board(159, "gpu_shutdown_temperature_celsius", "SHUTDOWN_TEMP GPU_TEMP_SHUTDOWN_CELSIUS"),
    _board(152, "gpu_temperature_max_celsius", "GPU_MAX_OP_TEMP"),
    _board(151, "gpu_memory_temperature_max_celsius", "MEM_MAX_OP_TEMP"),
    _board(191, "gpu_fan_speed_ratio", "FAN_SPEED", _PERCENT),
    _board(160, "gpu_power_limit_requested_watts", "POWER_MGMT_LIMIT"),
    _board(161, "gpu_power_limit_min_watts", "POWER_MGMT_LIMIT_MIN"),
    _board(162, "gpu_power_limit_max_watts", "POWER_MGMT_LIMIT_MAX"),
    _board(155, "gpu_power_watts", "dcgm_power_usage POWER_USAGE BOARD_POWER_WATTS"),
    _board(157, "gpu_power_instant_watts", "POWER_USAGE_INSTANT BOARD_POWER_RAW_WATTS"),
    _board(
        164,
        "gpu_power_limit_watts",
        "ENFORCED_POWER_LIMIT BOARD_POWER_LIMIT_ENFORCED_WATTS",
    ),
    _board(
        163,
        "gpu_power_limit_default_watts",
        "POWER_MGMT_LIMIT_DEF BOARD_POWER_LIMIT_DEFAULT_WATTS",
    ),
    _board(
        156,
        "gpu_energy_joules_total",
        "dcgm_total_energy_consumption TOTAL_ENERGY_CONSUMPTION",
        _MILLI,
        1,
    ),
    _board(1611, "gpu_energy_joules_total", "GPU_ENERGY_JOULES_TOTAL"),
    _board(
        1432,
        "gpu_power_smoothing_lifetime_ratio",
        "PWR_SMOOTHING_HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING",
        _PERCENT,
    ),
    _board(
        1423,
        "gpu_thermal_slowdown_seconds_total",
        "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
        _NANO,
    ),
    _board(
        1424,
        "gpu_power_brake_seconds_total",
        "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
        _NANO,
    ),
    _board(
        1422,
        "gpu_software_thermal_slowdown_seconds_total",
        "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
        _NANO,
    ),
    _board(1420, "gpu_power_cap_seconds_total", "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", _NANO),
    _board(240, "gpu_power_cap_seconds_total", "dcgm_power_violation POWER_VIOLATION", _NANO, 1),
    _board(
        241,
        "gpu_thermal_violation_seconds_total",
        "dcgm_thermal_violation THERMAL_VIOLATION",
        _NANO,
    ),
    _board(
        242,
        "gpu_sync_boost_seconds_total",
        "dcgm_sync_boost_violation SYNC_BOOST_VIOLATION",
        _NANO,
    ),
    _board(
        243,
        "gpu_board_limit_seconds_total",
        "dcgm_board_limit_violation BOARD_LIMIT_VIOLATION",
        _NANO,
    ),
    _board(
        244,
        "gpu_low_utilization_seconds_total",
        "dcgm_low_util_violation LOW_UTIL_VIOLATION",
        _NANO,
    ),
    _board(
        245,
        "gpu_reliability_violation_seconds_total",
        "dcgm_reliability_violation RELIABILITY_VIOLATION",
        _NANO,
    ),
)
_MEMORY: tuple[Field, ...] = (
    _board(300, "gpu_ecc_mode", "ECC_CURRENT ECC_MODE"),
    _board(301, "gpu_ecc_mode_pending", "ECC_PENDING"),
    _own(
        310,
        "gpu_ecc_corrected_volatile_total",
        "dcgm_ecc_sbe_volatile_total ECC_SBE_VOL_TOTAL",
    ),
    _own(
        311,
        "gpu_ecc_uncorrected_volatile_total",
        "dcgm_ecc_dbe_volatile_total ECC_DBE_VOL_TOTAL",
    ),
    _own(
        312,
        "gpu_ecc_corrected_aggregate_total",
        "dcgm_ecc_sbe_aggregate_total ECC_SBE_AGG_TOTAL",
    ),
    _own(
        313,
        "gpu_ecc_uncorrected_aggregate_total",
        "dcgm_ecc_dbe_aggregate_total ECC_DBE_AGG_TOTAL",
    ),
    _own(318, "gpu_ecc_dram_corrected_volatile_total", "ECC_SBE_VOL_DEV"),
    _own(319, "gpu_ecc_dram_uncorrected_volatile_total", "ECC_DBE_VOL_DEV"),
    _own(328, "gpu_ecc_dram_corrected_aggregate_total", "ECC_SBE_AGG_DEV"),
    _own(329, "gpu_ecc_dram_uncorrected_aggregate_total", "ECC_DBE_AGG_DEV"),
    _own(342, "gpu_sram_corrected_volatile_total", "ECC_SBE_VOL_SRM"),
    _own(344, "gpu_sram_corrected_aggregate_total", "ECC_SBE_AGG_SRM"),
    _board(346, "gpu_sram_threshold_exceeded", "THRESHOLD_SRM SRAM_EXCEEDED"),
    *(
        _board(
            385 + number,
            f"gpu_row_remap_banks_{left.lower()}",
            f"BANKS_REMAP_ROWS_AVAIL_{left} BANK_REMAP_AVAIL_{left}",
        )
        for number, left in enumerate(("MAX", "HIGH", "PARTIAL", "LOW", "NONE"))
    ),
    _board(
        390,
        "gpu_retired_pages_corrected_total",
        "dcgm_retired_pages_sbe RETIRED_SBE PAGE_RETIRED_SBE_TOTAL",
    ),
    _board(
        391,
        "gpu_retired_pages_uncorrected_total",
        "dcgm_retired_pages_dbe RETIRED_DBE PAGE_RETIRED_DBE_TOTAL",
    ),
    _board(
        392,
        "gpu_retired_pages_pending",
        "dcgm_retired_pages_pending RETIRED_PENDING PAGE_RETIRED_PENDING",
    ),
    _board(
        393,
        "gpu_rows_remapped_uncorrectable_total",
        "UNCORRECTABLE_REMAPPED_ROWS ROW_REMAP_UNCORRECTABLE_TOTAL",
    ),
    _board(
        394,
        "gpu_rows_remapped_correctable_total",
        "CORRECTABLE_REMAPPED_ROWS ROW_REMAP_CORRECTABLE_TOTAL",
    ),
    _board(84, "gpu_inforom_valid", "INFOROM_CONFIG_VALID"),
    _board(395, "gpu_row_remap_failure", "ROW_REMAP_FAILURE ROW_REMAP_FAILED"),
    _board(396, "gpu_row_remap_pending", "ROW_REMAP_PENDING"),
    _board(1507, "gpu_memory_unrepairable", "MEMORY_UNREPAIRABLE_FLAG MEMORY_UNREPAIRABLE"),
    _board(1523, "gpu_recovery_action", "GET_GPU_RECOVERY_ACTION GPU_RECOVERY_ACTION"),
)
_BUS: tuple[Field, ...] = (
    _board(
        202,
        "gpu_pcie_replay_total",
        "dcgm_pcie_replay_counter PCIE_REPLAY_COUNTER PCIE_REPLAY_TOTAL",
    ),
    _board(235, "gpu_pcie_link_generation_max", "PCIE_MAX_LINK_GEN"),
    _board(236, "gpu_pcie_link_width_max", "PCIE_MAX_LINK_WIDTH"),
    _board(237, "gpu_pcie_link_generation", "PCIE_LINK_GEN"),
    _board(238, "gpu_pcie_link_width", "PCIE_LINK_WIDTH"),
    _board(
        1501,
        "gpu_pcie_correctable_errors_total",
        "PCIE_COUNT_CORRECTABLE_ERRORS PCIE_CORRECTABLE_ERROR_TOTAL",
    ),
    _board(285, "gpu_c2c_links", "C2C_LINK_COUNT C2C_LINK_QUANTITY"),
    _board(1400, "gpu_c2c_errors_total", "C2C_LINK_ERROR_INTR"),
    _board(1401, "gpu_c2c_replays_total", "C2C_LINK_ERROR_REPLAY"),
    _board(1402, "gpu_c2c_back_to_back_replays_total", "C2C_LINK_ERROR_REPLAY_B2B"),
)
_NVLINK: tuple[Field, ...] = (
    _link_error(
        409,
        "crc",
        0,
        "dcgm_nvlink_flit_crc_error_count_total NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL "
        "NVLINK_CRC_FLIT_ERROR_TOTAL",
    ),
    _link_error(
        429,
        "replay",
        0,
        "dcgm_nvlink_replay_error_count_total NVLINK_REPLAY_ERROR_COUNT_TOTAL "
        "NVLINK_REPLAY_ERROR_TOTAL",
    ),
    _link_error(
        439,
        "recovery",
        0,
        "dcgm_nvlink_recovery_error_count_total NVLINK_RECOVERY_ERROR_COUNT_TOTAL "
        "NVLINK_RECOVERY_ERROR_TOTAL",
    ),
    _link_error(497, "crc", 1, "NVLINK_ERROR_DL_CRC NVLINK_CRC_ERROR_TOTAL"),
    _link_error(498, "recovery", 1, "NVLINK_ERROR_DL_RECOVERY NVLINK_RECOVERY_TOTAL"),
    _link_error(499, "replay", 1, "NVLINK_ERROR_DL_REPLAY NVLINK_REPLAY_TOTAL"),
    _link_error(1525, "crc", 2, "NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL"),
    _link_error(1527, "replay", 2, "NVLINK_REPLAY_ERROR_PER_LINK_TOTAL"),
    _link_error(1528, "recovery", 2, "NVLINK_RECOVERY_ERROR_PER_LINK_TOTAL"),
    *(
        Field(1508, _named("NVLINK_GET_STATE"), Rule(metric, split_by=_LINK, counts=states))
        for metric, states in (
            ("gpu_nvlinks_active", _LINK_UP),
            ("gpu_nvlinks_inactive", _LINK_DOWN),
        )
    ),
    _links(1213, "gpu_nvlink_recovery_events_total", "NVLINK_COUNT_LINK_RECOVERY_EVENTS"),
    _links(
        1204,
        "gpu_nvlink_malformed_packets_total",
        "NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS NVLINK_RX_PACKET_MALFORMED_TOTAL",
    ),
    _links(
        1205,
        "gpu_nvlink_buffer_overruns_total",
        "NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS NVLINK_RX_PACKET_DROPPED_TOTAL",
    ),
    _links(1206, "gpu_nvlink_receive_errors_total", "NVLINK_COUNT_RX_ERRORS NVLINK_RX_ERROR_TOTAL"),
    _links(
        1207,
        "gpu_nvlink_remote_errors_total",
        "NVLINK_COUNT_RX_REMOTE_ERRORS NVLINK_RX_REMOTE_ERROR_TOTAL",
    ),
    _links(
        1208,
        "gpu_nvlink_general_errors_total",
        "NVLINK_COUNT_RX_GENERAL_ERRORS NVLINK_RX_GENERAL_ERROR_TOTAL",
    ),
    _links(
        1209,
        "gpu_nvlink_integrity_errors_total",
        "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS NVLINK_INTEGRITY_ERROR_TOTAL",
    ),
    _links(1210, "gpu_nvlink_discards_total", "NVLINK_COUNT_TX_DISCARDS"),
    _links(
        1211,
        "gpu_nvlink_recoveries_total",
        "NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS NVLINK_RECOVERY_SUCCESSFUL_TOTAL",
    ),
    _links(
        1212,
        "gpu_nvlink_recoveries_failed_total",
        "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS NVLINK_RECOVERY_FAILED_TOTAL",
    ),
    _links(
        1214,
        "gpu_nvlink_symbol_errors_total",
        "NVLINK_COUNT_RX_SYMBOL_ERRORS NVLINK_RX_SYMBOL_ERROR_TOTAL",
    ),
    _worst_link(
        1216,
        "gpu_nvlink_symbol_ber_ratio",
        "NVLINK_COUNT_SYMBOL_BER_FLOAT NVLINK_SYMBOL_BER_RATIO",
    ),
    _worst_link(
        1218,
        "gpu_nvlink_effective_ber_ratio",
        "NVLINK_COUNT_EFFECTIVE_BER_FLOAT NVLINK_EFFECTIVE_BER_RATIO",
    ),
    _links(
        1219,
        "gpu_nvlink_effective_errors_total",
        "NVLINK_COUNT_EFFECTIVE_ERRORS NVLINK_EFFECTIVE_ERROR_TOTAL",
    ),
    *(
        _links(
            1404 + mended,
            f"gpu_nvlink_fec_history_{mended}_total",
            f"NVLINK_COUNT_FEC_HISTORY_{mended} NVLINK_FEC_HISTORY_{mended}_TOTAL",
        )
        for mended in range(16)
    ),
    _board(173, "gpu_fabric_clique", "FABRIC_CLIQUE_ID"),
    Field(170, _named("FABRIC_MANAGER_STATUS"), Rule("gpu_fabric_state", states=_FABRIC)),
    _board(171, "gpu_fabric_error_code", "FABRIC_MANAGER_ERROR_CODE FABRIC_MANAGER_ERROR"),
    _board(174, "gpu_fabric_health_mask", "FABRIC_HEALTH_MASK"),
)

FIELDS: tuple[Field, ...] = (*_LOAD, *_COOLING_AND_POWER, *_MEMORY, *_BUS, *_NVLINK)
"""Every field that we take; several may give one metric, and one field two."""
