"""NVML field values and NVLinks: calls that answer in parts, read in the child."""

from __future__ import annotations

from typing import Any

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Readings

# Field id -> metric and factor; ids as numbered in nvml.h. 270 and 271 count nanoseconds.
FIELDS: dict[int, tuple[str, float]] = {
    82: ("gpu_memory_temperature_celsius", 1.0),
    230: ("gpu_recovery_action", 1.0),
    270: ("gpu_thermal_slowdown_seconds_total", 1e-9),
    271: ("gpu_power_brake_seconds_total", 1e-9),
}

# nvmlValueType_t -> member of nvmlValue_t.
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS, nvml.h of driver 580
_LINK_METRICS = ("gpu_nvlinks_active", "gpu_nvlinks_inactive")
_LINK_ERRORS = ("gpu_nvlink_errors_total",)
_LINK_ERROR_CALL = "nvmlDeviceGetNvLinkErrorCounter"
_LINK_COUNTERS = (0, 1, 2)  # NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT

# What a link that does not exist answers; drivers differ.
_NO_LINK = codes.ABSENT | {codes.INVALID_ARGUMENT}


def read_fields(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """Read all field values in one call; each field carries its own code.

    Raises:
        CallError: The GPU is lost.
    """
    wanted = [number for number in FIELDS if f"FI:{number}" not in gpu.absent]
    for number, (metric, _) in FIELDS.items():
        if number not in wanted:
            readings.missing[metric] = codes.NOT_SUPPORTED
    if not wanted:
        return
    try:
        fields = caller.call("nvmlDeviceGetFieldValues", gpu.handle, wanted)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss(tuple(FIELDS[number][0] for number in wanted), error.code)
        return
    for number, value in zip(wanted, fields, strict=True):
        _note_field(gpu, readings, number, value)


def _note_field(gpu: Gpu, readings: Readings, number: int, value: Any) -> None:
    metric, scale = FIELDS[number]
    code = value.nvmlReturn
    if code == codes.SUCCESS and value.valueType < len(_VALUE_MEMBERS):
        readings.note(metric, getattr(value.value, _VALUE_MEMBERS[value.valueType]), scale)
    elif code in codes.LOST:
        raise CallError("nvmlDeviceGetFieldValues", code)
    elif code in _NO_LINK:  # an older driver does not know the id: INVALID_ARGUMENT
        gpu.absent.add(f"FI:{number}")
        readings.missing[metric] = codes.NOT_SUPPORTED
    else:
        readings.missing[metric] = code if code != codes.SUCCESS else codes.NO_DATA


def read_links(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """Count active and inactive NVLinks and sum their errors.

    Raises:
        CallError: The GPU is lost.
    """
    try:
        states = _link_states(caller, gpu)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss(_LINK_METRICS + _LINK_ERRORS, error.code)
        return
    if not states:
        readings.miss(_LINK_METRICS + _LINK_ERRORS, codes.NOT_SUPPORTED)
        return
    active = sum(states.values())
    readings.values["gpu_nvlinks_active"] = active
    readings.values["gpu_nvlinks_inactive"] = len(states) - active
    _read_link_errors(caller, gpu, readings)


def _link_states(caller: Caller, gpu: Gpu) -> dict[int, int]:
    states: dict[int, int] = {}
    for link in range(MAX_LINKS) if gpu.links is None else gpu.links:
        try:
            states[link] = int(caller.call("nvmlDeviceGetNvLinkState", gpu.handle, link) != 0)
        except CallError as error:
            if error.code not in _NO_LINK:
                raise
    gpu.links = tuple(states)
    return states


def _read_link_errors(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """Sum the errors; a link that is down keeps its last count, so that the sum never falls."""
    if _LINK_ERROR_CALL in gpu.absent:
        readings.miss(_LINK_ERRORS, codes.NOT_SUPPORTED)
        return
    for link in gpu.links or ():
        try:
            gpu.link_errors[link] = sum(
                caller.call(_LINK_ERROR_CALL, gpu.handle, link, counter)
                for counter in _LINK_COUNTERS
            )
        except CallError as error:
            if error.code in _NO_LINK:
                continue
            if error.code in codes.LOST:
                raise
            readings.miss(_LINK_ERRORS, error.code)
            return
    if gpu.link_errors:
        readings.values["gpu_nvlink_errors_total"] = float(sum(gpu.link_errors.values()))
    else:
        gpu.absent.add(_LINK_ERROR_CALL)
        readings.miss(_LINK_ERRORS, codes.NOT_SUPPORTED)
