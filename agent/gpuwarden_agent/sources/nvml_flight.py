"""Which NVML call is in flight, in memory that agent and child share.

A frame on a pipe would do between calls, but not for a child that was stopped (SIGSTOP) or whose
threads wait for each other: shared memory can be read whatever the child does, and costs about a
microsecond a call. Each thread of the child that calls NVML owns one slot.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from time import monotonic

# Number of writes (odd while a write is under way), in flight 0/1, start, function, GPU.
_SLOT = struct.Struct("<QQd72s96s")
_COUNT = struct.Struct("<Q")
_SLOT_BYTES = 256  # each slot in cache lines of its own
_TRIES = 100


class Slot(IntEnum):
    """Threads of the child that call NVML."""

    POLL = 0
    EVENTS = 1


FLIGHT_BYTES = _SLOT_BYTES * len(Slot)


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


class FlightRecorder:
    """The child's side of one slot. CLOCK_MONOTONIC is the same in both processes."""

    def __init__(
        self, memory: mmap.mmap, slot: Slot, clock: Callable[[], float] = monotonic
    ) -> None:
        self._memory = memory
        self._offset = slot * _SLOT_BYTES
        self._clock = clock
        self._writes = 0

    def begin(self, call: str, gpu_uuid: str = "", patience_s: float = 0.0) -> None:
        """Note that a call begins; its age counts from `patience_s` seconds from now."""
        self._write(1, self._clock() + patience_s, call, gpu_uuid)

    def end(self) -> None:
        """Note that it returned."""
        self._write(0, 0.0, "", "")

    def _write(self, in_flight: int, since: float, call: str, gpu_uuid: str) -> None:
        _COUNT.pack_into(self._memory, self._offset, self._writes + 1)
        _SLOT.pack_into(
            self._memory,
            self._offset,
            self._writes + 1,
            in_flight,
            since,
            call.encode("ascii", "replace"),
            gpu_uuid.encode("ascii", "replace"),
        )
        self._writes += 2
        _COUNT.pack_into(self._memory, self._offset, self._writes)


def read_flight(memory: mmap.mmap, slot: Slot) -> Flight:
    """What a slot says now.

    A child that was stopped in the middle of a write leaves the slot odd for as long as it is
    stopped: then what is there is taken as it is.
    """
    offset = slot * _SLOT_BYTES
    for _ in range(_TRIES):
        writes, in_flight, since, call, gpu = _SLOT.unpack_from(memory, offset)
        if writes % 2 == 0 and _COUNT.unpack_from(memory, offset)[0] == writes:
            break
    return Flight((writes + 3) // 4, _text(call) if in_flight else "", _text(gpu), since)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("ascii", "replace")
