"""NVML field values: many numbers of one GPU in one call, read in the child."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Readings

CALL = "nvmlDeviceGetFieldValues"

_NS, _MILLI, _KIB = 1e-9, 1e-3, 1024.0

# Field id -> metric and factor to its unit; ids as numbered in nvml.h (driver 580). Times that a
# clock limiter was active are in nanoseconds, power is in mW, NVLink traffic in KiB.
FIELDS: dict[int, tuple[str, float]] = {
    11: ("gpu_ecc_dram_corrected_volatile_total", 1.0),
    12: ("gpu_ecc_dram_uncorrected_volatile_total", 1.0),
    22: ("gpu_ecc_dram_corrected_aggregate_total", 1.0),
    23: ("gpu_ecc_dram_uncorrected_aggregate_total", 1.0),
    29: ("gpu_retired_pages_corrected_total", 1.0),
    30: ("gpu_retired_pages_uncorrected_total", 1.0),
    31: ("gpu_retired_pages_pending", 1.0),
    74: ("gpu_power_cap_seconds_total", _NS),
    75: ("gpu_thermal_violation_seconds_total", _NS),
    76: ("gpu_sync_boost_seconds_total", _NS),
    77: ("gpu_board_limit_seconds_total", _NS),
    79: ("gpu_reliability_violation_seconds_total", _NS),
    82: ("gpu_memory_temperature_celsius", 1.0),
    95: ("gpu_pcie_replay_rollover_total", 1.0),
    169: ("gpu_pcie_link_recoveries_total", 1.0),
    170: ("gpu_c2c_links", 1.0),
    173: ("gpu_pcie_correctable_errors_total", 1.0),
    174: ("gpu_pcie_naks_received_total", 1.0),
    175: ("gpu_pcie_receiver_errors_total", 1.0),
    176: ("gpu_pcie_tlp_errors_total", 1.0),
    177: ("gpu_pcie_naks_sent_total", 1.0),
    178: ("gpu_pcie_dllp_errors_total", 1.0),
    179: ("gpu_pcie_nonfatal_errors_total", 1.0),
    180: ("gpu_pcie_fatal_errors_total", 1.0),
    181: ("gpu_pcie_unsupported_requests_total", 1.0),
    182: ("gpu_pcie_lcrc_errors_total", 1.0),
    183: ("gpu_pcie_lane_errors_total", 1.0),
    186: ("gpu_power_instant_watts", _MILLI),
    197: ("gpu_pcie_transmitted_bytes_total", 1.0),
    198: ("gpu_pcie_received_bytes_total", 1.0),
    230: ("gpu_recovery_action", 1.0),
    231: ("gpu_c2c_errors_total", 1.0),
    232: ("gpu_c2c_replays_total", 1.0),
    258: ("gpu_power_smoothing_lifetime_ratio", 1e-2),
    269: ("gpu_software_thermal_slowdown_seconds_total", _NS),
    270: ("gpu_thermal_slowdown_seconds_total", _NS),
    271: ("gpu_power_brake_seconds_total", _NS),
    301: ("gpu_row_remaps_inactive_corrected", 1.0),
    302: ("gpu_row_remaps_inactive_uncorrected", 1.0),
    303: ("gpu_bank_remaps_active", 1.0),
    304: ("gpu_bank_remaps_inactive", 1.0),
    307: ("gpu_bank_remap_pending", 1.0),
}

# nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
_FIELD = struct.Struct("<IIqqII8s")

# nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, signed long long, signed
# int, unsigned short
_VALUES = tuple(struct.Struct(f"<{code}").unpack_from for code in "dIQQqiH")

# A field that does not exist; an older driver does not know the id and says INVALID_ARGUMENT.
UNKNOWN_FIELD = codes.ABSENT | {codes.INVALID_ARGUMENT}


@dataclass(frozen=True, slots=True)
class FieldBlock:
    """Room for one call: which fields are asked for, each with its scope.

    Attributes:
        asked: (field id, scope id); the scope names a link and is 0 for the GPU.
        room: Array of nvmlFieldValue_t, filled anew by each call.
    """

    asked: tuple[tuple[int, int], ...]
    room: Any

    @classmethod
    def of(cls, asked: Sequence[tuple[int, int]]) -> FieldBlock:
        """Make room for these fields."""
        room = (pynvml.c_nvmlFieldValue_t * len(asked))()
        for entry, (number, scope) in zip(room, asked, strict=True):
            entry.fieldId, entry.scopeId = number, scope
        return cls(tuple(asked), room)

    def read(self, caller: Caller, gpu: Gpu) -> Iterator[tuple[int, int, int, float]]:
        """(field id, scope id, nvmlReturn_t, number) of each field.

        Raises:
            CallError: The call as a whole failed, or one field says that the GPU is lost.
        """
        count = ctypes.c_int(len(self.asked))
        caller.call_pointer(CALL, gpu.handle, count, ctypes.byref(self.room))
        for number, scope, _, _, kind, code, raw in _FIELD.iter_unpack(self.room):
            if code == codes.SUCCESS and kind < len(_VALUES):
                yield number, scope, code, _VALUES[kind](raw)[0]
            elif code in codes.LOST:
                raise CallError(CALL, code)
            else:
                yield number, scope, codes.NO_DATA if code == codes.SUCCESS else code, 0.0


_ALL_ABSENT: Mapping[str, int] = {metric: codes.NOT_SUPPORTED for metric, _ in FIELDS.values()}


def read_fields(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """Read all field values in one call; each field carries its own code.

    Raises:
        CallError: The GPU is lost.
    """
    readings.missing.update(_ALL_ABSENT)
    if gpu.fields is None:
        wanted = [(number, 0) for number in FIELDS if f"FI:{number}" not in gpu.absent]
        gpu.fields = FieldBlock.of(wanted)
    if not gpu.fields.asked:
        return
    try:
        found = list(gpu.fields.read(caller, gpu))
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss(tuple(FIELDS[number][0] for number, _ in gpu.fields.asked), error.code)
        return
    for number, _, code, raw in found:
        metric, scale = FIELDS[number]
        if code == codes.SUCCESS:
            del readings.missing[metric]
            readings.note(metric, raw, scale)
        elif code in UNKNOWN_FIELD:
            gpu.absent.add(f"FI:{number}")
            gpu.fields = None
        else:
            readings.missing[metric] = code
