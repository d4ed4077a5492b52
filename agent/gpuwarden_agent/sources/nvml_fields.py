"""NVML field values: many readings of a GPU in one call, read in the child."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Lane, Readings

# nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value. Unpacked
# by hand: ctypes takes a microsecond for each member of each field.
_FIELD = struct.Struct("=IIqqII8s")
FIELD_BYTES = _FIELD.size

# nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, signed long long, signed
# int, unsigned short.
_KINDS = ("d", "I", "Q", "Q", "q", "i", "H")
_NUMBERS = tuple(struct.Struct(f"={code}").unpack_from for code in _KINDS)

# An older driver does not know an id: INVALID_ARGUMENT.
NO_FIELD = codes.ABSENT | {codes.INVALID_ARGUMENT}

_ALL_LINKS = 0xFFFFFFFF  # scope UINT_MAX: summed over all links, nvml.h
_MODULE = 1  # NVML_POWER_SCOPE_MODULE
_NS, _MILLI, _KIB = 1e-9, 1e-3, 1024.0


@dataclass(frozen=True, slots=True)
class Field:
    """One field value and the metric made from it.

    Attributes:
        number: Field id as numbered in nvml.h.
        metric: Metric name.
        scale: Factor from NVML's unit to the registry's.
        scope: Scope id; 0 is the GPU.
    """

    number: int
    metric: str
    scale: float = 1.0
    scope: int = 0

    @property
    def key(self) -> str:
        """What the support memory holds."""
        return f"FI:{self.number}:{self.scope}"


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields that are read in one call of their own.

    A group that a driver chokes on costs its own readings only: on GB200 the NVLink counters made
    ECC counts unavailable where both were asked for together.
    """

    name: str
    fields: tuple[Field, ...]


def _numbered(first: int, *metrics: str) -> tuple[Field, ...]:
    return tuple(Field(first + n, metric) for n, metric in enumerate(metrics))


GROUPS: dict[Lane, tuple[FieldGroup, ...]] = {
    Lane.POLL: (
        FieldGroup(
            "state",
            (
                Field(82, "gpu_memory_temperature_celsius"),
                Field(230, "gpu_recovery_action"),
                Field(185, "gpu_power_average_watts", _MILLI),
                Field(186, "gpu_power_instant_watts", _MILLI),
                Field(74, "gpu_power_cap_seconds_total", _NS),
                Field(75, "gpu_thermal_violation_seconds_total", _NS),
                Field(76, "gpu_sync_boost_seconds_total", _NS),
                Field(77, "gpu_board_limit_seconds_total", _NS),
                Field(78, "gpu_low_utilization_seconds_total", _NS),
                Field(79, "gpu_reliability_violation_seconds_total", _NS),
                Field(269, "gpu_software_thermal_slowdown_seconds_total", _NS),
                Field(270, "gpu_thermal_slowdown_seconds_total", _NS),
                Field(271, "gpu_power_brake_seconds_total", _NS),
            ),
        ),
    ),
    Lane.MINUTE: (
        FieldGroup(
            "memory",
            (
                Field(11, "gpu_ecc_dram_corrected_volatile_total"),
                Field(12, "gpu_ecc_dram_uncorrected_volatile_total"),
                Field(22, "gpu_ecc_dram_corrected_aggregate_total"),
                Field(23, "gpu_ecc_dram_uncorrected_aggregate_total"),
                *_numbered(
                    29,
                    "gpu_retired_pages_corrected_total",
                    "gpu_retired_pages_uncorrected_total",
                    "gpu_retired_pages_pending",
                ),
                *_numbered(
                    301,
                    "gpu_row_remaps_inactive_corrected",
                    "gpu_row_remaps_inactive_uncorrected",
                    "gpu_bank_remaps_active",
                    "gpu_bank_remaps_inactive",
                    "gpu_bank_remap_spares_max",
                    "gpu_bank_remap_spares_none",
                    "gpu_bank_remap_pending",
                ),
            ),
        ),
        FieldGroup(
            "pcie",
            (
                Field(95, "gpu_pcie_replay_rollover_total"),
                Field(169, "gpu_pcie_link_recoveries_total"),
                *_numbered(
                    173,
                    "gpu_pcie_correctable_errors_total",
                    "gpu_pcie_naks_received_total",
                    "gpu_pcie_receiver_errors_total",
                    "gpu_pcie_tlp_errors_total",
                    "gpu_pcie_naks_sent_total",
                    "gpu_pcie_dllp_errors_total",
                    "gpu_pcie_nonfatal_errors_total",
                    "gpu_pcie_fatal_errors_total",
                    "gpu_pcie_unsupported_requests_total",
                    "gpu_pcie_lcrc_errors_total",
                    "gpu_pcie_lane_errors_total",
                ),
                Field(197, "gpu_pcie_transmitted_bytes_total"),
                Field(198, "gpu_pcie_received_bytes_total"),
            ),
        ),
        FieldGroup(
            "power",
            (
                Field(192, "gpu_power_limit_requested_watts", _MILLI),
                Field(186, "gpu_module_power_watts", _MILLI, _MODULE),
                Field(258, "gpu_power_smoothing_lifetime_ratio", 1e-2),
            ),
        ),
        FieldGroup(
            "links",
            (
                Field(138, "gpu_nvlink_transmitted_bytes_total", _KIB, _ALL_LINKS),
                Field(139, "gpu_nvlink_received_bytes_total", _KIB, _ALL_LINKS),
                Field(160, "gpu_nvlink_ecc_errors_total"),
                Field(170, "gpu_c2c_links"),
            ),
        ),
    ),
    Lane.HOUR: (
        FieldGroup(
            "limits",
            (
                Field(187, "gpu_power_limit_min_watts", _MILLI),
                Field(188, "gpu_power_limit_max_watts", _MILLI),
                *_numbered(
                    193,
                    "gpu_shutdown_margin_celsius",
                    "gpu_slowdown_margin_celsius",
                    "gpu_memory_max_margin_celsius",
                    "gpu_max_margin_celsius",
                ),
            ),
        ),
    ),
}


def prepared(wanted: Sequence[tuple[int, int]]) -> Any:
    """An array of c_nvmlFieldValue_t for (field id, scope id) pairs."""
    values = (pynvml.c_nvmlFieldValue_t * len(wanted))()
    for value, (number, scope) in zip(values, wanted, strict=True):
        value.fieldId, value.scopeId = number, scope
    return values


def prepare_fields(wanted: Sequence[tuple[int, int]]) -> bytes:
    """The same as bytes."""
    return b"".join(_FIELD.pack(number, scope, 0, 0, 0, 0, b"") for number, scope in wanted)


def number_form(kind: int, code: int) -> tuple[str, bool]:
    """Struct format that takes the number out of one field, and whether there is one."""
    if code != codes.SUCCESS or kind >= len(_KINDS):
        return f"{FIELD_BYTES}x", False
    rest = 8 - struct.calcsize("=" + _KINDS[kind])
    return f"{FIELD_BYTES - 8}x{_KINDS[kind]}{rest}x", True


def unpack(values: Any) -> Iterator[tuple[int, int, int, float]]:
    """(field id, scope id, nvmlReturn_t, number) of each field of a filled array.

    Raises:
        CallError: One field says that the GPU is lost.
    """
    for number, scope, _, _, kind, code, raw in _FIELD.iter_unpack(values):
        if code in codes.LOST:
            raise CallError("nvmlDeviceGetFieldValues", code)
        if code != codes.SUCCESS:
            yield number, scope, code, 0.0
        elif kind < len(_NUMBERS):
            yield number, scope, code, _NUMBERS[kind](raw)[0]
        else:
            yield number, scope, codes.NO_DATA, 0.0


def read_fields(caller: Caller, gpu: Gpu, group: FieldGroup, readings: Readings) -> None:
    """Read one group in one call; each field carries its own code.

    Raises:
        CallError: The GPU is lost.
    """
    fields, values = _batch(gpu, group)
    readings.miss((one.metric for one in group.fields), codes.NOT_SUPPORTED)
    if not fields:
        return
    try:
        caller.fields(gpu.handle, values)
        answers = list(unpack(values))
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss((one.metric for one in fields), error.code)
        return
    for field, (_, _, code, number) in zip(fields, answers, strict=True):
        _note(gpu, readings, field, code, number)


def _batch(gpu: Gpu, group: FieldGroup) -> tuple[tuple[Field, ...], Any]:
    """The fields that this GPU has, and their array; made anew where support was learnt."""
    known: tuple[tuple[Field, ...], Any] | None = gpu.batches.get(group.name)
    if known is None:
        fields = tuple(one for one in group.fields if one.key not in gpu.absent)
        known = fields, prepared([(one.number, one.scope) for one in fields])
        gpu.batches[group.name] = known
    return known


def _note(gpu: Gpu, readings: Readings, field: Field, code: int, number: float) -> None:
    if code == codes.SUCCESS:
        readings.note(field.metric, number, field.scale)
    elif code in NO_FIELD:
        gpu.absent.add(field.key)
        gpu.batches.clear()
    else:
        readings.miss((field.metric,), code)
