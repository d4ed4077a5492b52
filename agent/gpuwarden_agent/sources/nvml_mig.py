"""MIG: the instances that a GPU is cut into, and what each says of its own memory.

What else NVML counts (ECC of DRAM, XIDs, links, temperature) belongs to the whole GPU. A look-up of
an instance is dear: each is looked up once a minute, and none where the mode is off.
"""

from __future__ import annotations

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Handle, Readings

MOST_INSTANCES = 7
"""Compute instances of one GPU, nvmlDeviceGetMaxMigDeviceCount of all that there are."""

_Numbers = tuple[int, ...]
MIG_DEVICES = "gpu_mig_devices"
# nvml.h: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_MEMORY_LOCATION_SRAM. Of an
# instance NVML counts these only; of a GPU that is cut it no longer does.
_UNCORRECTED, _VOLATILE, _SRAM = 1, 0, 7


def _names(number: int) -> tuple[str, str, str, str]:
    """Metrics of an instance: its GPU instance, memory used and total, errors."""
    return (
        f"gpu_mig_{number}_gpu_instance",
        f"gpu_mig_{number}_memory_used_bytes",
        f"gpu_mig_{number}_memory_total_bytes",
        f"gpu_mig_{number}_sram_uncorrected_volatile_total",
    )


_NAMES = tuple(map(_names, range(MOST_INSTANCES)))
INSTANCE_METRICS = tuple(name for names in _NAMES for name in names)


def read_instances(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """Count the instances and read each; nothing is asked of a GPU that is not cut.

    Of a GPU whose mode could not be read, none of it could be.

    Args:
        caller: Makes the calls.
        gpu: The GPU; what its instances do not answer is remembered with it.
        readings: Holds its MIG mode.

    Raises:
        CallError: The GPU is lost.
    """
    if readings.values.get("gpu_mig_mode") != 1:
        code = readings.missing.get("gpu_mig_mode", codes.NOT_SUPPORTED)
        readings.miss((MIG_DEVICES, *INSTANCE_METRICS), code)
        return
    try:
        instances = _find(caller, gpu)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss((MIG_DEVICES, *INSTANCE_METRICS), error.code)
        return
    readings.values[MIG_DEVICES] = float(len(instances))
    readings.miss(INSTANCE_METRICS, codes.NOT_SUPPORTED)
    for number, handle in instances.items():
        for metrics, call, arguments in _calls(_NAMES[number]):
            _read(caller, gpu, handle, metrics, call, arguments, readings)


def _find(caller: Caller, gpu: Gpu) -> dict[int, Handle]:
    """Handles by number; one that is gone leaves those of the others as they were."""
    most = caller.call("nvmlDeviceGetMaxMigDeviceCount", gpu.handle)
    found = {}
    for number in range(min(most, MOST_INSTANCES)):
        try:
            found[number] = caller.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, number)
        except CallError as error:
            if error.code not in codes.GONE:
                raise
    return found


def _calls(names: tuple[str, str, str, str]) -> tuple[tuple[tuple[str, ...], str, _Numbers], ...]:
    """Metrics, call and further arguments of all that is asked of an instance."""
    place, used, total, errors = names
    return (
        ((place,), "nvmlDeviceGetGpuInstanceId", ()),
        ((used, total), "nvmlDeviceGetMemoryInfo", ()),
        ((errors,), "nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _VOLATILE, _SRAM)),
    )


def _read(
    caller: Caller,
    gpu: Gpu,
    handle: Handle,
    metrics: tuple[str, ...],
    call: str,
    arguments: _Numbers,
    readings: Readings,
) -> None:
    key = f"MIG:{call}"
    if key in gpu.absent:
        return
    try:
        answer = caller.call(call, handle, *arguments)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        if error.code in codes.ABSENT:
            gpu.absent.add(key)
        readings.miss(metrics, error.code)
        return
    numbers = (answer,) if len(metrics) == 1 else (answer.used, answer.total)
    for metric, number in zip(metrics, numbers, strict=True):
        readings.note(metric, number)
