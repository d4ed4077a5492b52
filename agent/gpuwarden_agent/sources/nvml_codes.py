"""NVML's return codes as readings: the parent side knows them without importing pynvml."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gpuwarden_wire.readings import NotSupported, Unavailable

# nvmlReturn_t, NVML API reference.
SUCCESS: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
VERSION_MISMATCH: Final = 18
NO_DATA: Final = 21
GPU_NOT_FOUND: Final = 28
UNKNOWN: Final = 999

_REASONS = {
    UNINITIALIZED: "uninitialized",
    INVALID_ARGUMENT: "invalid_argument",
    NO_PERMISSION: "no_permission",
    5: "already_initialized",
    NOT_FOUND: "not_found",
    7: "insufficient_size",
    8: "insufficient_power",
    DRIVER_NOT_LOADED: "driver_not_loaded",
    TIMEOUT: "timeout",
    11: "irq_issue",
    LIBRARY_NOT_FOUND: "library_not_found",
    14: "corrupted_inforom",
    GPU_IS_LOST: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    VERSION_MISMATCH: "driver_library_mismatch",
    19: "in_use",
    20: "out_of_memory",
    NO_DATA: "no_reading",
    23: "insufficient_resources",
    27: "not_ready",
    GPU_NOT_FOUND: "gpu_not_found",
    29: "invalid_state",
    UNKNOWN: "unknown_error",
}

# The device or this driver does not have the call at all. 22 is ECC in a virtual GPU, 25 a struct
# version that an older driver does not know, 26 a call that a newer driver no longer answers.
ABSENT: Final = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, 22, 25, 26})

LOST: Final = frozenset({GPU_IS_LOST})
GONE: Final = frozenset({NOT_FOUND, GPU_NOT_FOUND})

# NVML must be initialised afresh, in a new process: the driver was unloaded or replaced under us.
REINITIALISE: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH})

_MENDS = {
    LIBRARY_NOT_FOUND: (
        "Install the NVIDIA driver, or set GPUWARDEN_AGENT_NVML_LIBRARY to the path of "
        "libnvidia-ml.so.1; where no GPU is to be read by NVML, GPUWARDEN_AGENT_NVML=off"
    ),
    DRIVER_NOT_LOADED: "Load the NVIDIA kernel driver (modprobe nvidia)",
    NO_PERMISSION: "Let the agent's user open /dev/nvidia*",
    VERSION_MISMATCH: "Reload the kernel driver or reboot: library and driver differ in version",
}


def reason_of(code: int) -> str:
    """Short stable phrase of a code; one that we do not know is "nvml_error_N"."""
    return _REASONS.get(code, f"nvml_error_{code}")


def mend_of(code: int) -> str:
    """What the operator can do about a code, "" where we know nothing better."""
    return _MENDS.get(code, "")


@lru_cache(maxsize=256)
def missing_reading(code: int) -> NotSupported | Unavailable:
    """The reading of a call that ended with `code`."""
    return NotSupported() if code in ABSENT else Unavailable(reason_of(code))
