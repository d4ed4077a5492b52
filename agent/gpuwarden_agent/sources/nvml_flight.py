"""Which NVML call is in flight, in memory that agent and child share.

A frame on a pipe would do between calls, but not for a child that was stopped (SIGSTOP) or whose
threads wait for each other: shared memory can be read whatever the child does, and costs a quarter
of a microsecond a call. Each thread of the child that calls NVML owns one slot; names of calls and
GPUs are written once, and a slot holds their numbers.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

# Start of the call, then one word: number of the call, GPU, function (0: none is in flight). Native
# order and size: the word is written and read in one piece.
_SLOT = struct.Struct("@dQ")
_WORD = struct.Struct("@Q")
_SLOT_BYTES = 64  # each slot in a cache line of its own
_NUMBER_SHIFT, _GPU_SHIFT, _PART = 32, 16, 0xFFFF
_NUMBERS = 1 << 32
_LOW = _NUMBERS - 1

_NAME_BYTES = 96  # of a function or a UUID
_NAMES = 256
"""Names in all; NVML has fewer functions that we call, and a node 16 GPUs."""


class Slot(IntEnum):
    """Threads of the child that call NVML."""

    POLL = 0
    EVENTS = 1


_NAMES_AT = _SLOT_BYTES * len(Slot)
FLIGHT_BYTES = _NAMES_AT + _NAMES * _NAME_BYTES


@dataclass(frozen=True, slots=True)
class Flight:
    """What one slot says.

    Attributes:
        number: Rises by one with each call.
        call: NVML function in flight, "" between calls.
        gpu_uuid: GPU it is about, "" where it is about none.
        since: Monotonic seconds from which its age counts.
    """

    number: int
    call: str
    gpu_uuid: str
    since: float


class _NameTable:
    """The child's side of the names. Thread-safe; the last place stands for all that found none."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._lock = Lock()
        self._places = {"": 0}

    def place(self, name: str) -> int:
        """Where a name stands; it is written before anybody is told."""
        place = self._places.get(name)
        return self._add(name) if place is None else place

    def _add(self, name: str) -> int:
        with self._lock:
            place = min(len(self._places), _NAMES - 1)
            text = name if place < _NAMES - 1 else "…"
            at = _NAMES_AT + place * _NAME_BYTES
            self._memory[at : at + _NAME_BYTES] = _field(text)
            if place < _NAMES - 1:
                self._places[name] = place
            return place


def _field(text: str) -> bytes:
    return text.encode("ascii", "replace")[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")


class Step(NamedTuple):  # taken apart by the hundred at each poll
    """One prepared call.

    Attributes:
        call: Name of the function.
        label: What `FlightRecorder.label` gave for it.
        function: The function itself; gives nvmlReturn_t.
        arguments: Its arguments, results included.
    """

    call: str
    label: int
    function: Callable[..., int]
    arguments: tuple[Any, ...]


class FlightRecorder:
    """The child's side of the slots. CLOCK_MONOTONIC is the same in both processes.

    Args:
        memory: Shared with the agent.
        slot: Of the thread that records.
        clock: Monotonic seconds.
        beside: Recorder of the child's other thread, whose names are the same.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        slot: Slot,
        clock: Callable[[], float] = monotonic,
        beside: FlightRecorder | None = None,
    ) -> None:
        self._memory = memory
        self._offset = slot * _SLOT_BYTES
        self._clock = clock
        self._number = 0
        self._names: _NameTable = beside._names if beside is not None else _NameTable(memory)

    def label(self, call: str, gpu_uuid: str = "") -> int:
        """Stands for a function and a GPU."""
        return self._names.place(gpu_uuid) << _GPU_SHIFT | self._names.place(call)

    def begin(self, call: str, gpu_uuid: str = "", patience_s: float = 0.0) -> None:
        """Note that a call begins; its age counts from `patience_s` seconds from now."""
        self._number += 1
        word = self._number % _NUMBERS << _NUMBER_SHIFT | self.label(call, gpu_uuid)
        _SLOT.pack_into(self._memory, self._offset, self._clock() + patience_s, word)

    def end(self) -> None:
        """Note that it returned."""
        word = self._number % _NUMBERS << _NUMBER_SHIFT
        _WORD.pack_into(self._memory, self._offset + 8, word)

    def run(self, steps: Sequence[Step]) -> bool:
        """Make prepared calls one after the other; False at the first that does not succeed."""
        memory, offset, clock, pack = self._memory, self._offset, self._clock, _SLOT.pack_into
        number = self._number % _NUMBERS
        try:
            for _, label, function, arguments in steps:
                number += 1
                pack(memory, offset, clock(), (number & _LOW) << _NUMBER_SHIFT | label)
                if function(*arguments):
                    return False
        finally:
            self._number = number
            self.end()
        return True


def read_flight(memory: mmap.mmap, slot: Slot) -> Flight:
    """What a slot says now.

    The start is written before the word that names the call, so that a call never looks older than
    it is: at worst it bears the start of the one behind it.
    """
    since, word = _SLOT.unpack_from(memory, slot * _SLOT_BYTES)
    call = _text(memory, word & _PART)
    gpu = _text(memory, word >> _GPU_SHIFT & _PART) if call else ""
    return Flight(word >> _NUMBER_SHIFT, call, gpu, since)


def _text(memory: mmap.mmap, place: int) -> str:
    if place == 0:
        return ""
    at = _NAMES_AT + place * _NAME_BYTES
    return memory[at : at + _NAME_BYTES].rstrip(b"\0").decode("ascii", "replace")
