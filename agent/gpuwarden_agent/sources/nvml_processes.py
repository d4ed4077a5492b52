"""Processes that compute on a GPU, read in the child: their ids and nothing else."""

from __future__ import annotations

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu

PROCESSES_EVERY_S = 15.0
"""A job holds a GPU for minutes at least, and the call is dear: it fills an array."""

PROCESSES_AT_MOST = 256
_CALL = "nvmlDeviceGetComputeRunningProcesses"


def read_processes(caller: Caller, gpu: Gpu, now: float) -> tuple[int, ...] | None:
    """Ids of the processes, rising; None where it is not their turn, or the GPU does not say.

    Args:
        caller: Makes the call.
        gpu: The GPU; what it does not answer is remembered with it.
        now: Monotonic seconds.

    Raises:
        CallError: The GPU is lost.
    """
    if now < gpu.processes_due:
        return None
    gpu.processes_due = now + PROCESSES_EVERY_S
    if _CALL in gpu.absent:
        return None
    try:
        found = caller.call(_CALL, gpu.handle)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        if error.code in codes.ABSENT:
            gpu.absent.add(_CALL)
        gpu.processes, gpu.processes_code = None, error.code
        return None
    gpu.processes = len(found)
    pids = {process.pid for process in found}
    # 0 stands for a process of another pid name space
    return tuple(sorted(pids - {0})[:PROCESSES_AT_MOST])
