"""What a GPU answered at one poll, as a plan for the next: the same calls, prepared.

A poll of eight GPUs makes some two hundred calls, each few seconds. pynvml's wrappers make new
objects for each; here arguments and results are made once, and all results of a GPU lie in one
buffer that is taken apart in one go. A plan holds for as long as every call and every field answers
with the same code: at the first that does not, the GPU is read as if there were none.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from ctypes import addressof, c_uint, c_void_p, create_string_buffer
from dataclasses import dataclass, field
from itertools import chain
from operator import mul
from typing import Any

import pynvml

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import (
    NO_READING,
    Caller,
    Columns,
    Gpu,
    Lane,
    Query,
    Raw,
    Readings,
    read_group,
)
from gpuwarden_agent.sources.nvml_fields import (
    FIELD_BYTES,
    GROUPS,
    Field,
    number_form,
    prepare_fields,
)
from gpuwarden_agent.sources.nvml_flight import Step
from gpuwarden_agent.sources.nvml_links import (
    LINK_STATE_METRICS,
    fold_prepared,
    prepared_fields,
    read_links,
)
from gpuwarden_agent.sources.nvml_queries import QUERIES

_UUID = "nvmlDeviceGetUUID"
_UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
_FIELDS = "nvmlDeviceGetFieldValues"

# Of each nvmlFieldValue_t: valueType and nvmlReturn.
_KIND_AND_CODE = "24xII8x"


@dataclass(slots=True)
class _Draft:
    """A plan in the making.

    Attributes:
        size: Bytes of results so far; each call's begin at a multiple of 8.
        form: struct format of them.
        start: What they hold before the first call, by offset.
        calls: Function, whole numbers among its arguments, offsets of its results.
        names, scales: Of the numbers in `form`.
    """

    size: int = 0
    form: str = "="
    start: dict[int, bytes] = field(default_factory=dict)
    calls: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)

    def add(self, raw: Raw, scale: float) -> None:
        """A call with its results."""
        size = struct.calcsize("=" + raw.form)
        room = -(-size // 8) * 8
        self.start[self.size] = raw.start
        offsets = tuple(self.size + offset for offset in raw.results)
        self.calls.append((raw.symbol, raw.arguments, offsets))
        self.form += f"{raw.form}{room - size}x"
        for metric in raw.metrics:
            self.name(metric, scale)
        self.size += room

    def name(self, metric: str, scale: float) -> None:
        """The next number."""
        self.names.append(metric)
        self.scales.append(scale)

    def add_fields(self, wanted: Sequence[tuple[int, int]]) -> None:
        """A batch of field values, (field id, scope id) each; their numbers are formed later."""
        self.start[self.size] = prepare_fields(wanted)
        self.calls.append((_FIELDS, (len(wanted),), (self.size,)))
        self.size += len(wanted) * FIELD_BYTES

    def first_content(self) -> bytes:
        """What all results hold before the first call."""
        content = bytearray(self.size)
        for offset, start in self.start.items():
            content[offset : offset + len(start)] = start
        return bytes(content)


@dataclass(slots=True)
class PollPlan:
    """How one GPU is polled.

    Attributes:
        steps: Prepared calls; the first gives the UUID: another board is never taken for it.
        buffer: All results.
        uuid: What the buffer begins with.
        answers: Kind and code of each field.
        answers_at: Where the fields begin.
        expected: The answers for which the plan was made.
        numbers: All numbers.
        scales: To the registry's units, link fields left out.
        links: NVLinks are among the fields, and come last.
        slow: What cannot be prepared, and is read as without a plan.
        columns: Names of the numbers and reasons of what is missing, `slow` left out.
    """

    steps: tuple[Step, ...]
    buffer: Any
    uuid: bytes
    answers: struct.Struct
    answers_at: int
    expected: tuple[int, ...]
    numbers: struct.Struct
    scales: tuple[float, ...]
    links: bool
    slow: tuple[tuple[Query, ...], ...]
    slow_links: bool
    columns: Columns

    def read(self, caller: Caller, gpu: Gpu) -> Columns | None:
        """Poll the GPU; None where anything is other than the plan has it.

        Raises:
            CallError: The GPU is lost.
        """
        if not caller.run(self.steps) or self.buffer[: len(self.uuid)] != self.uuid:
            return None
        if self.answers.unpack_from(self.buffer, self.answers_at) != self.expected:
            return None
        raw = self.numbers.unpack(self.buffer)
        if not NO_READING.isdisjoint(raw):
            return None
        numbers = array("d", map(mul, raw, self.scales))
        if self.links:
            numbers.extend(fold_prepared(gpu, raw[len(self.scales) :]))
        if not (self.slow or self.slow_links):
            return Columns(self.columns.names, numbers, self.columns.missing)
        return self._with_slow(caller, gpu, numbers)

    def _with_slow(self, caller: Caller, gpu: Gpu, numbers: array[float]) -> Columns:
        readings = Readings()
        for group in self.slow:
            read_group(caller, gpu, group, readings)
        if self.slow_links:
            read_links(caller, gpu, readings)
        numbers.extend(readings.values.values())
        names = (*self.columns.names, *readings.values)
        return Columns(names, numbers, {**self.columns.missing, **readings.missing})


@dataclass(frozen=True, slots=True)
class Scope:
    """What a plan is to read.

    Attributes:
        groups: Calls.
        fields: Field values.
        whole: All of a poll: with the UUID, NVLinks, and what cannot be prepared.
    """

    groups: tuple[tuple[Query, ...], ...]
    fields: tuple[Field, ...]
    whole: bool = True


POLL = Scope(QUERIES[Lane.POLL], tuple(one for group in GROUPS[Lane.POLL] for one in group.fields))


def make_plan(
    caller: Caller, gpu: Gpu, readings: Readings, scope: Scope = POLL, *, links: bool = True
) -> PollPlan | None:
    """A plan from a poll that was just made without one; None where none can be made now.

    Args:
        caller: Makes the calls once.
        gpu: The GPU, with what it is known not to have.
        readings: What the poll brought.
        scope: What it is to read.
        links: Take NVLinks into the plan, if each of them says everything.
    """
    draft = _Draft()
    if scope.whole:
        draft.add(Raw(_UUID, f"{_UUID_BYTES}x", ()), 1.0)
    slow = [group for group in scope.groups if not _add_group(draft, gpu, group, readings)]
    answers_at = draft.size
    fields = [one for one in scope.fields if one.key not in gpu.absent]
    if fields:
        draft.add_fields([(one.number, one.scope) for one in fields])
    for batch in prepared_fields(gpu, readings) if links and scope.whole else ():
        draft.add_fields(batch)
    buffer = create_string_buffer(draft.first_content(), draft.size)
    steps = _steps(caller, gpu, draft, addressof(buffer))
    if not caller.run(steps):
        return None
    answers = struct.Struct("=" + _KIND_AND_CODE * ((draft.size - answers_at) // FIELD_BYTES))
    expected = answers.unpack_from(buffer, answers_at)
    kinds, found = expected[::2], expected[1::2]
    if not codes.LOST.isdisjoint(found):
        return None
    if any(found[len(fields) :]):  # a link that is down
        return make_plan(caller, gpu, readings, scope, links=False)
    forms = list(map(number_form, kinds, found))
    missing = _name_fields(draft, fields, forms, found)
    of_links = len(found) > len(fields)
    slow_links = scope.whole and not of_links and gpu.links != ()
    elsewhere = set(chain.from_iterable(group[0].metrics for group in slow))
    elsewhere.update(LINK_STATE_METRICS if slow_links else ())
    missing = {m: c for m, c in {**readings.missing, **missing}.items() if m not in elsewhere}
    names = (*draft.names, *(LINK_STATE_METRICS if of_links else ()))
    return PollPlan(
        steps=steps,
        buffer=buffer,
        uuid=gpu.uuid.encode() + b"\0" if scope.whole else b"",
        answers=answers,
        answers_at=answers_at,
        expected=expected,
        numbers=struct.Struct(draft.form + "".join(form for form, _ in forms)),
        scales=tuple(draft.scales),
        links=of_links,
        slow=tuple(slow) if scope.whole else (),
        slow_links=slow_links,
        columns=Columns(names, array("d"), missing),
    )


def _name_fields(
    draft: _Draft, fields: Sequence[Field], forms: Sequence[tuple[str, bool]], found: Sequence[int]
) -> dict[str, int]:
    """Names for the fields that have numbers; the codes of the others by metric."""
    missing = {}
    for one, (_, has_number), code in zip(fields, forms, found, strict=False):
        if has_number:
            draft.name(one.metric, one.scale)
        else:
            missing[one.metric] = code
    return missing


def _add_group(draft: _Draft, gpu: Gpu, group: tuple[Query, ...], readings: Readings) -> bool:
    """Take one group of alternatives into the plan; False where it has to be read without."""
    query = next((one for one in group if one.key not in gpu.absent), None)
    if query is None:
        return True  # this GPU has none of them
    if query.raw is None or any(metric not in readings.values for metric in query.raw.metrics):
        return False
    draft.add(query.raw, query.scale)
    return True


def _steps(caller: Caller, gpu: Gpu, draft: _Draft, base: int) -> tuple[Step, ...]:
    steps = []
    for symbol, numbers, offsets in draft.calls:
        pointers = [c_void_p(base + offset) for offset in offsets]
        arguments: list[Any] = [c_uint(number) for number in numbers] + pointers
        if symbol == _UUID:
            arguments.append(c_uint(_UUID_BYTES))
        function = pynvml._nvmlGetFunctionPointer(symbol)
        label = caller.label(symbol, gpu.uuid)
        steps.append(Step(symbol, label, function, (gpu.handle, *arguments)))
    return tuple(steps)
