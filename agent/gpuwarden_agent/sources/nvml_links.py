"""NVLinks of one GPU: how many are up, and what their counters add up to; read in the child."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu, Readings
from gpuwarden_agent.sources.nvml_fields import UNKNOWN_FIELD, FieldBlock

MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS, nvml.h of driver 580
ERRORS_EVERY_S = 15.0
"""Counters of 18 links are hundreds of fields; they grow slowly and are summed."""

_STATES = ("gpu_nvlinks_active", "gpu_nvlinks_inactive")
_STATE_CALL = "nvmlDeviceGetNvLinkState"
_ERROR_CALL = "nvmlDeviceGetNvLinkErrorCounter"
_ERROR_COUNTERS = (0, 1, 2)  # NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT


def decode_ber(packed: float) -> float:
    """Bit error ratio from NVLink 5's packed form: mantissa in bits 8 to 11, exponent in 0 to 7.

    The exponent 255 (nvidia-smi prints 15e-255) stands for none measured: 0.
    """
    bits = int(packed)
    mantissa, exponent = (bits >> 8) & 0xF, bits & 0xFF
    return mantissa * 10.0**-exponent if exponent < 0xFF else 0.0


@dataclass(frozen=True, slots=True)
class LinkMetric:
    """One metric made from a field of every link.

    Attributes:
        metric: Name.
        fields: Field ids, as numbered in nvml.h, that are added up for a link.
        of: Number of a field; raw where it needs no decoding.
        fold: Makes one number of all links.
    """

    metric: str
    fields: tuple[int, ...]
    of: Callable[[float], float] = float
    fold: Callable[[list[float]], float] = sum


# Up to NVLink 4: replay, recovery and CRC of the data link layer. From NVLink 5 (Blackwell) on the
# driver answers 206 to 222 instead. Error ratios are the worst link's.
LINK_METRICS: tuple[LinkMetric, ...] = (
    LinkMetric("gpu_nvlink_errors_total", (161, 162, 163)),
    LinkMetric("gpu_nvlink_malformed_packets_total", (206,)),
    LinkMetric("gpu_nvlink_buffer_overruns_total", (207,)),
    LinkMetric("gpu_nvlink_receive_errors_total", (208,)),
    LinkMetric("gpu_nvlink_remote_errors_total", (209,)),
    LinkMetric("gpu_nvlink_general_errors_total", (210,)),
    LinkMetric("gpu_nvlink_integrity_errors_total", (211,)),
    LinkMetric("gpu_nvlink_discards_total", (212,)),
    LinkMetric("gpu_nvlink_recoveries_total", (213,)),
    LinkMetric("gpu_nvlink_recoveries_failed_total", (214,)),
    LinkMetric("gpu_nvlink_effective_errors_total", (219,)),
    LinkMetric("gpu_nvlink_effective_ber_ratio", (220,), decode_ber, max),
    LinkMetric("gpu_nvlink_symbol_errors_total", (221,)),
    LinkMetric("gpu_nvlink_symbol_ber_ratio", (222,), decode_ber, max),
)
_ERRORS = LINK_METRICS[0].metric
_NAMES = tuple(one.metric for one in LINK_METRICS)


def read_links(caller: Caller, gpu: Gpu, readings: Readings, now: float) -> None:
    """Count active and inactive NVLinks and add up their counters.

    Args:
        caller: Makes the calls.
        gpu: The GPU; a link that is down keeps its last counts, so that no sum ever falls.
        readings: Gets the numbers.
        now: Monotonic seconds; between two reads of the counters their last sums are given.

    Raises:
        CallError: The GPU is lost.
    """
    try:
        states = _link_states(caller, gpu)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss(_STATES + _NAMES, error.code)
        return
    if not states:
        readings.miss(_STATES + _NAMES, codes.NOT_SUPPORTED)
        return
    active = sum(states.values())
    readings.values["gpu_nvlinks_active"] = active
    readings.values["gpu_nvlinks_inactive"] = len(states) - active
    if now >= gpu.links_due or gpu.link_readings is None:
        gpu.links_due = now + ERRORS_EVERY_S
        gpu.link_readings = _read_counters(caller, gpu)
    readings.values.update(gpu.link_readings.values)
    readings.missing.update(gpu.link_readings.missing)


def _link_states(caller: Caller, gpu: Gpu) -> dict[int, int]:
    states: dict[int, int] = {}
    for link in range(MAX_LINKS) if gpu.links is None else gpu.links:
        try:
            states[link] = int(caller.call(_STATE_CALL, gpu.handle, link) != 0)
        except CallError as error:
            if error.code not in UNKNOWN_FIELD:
                raise
    gpu.links = tuple(states)
    return states


def _read_counters(caller: Caller, gpu: Gpu) -> Readings:
    readings = Readings()
    readings.miss(_NAMES, codes.NOT_SUPPORTED)
    if gpu.link_fields is None:
        gpu.link_fields = FieldBlock.of(_wanted(gpu))
    try:
        if gpu.link_fields.asked:
            _note_fields(gpu, gpu.link_fields.read(caller, gpu))
        if not _answered(gpu, LINK_METRICS[0]):
            _read_old_errors(caller, gpu)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss(_NAMES, error.code)
        return readings
    for one in LINK_METRICS:
        if counts := gpu.link_counts.get(one.metric):
            del readings.missing[one.metric]
            readings.values[one.metric] = float(one.fold(list(counts.values())))
    return readings


def _wanted(gpu: Gpu) -> list[tuple[int, int]]:
    return [
        (number, link)
        for link in gpu.links or ()
        for one in LINK_METRICS
        for number in one.fields
        if f"FI:{number}" not in gpu.absent
    ]


def _answered(gpu: Gpu, one: LinkMetric) -> bool:
    return not any(f"FI:{number}" in gpu.absent for number in one.fields)


def _note_fields(gpu: Gpu, found: Iterable[tuple[int, int, int, float]]) -> None:
    by_field: dict[tuple[int, int], float] = {}
    silent: set[int] = set()
    for number, link, code, raw in found:
        if code == codes.SUCCESS:
            by_field[number, link] = raw
        elif code in UNKNOWN_FIELD:
            silent.add(number)
    for number in silent - {number for number, _ in by_field}:  # no link has it
        gpu.absent.add(f"FI:{number}")
        gpu.link_fields = None
    for one in LINK_METRICS:
        _sum_links(gpu, one, by_field)


def _sum_links(gpu: Gpu, one: LinkMetric, found: Mapping[tuple[int, int], float]) -> None:
    for link in gpu.links or ():
        parts = [one.of(found[number, link]) for number in one.fields if (number, link) in found]
        if len(parts) == len(one.fields):
            gpu.link_counts.setdefault(one.metric, {})[link] = sum(parts)


def _read_old_errors(caller: Caller, gpu: Gpu) -> None:
    """As older drivers give them: a call for every link and counter."""
    if _ERROR_CALL in gpu.absent:
        return
    counts = gpu.link_counts.setdefault(_ERRORS, {})
    for link in gpu.links or ():
        try:
            counts[link] = float(
                sum(caller.call(_ERROR_CALL, gpu.handle, link, n) for n in _ERROR_COUNTERS)
            )
        except CallError as error:
            if error.code not in UNKNOWN_FIELD:
                raise
    if not counts:
        gpu.absent.add(_ERROR_CALL)
