"""How far a GPU has joined the NVLink fabric, and how healthy its part of it is."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu

FABRIC_METRICS = (
    "gpu_fabric_state",
    "gpu_fabric_error_code",
    "gpu_fabric_clique",
    "gpu_fabric_health",
    "gpu_fabric_health_mask",
    "gpu_fabric_bandwidth_degraded",
    "gpu_fabric_route_recovering",
    "gpu_fabric_route_unhealthy",
    "gpu_fabric_access_timeout_recovering",
    "gpu_fabric_misconfiguration",
)

_NOT_SUPPORTED = 0  # NVML_GPU_FABRIC_STATE_, NVML_GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED
_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED

# Where the flags lie in the health mask, each two bits wide, 0 not supported, 1 true, 2 false; the
# last is four bits wide, 0 not supported, 1 none, else what is wrong (nvml.h,
# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ and _WIDTH_).
_FLAG_SHIFTS = (0, 2, 4, 6)
_MISCONFIGURATION_SHIFT = 8

_CALL = "nvmlDeviceGetGpuFabricInfoV"


def read_fabric(version: int) -> Callable[[Caller, Gpu], tuple[float | None, ...]]:
    """A reader of FABRIC_METRICS by the struct of a version.

    A driver, and a pynvml, knows the versions up to its own.
    """
    make: Callable[[], Any] | None = getattr(pynvml, f"c_nvmlGpuFabricInfo_v{version}_t", None)

    def read(caller: Caller, gpu: Gpu) -> tuple[float | None, ...]:
        if make is None:
            raise CallError(_CALL, codes.FUNCTION_NOT_FOUND)
        info = make()
        caller.call(_CALL, gpu.handle, byref(info))
        return decode_fabric(
            info.state & 0xFF,  # a byte in nvml.h, with padding behind it
            info.status,
            info.cliqueId,
            getattr(info, "healthSummary", _NOT_SUPPORTED),
            info.healthMask,
        )

    return read


def decode_fabric(
    state: int, error: int, clique: int, summary: int, mask: int
) -> tuple[float | None, ...]:
    """One number a metric of FABRIC_METRICS; None for what the GPU does not have.

    Error, clique and health mean nothing before the GPU has joined.
    """
    if state == _NOT_SUPPORTED:
        return (None,) * len(FABRIC_METRICS)
    if state != _COMPLETED:
        return (state, *(None,) * (len(FABRIC_METRICS) - 1))
    flags = tuple(_flag(mask >> shift) for shift in _FLAG_SHIFTS)
    wrong = mask >> _MISCONFIGURATION_SHIFT & 0xF
    return (state, error, clique, summary or None, mask, *flags, wrong - 1 if wrong else None)


def _flag(bits: int) -> float | None:
    return {1: 1.0, 2: 0.0}.get(bits & 0x3)
