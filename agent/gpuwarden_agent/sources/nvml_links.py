"""NVLinks and chip-to-chip links: states and counters of each, folded into one number a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import NO_READING, Caller, CallError, Gpu, Readings
from gpuwarden_agent.sources.nvml_fields import NO_FIELD, prepared, unpack
from gpuwarden_agent.sources.nvml_link_plan import make_link_plan

MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS, nvml.h of driver 580
_AT_ONCE = 128
"""Most field values in one call, so that a stuck one is seen soon."""

_STATE = 165  # NVML_FI_DEV_NVLINK_GET_STATE: 0 inactive, 1 active, 2 asleep to save power
_STATE_METRICS = ("gpu_nvlinks_active", "gpu_nvlinks_inactive")
_ERRORS = "gpu_nvlink_errors_total"
_ERROR_CALL = "nvmlDeviceGetNvLinkErrorCounter"

# Field id of a link's counter -> its number in nvmlNvLinkErrorCounter_t for drivers without the
# field (NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT), and the metric.
_ERROR_FIELDS: dict[int, tuple[int, str]] = {
    161: (0, "gpu_nvlink_dl_replays_total"),
    162: (1, "gpu_nvlink_dl_recoveries_total"),
    163: (2, "gpu_nvlink_crc_errors_total"),
}


def ber_of(packed: float) -> float:
    """A bit error rate as NVML packs it: mantissa in bits 8 to 11, exponent in bits 0 to 7.

    nvml.h: NVML_NVLINK_BER_MANTISSA_SHIFT 8, _WIDTH 0xf; NVML_NVLINK_BER_EXP_SHIFT 0, _WIDTH 0xff.
    The exponent 255 (nvidia-smi prints 15e-255) stands for none measured: 0.
    """
    bits = int(packed)
    mantissa, exponent = bits >> 8 & 0xF, bits & 0xFF
    return mantissa * 10.0**-exponent if exponent < 0xFF else 0.0


def _worst_ber(numbers: Iterable[float]) -> float:
    return max(map(ber_of, numbers))


def _slowest(numbers: Iterable[float]) -> float:
    """MB/s of the slowest link; one that is down says 0 and is counted elsewhere."""
    return min((number for number in numbers if number > 0), default=0.0)


@dataclass(frozen=True, slots=True)
class LinkField:
    """A field that each link has.

    Attributes:
        number: Field id; the scope is the link.
        metric: Metric name.
        fold: One number of those of all links.
        scale: Factor to the registry's unit.
        counts: A counter: a link that is down keeps its last count, so that the sum never falls.
    """

    number: int
    metric: str
    fold: Callable[[Iterable[float]], float] = sum
    scale: float = 1.0
    counts: bool = True


LINK_FIELDS: tuple[LinkField, ...] = (
    LinkField(164, "gpu_nvlink_speed_min_bytes_per_second", _slowest, 1e6, counts=False),
    LinkField(202, "gpu_nvlink_transmitted_bytes_total"),
    LinkField(204, "gpu_nvlink_received_bytes_total"),
    LinkField(206, "gpu_nvlink_malformed_packets_total"),
    LinkField(207, "gpu_nvlink_buffer_overruns_total"),
    LinkField(208, "gpu_nvlink_receive_errors_total"),
    LinkField(209, "gpu_nvlink_remote_errors_total"),
    LinkField(210, "gpu_nvlink_general_errors_total"),
    LinkField(211, "gpu_nvlink_integrity_errors_total"),
    LinkField(212, "gpu_nvlink_discards_total"),
    LinkField(213, "gpu_nvlink_recoveries_total"),
    LinkField(214, "gpu_nvlink_recoveries_failed_total"),
    LinkField(215, "gpu_nvlink_recovery_events_total"),
    LinkField(219, "gpu_nvlink_effective_errors_total"),
    LinkField(220, "gpu_nvlink_effective_ber_ratio", _worst_ber, counts=False),
    LinkField(221, "gpu_nvlink_symbol_errors_total"),
    LinkField(222, "gpu_nvlink_symbol_ber_ratio", _worst_ber, counts=False),
    *(LinkField(235 + mended, f"gpu_nvlink_fec_history_{mended}_total") for mended in range(16)),
)
C2C_FIELDS: tuple[LinkField, ...] = (
    LinkField(171, "gpu_c2c_links_active", counts=False),
    LinkField(231, "gpu_c2c_errors_total"),
    LinkField(232, "gpu_c2c_replays_total"),
    LinkField(233, "gpu_c2c_back_to_back_replays_total"),
)
LINK_STATE_METRICS = (
    *_STATE_METRICS,
    _ERRORS,
    *(metric for _, metric in _ERROR_FIELDS.values()),
)


def read_links(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """Count active and inactive NVLinks and sum their errors, in one call where there is a field.

    Raises:
        CallError: The GPU is lost.
    """
    _recall_errors(gpu)
    try:
        states = _states(caller, gpu)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss(LINK_STATE_METRICS, error.code)
        return
    gpu.links = tuple(states)
    if not states:
        readings.miss(LINK_STATE_METRICS, codes.NOT_SUPPORTED)
        return
    active = sum(states.values())
    readings.values["gpu_nvlinks_active"] = active
    readings.values["gpu_nvlinks_inactive"] = len(states) - active
    _read_errors(caller, gpu, readings)


def prepared_fields(gpu: Gpu, readings: Readings) -> tuple[tuple[tuple[int, int], ...], ...]:
    """What `read_links` asks for, in batches of (field, link); empty where a plan cannot.

    `fold_prepared` takes the numbers in this order: states, then each kind of error.

    Args:
        gpu: The GPU, read just before.
        readings: What that brought.
    """
    known = all(metric in readings.values for metric in LINK_STATE_METRICS)
    fields = (_STATE, *_ERROR_FIELDS)
    if not gpu.links or not known or any(_key(number) in gpu.absent for number in fields):
        return ()
    errors = [(number, link) for number in _ERROR_FIELDS for link in gpu.links]
    batches = [errors[at : at + _AT_ONCE] for at in range(0, len(errors), _AT_ONCE)]
    states = tuple((_STATE, link) for link in gpu.links)
    return (states, *map(tuple, batches))


def fold_prepared(gpu: Gpu, numbers: Sequence[float]) -> list[float]:
    """Numbers of `LINK_STATE_METRICS`, given those of `prepared_fields`."""
    count = len(numbers) // (1 + len(_ERROR_FIELDS))
    inactive = numbers[:count].count(0)
    counts = [numbers[at : at + count] for at in range(count, len(numbers), count)]
    gpu.link_errors = counts  # for the day on which a link is down and no longer says
    sums = [sum(one) for one in counts]
    return [count - inactive, inactive, sum(sums), *sums]


def _recall_errors(gpu: Gpu) -> None:
    """Counts that were folded without looking at each."""
    for number, counts in zip(_ERROR_FIELDS, gpu.link_errors, strict=False):
        for link, count in zip(gpu.links or (), counts, strict=False):
            gpu.link_counts[number, link] = count
    gpu.link_errors = ()


def read_link_fields(
    caller: Caller,
    gpu: Gpu,
    fields: Sequence[LinkField],
    links: Sequence[int],
    readings: Readings,
) -> None:
    """Read fields of each link and fold them; a field that no link has is not asked for again.

    Raises:
        CallError: The GPU is lost.
    """
    wanted = [one for one in fields if _key(one.number) not in gpu.absent] if links else []
    readings.miss((one.metric for one in fields if one not in wanted), codes.NOT_SUPPORTED)
    pairs = tuple((one.number, link) for one in wanted for link in links)
    try:
        if pairs and _read_planned(caller, gpu, wanted, pairs, readings):
            return
        answers = _ask(caller, gpu, pairs)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        readings.miss((one.metric for one in wanted), error.code)
        return
    gpu.link_plans[pairs] = make_link_plan([_array(gpu, part) for part in _parts(pairs)])
    for one in wanted:
        _fold(gpu, readings, one, {link: answers[one.number, link] for link in links})


def _read_planned(
    caller: Caller,
    gpu: Gpu,
    wanted: Sequence[LinkField],
    pairs: tuple[tuple[int, int], ...],
    readings: Readings,
) -> bool:
    """Read fields as they were read before; False where that is not how they answer now."""
    plan = gpu.link_plans.pop(pairs, None)
    numbers = plan.read(caller, gpu) if plan is not None else None
    if numbers is None:
        return False
    gpu.link_plans[pairs] = plan
    count = len(pairs) // len(wanted)
    for place, one in enumerate(wanted):
        part = numbers[place * count : (place + 1) * count]
        readings.note(one.metric, one.fold(part), one.scale)
        if one.counts:
            links = [link for _, link in pairs[:count]]
            gpu.link_counts.update(zip(((one.number, link) for link in links), part, strict=True))
    return True


def _states(caller: Caller, gpu: Gpu) -> dict[int, int]:
    """1 for an active link, 0 for an inactive one; links that do not exist are left out."""
    links = range(MAX_LINKS) if gpu.links is None else gpu.links
    if _key(_STATE) not in gpu.absent:
        answers = _ask(caller, gpu, [(_STATE, link) for link in links])
        states = {}
        for link in links:
            code, number = answers[_STATE, link]
            if code == codes.SUCCESS:
                states[link] = int(number != 0)
            elif code not in NO_FIELD:
                raise CallError("nvmlDeviceGetFieldValues", code)
        if states or not links:
            return states
        gpu.absent.add(_key(_STATE))
    return _called_states(caller, gpu, links)


def _called_states(caller: Caller, gpu: Gpu, links: Iterable[int]) -> dict[int, int]:
    """As drivers before the field answer it, a call a link."""
    states: dict[int, int] = {}
    for link in links:
        try:
            states[link] = int(caller.call("nvmlDeviceGetNvLinkState", gpu.handle, link) != 0)
        except CallError as error:
            if error.code not in NO_FIELD:
                raise
    return states


def _read_errors(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    fields = [LinkField(number, metric) for number, (_, metric) in _ERROR_FIELDS.items()]
    read_link_fields(caller, gpu, fields, gpu.links or (), readings)
    if all(_key(number) in gpu.absent for number in _ERROR_FIELDS):
        _call_errors(caller, gpu, readings)
    found = [readings.values.get(one.metric) for one in fields]
    numbers = [number for number in found if number is not None]
    if len(numbers) == len(fields):
        readings.values[_ERRORS] = float(sum(numbers))
    else:
        first = next((one.metric for one in fields if one.metric in readings.missing), "")
        readings.miss((_ERRORS,), readings.missing.get(first, codes.NOT_SUPPORTED))


def _call_errors(caller: Caller, gpu: Gpu, readings: Readings) -> None:
    """As drivers before the fields answer it, a call a link and counter."""
    if _ERROR_CALL in gpu.absent:
        return
    for number, (counter, metric) in _ERROR_FIELDS.items():
        answers = {link: _called_error(caller, gpu, link, counter) for link in gpu.links or ()}
        _fold(gpu, readings, LinkField(number, metric), answers)
    if not any(metric in readings.values for _, metric in _ERROR_FIELDS.values()):
        gpu.absent.add(_ERROR_CALL)


def _called_error(caller: Caller, gpu: Gpu, link: int, counter: int) -> tuple[int, float]:
    try:
        return codes.SUCCESS, caller.call(_ERROR_CALL, gpu.handle, link, counter)
    except CallError as error:
        if error.code in codes.LOST:
            raise
        return error.code, 0.0


def _fold(
    gpu: Gpu, readings: Readings, field: LinkField, answers: Mapping[int, tuple[int, float]]
) -> None:
    numbers: list[float] = []
    for link, (code, number) in answers.items():
        if code == codes.SUCCESS:
            numbers.append(number)
            if field.counts:
                gpu.link_counts[field.number, link] = number
        elif code not in NO_FIELD:
            readings.miss((field.metric,), code)
            return
        elif field.counts and (field.number, link) in gpu.link_counts:
            numbers.append(gpu.link_counts[field.number, link])
    if numbers:
        readings.note(field.metric, field.fold(numbers), field.scale)
    else:
        gpu.absent.add(_key(field.number))
        readings.miss((field.metric,), codes.NOT_SUPPORTED)


def _ask(
    caller: Caller, gpu: Gpu, wanted: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, float]]:
    """Code and number of each (field, link)."""
    found: dict[tuple[int, int], tuple[int, float]] = {}
    for part in _parts(wanted):
        values = _array(gpu, part)
        caller.fields(gpu.handle, values)
        for field, link, code, number in unpack(values):
            found[field, link] = (codes.NO_DATA, 0.0) if number in NO_READING else (code, number)
    return found


def _parts(wanted: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    return [tuple(wanted[at : at + _AT_ONCE]) for at in range(0, len(wanted), _AT_ONCE)]


def _array(gpu: Gpu, wanted: tuple[tuple[int, int], ...]) -> Any:
    name = f"links:{hash(wanted)}"
    known = gpu.batches.get(name)
    if known is None:
        known = gpu.batches[name] = prepared(wanted)
    return known


def _key(number: int) -> str:
    return f"FI:{number}:links"
