"""How the child calls NVML, and what it remembers of each GPU.

Each call is noted in shared memory while it is in flight. Calls that a GPU does not have are
remembered, so that they are not made again at every poll.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_flight import FlightRecorder, Step

if TYPE_CHECKING:
    from gpuwarden_agent.sources.nvml_gpm import GpmSampler
    from gpuwarden_agent.sources.nvml_link_plan import LinkPlan
    from gpuwarden_agent.sources.nvml_plan import PollPlan

Handle = Any
"""pynvml's device handle: a ctypes pointer to an opaque struct."""

FORGET_SUPPORT_AFTER_S = 3600.0
"""Support is asked afresh hourly, after a reset, and where MIG or ECC mode changed."""

# "Value not available" as NVML spells it in unsigned fields, nvml.h NVML_VALUE_NOT_AVAILABLE.
NO_READING = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


class Lane(Enum):
    """How often a reading is taken; the value is the seconds between two."""

    POLL = 0.0  # what announces a fault
    MINUTE = 60.0  # what tells where it is, and counters that need no sharper time
    HOUR = 3600.0  # limits and other properties


class CallError(Exception):
    """An NVML call that did not succeed.

    Attributes:
        call: NVML function.
        code: nvmlReturn_t.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {codes.reason_of(code)}")
        self.call = call
        self.code = code


class Caller:
    """Makes NVML calls by name and notes each while it is in flight."""

    def __init__(self, recorder: FlightRecorder) -> None:
        self._recorder = recorder
        self.gpu_uuid = ""
        """GPU that the calls are about from now on."""

    def call(self, name: str, *arguments: Any, patience_s: float = 0.0) -> Any:
        """Call pynvml's function `name`.

        Raises:
            CallError: NVML's code; FUNCTION_NOT_FOUND where pynvml or the driver lacks the call.
        """
        function = getattr(pynvml, name, None)
        if function is None:
            raise CallError(name, codes.FUNCTION_NOT_FOUND)
        self._recorder.begin(name, self.gpu_uuid, patience_s)
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise CallError(name, error.value) from error
        except UnicodeDecodeError as error:  # pynvml decodes strings; a sick board returns noise
            raise CallError(name, codes.NO_DATA) from error
        finally:
            self._recorder.end()

    def label(self, call: str, gpu_uuid: str) -> int:
        """What stands for a function and a GPU in a `Step`."""
        return self._recorder.label(call, gpu_uuid)

    def run(self, steps: Sequence[Step]) -> bool:
        """Make prepared calls one after the other; False at the first that does not succeed."""
        return self._recorder.run(steps)

    def fields(self, handle: Handle, values: Any) -> None:
        """Fill a prepared array of c_nvmlFieldValue_t; each field carries its own code.

        The array is made once, so that a batch costs one call and no allocation.

        Raises:
            CallError: NVML's code for the call as a whole.
        """
        name = "nvmlDeviceGetFieldValues"
        self._recorder.begin(name, self.gpu_uuid)
        try:
            function = pynvml._nvmlGetFunctionPointer(name)
            code: int = function(handle, len(values), byref(values))
        except pynvml.NVMLError as error:
            raise CallError(name, error.value) from error
        finally:
            self._recorder.end()
        if code != codes.SUCCESS:
            raise CallError(name, code)


@dataclass(slots=True)
class Readings:
    """Numbers and codes of one GPU, by metric name."""

    values: dict[str, float] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    def note(self, metric: str, raw: float, scale: float = 1.0) -> None:
        """Keep a raw number, scaled; NVML's "not available" is no number."""
        if raw in NO_READING:
            self.miss((metric,), codes.NO_DATA)
        else:
            self.values[metric] = raw * scale
            self.missing.pop(metric, None)

    def miss(self, metrics: Iterable[str], code: int) -> None:
        """Keep why there is no number, where there is none."""
        for metric in metrics:
            if metric not in self.values:
                self.missing[metric] = code


@dataclass(frozen=True, slots=True)
class Columns:
    """Readings of one GPU as one row of numbers; names and reasons are the same from poll to poll.

    Attributes:
        names: Metric names.
        numbers: One each.
        missing: nvmlReturn_t by metric name, of what has no number.
    """

    names: tuple[str, ...]
    numbers: array[float]
    missing: dict[str, int]


def columns_of(*parts: Readings) -> Columns:
    """Several readings in one row; what comes later goes before."""
    values: dict[str, float] = {}
    missing: dict[str, int] = {}
    for part in parts:
        values.update(part.values)
        missing.update(part.missing)
    return Columns(tuple(values), array("d", values.values()), missing)


@dataclass(frozen=True, slots=True)
class Joined:
    """Under which layout a GPU's readings went out last, and of what it was made.

    Attributes:
        names, missing: Of the poll.
        rest: All others.
        layout: Its place.
        evictions: Of the table at that time.
    """

    names: tuple[str, ...]
    missing: dict[str, int]
    rest: Columns
    layout: int
    evictions: int


@dataclass(slots=True)
class Gpu:
    """One GPU as the child knows it.

    Attributes:
        uuid, pci_bus_id, index, serial, model, vbios_version: As in GpuAnswer.
        handle: Valid for the present poll.
        absent: Keys of queries and fields that this GPU does not answer.
        links: NVLink numbers that exist, None before they were counted.
        batches: Prepared arrays of field values by name, without what is absent.
        lanes: Latest readings of each lane but the poll's.
        due: Monotonic seconds from which it is read again.
        next_due: Monotonic seconds from which any of it, or its processes, is read again.
        modes: MIG and ECC mode as last read; what a GPU answers depends on them.
        forget_at: Monotonic seconds at which all of the above is asked afresh.
        link_counts: Last counts by (counter, link); kept for links that are down.
        link_plans: How fields of links are read, by (field, link); None where that is not known.
        link_errors: Those of a plan's last poll, of each link, by kind of error.
        processes_due: Monotonic seconds from which its processes are asked for again.
        processes: How many there were, None where it did not say, for the code beside it.
        pids: Processes on it, None where this poll did not ask or it did not say.
        gpm: How busy its parts are.
        is_recut: The driver says that its MIG instances were changed; set by the other thread.
        plan: How it is polled, None where that has to be found out.
        fast: How it is looked at between polls, None where that has to be found out again, from
            `fast_due` on, monotonic seconds; it was found out at `fast_since`, and when it failed
            before that, `fast_wait_s` seconds were let pass.
        fast_names, fast_places: Names of the last poll, and where among them those of `fast` are.
        fast_seen: Numbers of `fast` at the last look or poll.
        joined: What its last answer was made of.
        rest: Readings that are not of the poll, None where some were read anew.
    """

    uuid: str
    pci_bus_id: str
    index: int
    handle: Handle
    gpm: GpmSampler
    serial: str = ""
    model: str = ""
    vbios_version: str = ""
    absent: set[str] = field(default_factory=set)
    links: tuple[int, ...] | None = None
    batches: dict[str, Any] = field(default_factory=dict)
    lanes: dict[Lane, Readings] = field(default_factory=dict)
    due: dict[Lane, float] = field(default_factory=dict)
    next_due: float = 0.0
    modes: tuple[float | None, ...] | None = None
    forget_at: float = 0.0
    link_counts: dict[tuple[int, int], float] = field(default_factory=dict)
    link_plans: dict[tuple[tuple[int, int], ...], LinkPlan | None] = field(default_factory=dict)
    link_errors: Sequence[Sequence[float]] = ()
    processes_due: float = 0.0
    processes: int | None = None
    processes_code: int = codes.NOT_SUPPORTED
    pids: tuple[int, ...] | None = None
    is_recut: bool = False
    plan: PollPlan | None = None
    rest: Columns | None = None
    fast: PollPlan | None = None
    fast_due: float = 0.0
    fast_since: float = 0.0
    fast_wait_s: float = 0.0
    fast_names: tuple[str, ...] = ()
    fast_places: tuple[int, ...] = ()
    fast_seen: array[float] | None = None
    joined: Joined | None = None

    def forget_support(self, now: float) -> None:
        """Ask afresh what this GPU answers."""
        self.plan = self.rest = self.fast = None
        self.fast_due = 0.0
        self.absent.clear()
        self.links = None
        self.batches.clear()
        self.link_plans.clear()
        self.lanes.clear()
        self.due.clear()
        self.next_due = 0.0
        self.modes = None
        self.forget_at = now + FORGET_SUPPORT_AFTER_S


@dataclass(frozen=True, slots=True)
class Raw:
    """How a call is made without pynvml's wrapper: its results lie in bytes of ours.

    Attributes:
        symbol: Function of libnvidia-ml.
        form: struct format of the results, "=" rules; one number a metric.
        metrics: Metric names in that order.
        arguments: Whole numbers between handle and results.
        results: Where in the results each pointer among the arguments points.
        start: What the results begin with before the call.
    """

    symbol: str
    form: str
    metrics: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    results: tuple[int, ...] = (0,)
    start: bytes = b""


@dataclass(frozen=True, slots=True)
class Query:
    """One NVML call and the metrics made from it.

    Attributes:
        key: Name of the call with its arguments; what the support memory holds.
        read: Makes the call and returns one raw number a metric, None where it has none.
        metrics: Metric names.
        scale: Factor from NVML's unit to the registry's.
        raw: The call as a plan makes it, None where a plan leaves it to `read`.
    """

    key: str
    read: Callable[[Caller, Gpu], tuple[float | None, ...]]
    metrics: tuple[str, ...]
    scale: float = 1.0
    raw: Raw | None = None


def read_group(caller: Caller, gpu: Gpu, group: tuple[Query, ...], readings: Readings) -> None:
    """Read one group of alternatives: the first that this GPU has decides.

    Raises:
        CallError: The GPU is lost; every other code is a missing reading.
    """
    for query in group:
        if query.key in gpu.absent:
            continue
        try:
            numbers = query.read(caller, gpu)
        except CallError as error:
            if error.code in codes.LOST:
                raise
            if error.code in codes.ABSENT:
                gpu.absent.add(query.key)
                continue
            readings.miss(query.metrics, error.code)
            return
        for metric, raw in zip(query.metrics, numbers, strict=True):
            if raw is None:
                readings.miss((metric,), codes.NOT_SUPPORTED)
            else:
                readings.note(metric, raw, query.scale)
        return
    readings.miss(group[0].metrics, codes.NOT_SUPPORTED)
