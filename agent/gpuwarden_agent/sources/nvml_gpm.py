"""GPM: how busy the parts of a GPU were between two samples (Hopper on), where switched on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Readings

# Metric by NVML's number of it (nvml.h, nvmlGpmMetricId_t); each is in percent.
_METRICS = {
    1: "gpu_graphics_active_ratio",
    2: "gpu_sm_active_ratio",
    5: "gpu_tensor_active_ratio",
    10: "gpu_dram_active_ratio",
}
GPM_METRICS = tuple(_METRICS.values())
_KEY = "GPM"


@dataclass(slots=True)
class GpmSampler:
    """Samples of one GPU.

    Attributes:
        every_s: Seconds between two, infinite for none.
        due: Monotonic seconds of the next.
        readings: What the last two said.
        samples: Where they lie: the last one, and the next; none before the first.
        has_last: The last one was taken under what holds now.
    """

    every_s: float = math.inf
    due: float = -math.inf
    readings: Readings = field(default_factory=Readings)
    samples: list[Any] = field(default_factory=list)
    has_last: bool = False

    def forget(self) -> None:
        """What was sampled says nothing of what comes: a reset, another mode."""
        self.has_last = False
        self.due = -math.inf


def sample(caller: Caller, gpu: Gpu, now: float) -> bool:
    """Take a sample where it is due; whether there are other readings than before.

    Args:
        caller: Makes the calls.
        gpu: The GPU; that it has no GPM is remembered with it.
        now: Monotonic seconds.

    Raises:
        CallError: The GPU is lost.
    """
    sampler = gpu.gpm
    if now < sampler.due:
        return False
    sampler.due = now + sampler.every_s
    sampler.readings = Readings()
    sampler.readings.miss(GPM_METRICS, codes.NOT_SUPPORTED)
    try:
        if sampler.every_s < math.inf and _KEY not in gpu.absent:
            _measure(caller, gpu, sampler)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        if error.code in codes.ABSENT:
            gpu.absent.add(_KEY)
        sampler.has_last = False
        sampler.readings.miss(GPM_METRICS, error.code)
    return True


def _measure(caller: Caller, gpu: Gpu, sampler: GpmSampler) -> None:
    if not sampler.samples:
        support = caller.call("nvmlGpmQueryDeviceSupport", gpu.handle)
        if not support.isSupportedDevice:
            raise CallError("nvmlGpmQueryDeviceSupport", codes.NOT_SUPPORTED)
        # Kept for good: a GPU that comes back uses those that it had.
        sampler.samples = [caller.call("nvmlGpmSampleAlloc") for _ in range(2)]
    last, fresh = sampler.samples
    caller.call("nvmlGpmSampleGet", gpu.handle, fresh)
    sampler.samples = [fresh, last]
    if sampler.has_last:
        _compare(caller, last, fresh, sampler.readings)
    else:
        sampler.has_last = True
        sampler.readings.miss(GPM_METRICS, codes.NO_DATA)


def _compare(caller: Caller, last: Any, fresh: Any, readings: Readings) -> None:
    wanted = pynvml.c_nvmlGpmMetricsGet_t()
    wanted.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(_METRICS)
    wanted.sample1, wanted.sample2 = last, fresh
    for place, number in enumerate(_METRICS):
        wanted.metrics[place].metricId = number
    caller.call("nvmlGpmMetricsGet", wanted)
    for place, metric in enumerate(GPM_METRICS):
        found = wanted.metrics[place]
        if found.nvmlReturn == codes.SUCCESS and math.isfinite(found.value):
            readings.note(metric, found.value, 1e-2)
        else:
            readings.miss((metric,), found.nvmlReturn or codes.NO_DATA)
