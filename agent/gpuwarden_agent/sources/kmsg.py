"""Reader of /dev/kmsg (Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import errno
import os
import re
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from gpuwarden_agent.sources.kernel_lines import KernelLine, KmsgMark
from gpuwarden_agent.sources.wakeup import Wakeup
from gpuwarden_wire.events import Backlog

_RECORD_BYTES = 8192  # CONSOLE_EXT_LOG_MAX: a shorter read fails with EINVAL
_RECORDS_A_READ = 512

# "4,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, …" then " SUBSYSTEM=pci" lines: priority,
# sequence, microseconds since boot, flags, and since 5.x "caller=T12" behind another comma.
_HEADER = re.compile(rb"(\d{1,6}),(\d{1,19}),(\d{1,19}),[^;]{0,200};")


class RecordSource(Protocol):
    """Gives kmsg records one at a time."""

    def wait(self, timeout_s: float) -> bool:
        """True as soon as a record can be read; False where the time passed or we were woken."""
        ...

    def read(self) -> bytes:
        """The next record.

        Raises:
            BlockingIOError: None is there.
            BrokenPipeError: Records were overwritten; the next read gives the oldest that is left.
            OSError: The device is gone.
        """
        ...

    def close(self) -> None:
        """Release the device."""
        ...


class KmsgDevice:
    """The device itself.

    Args:
        path: /dev/kmsg.
        wakeup: Ends a wait.
    """

    def __init__(self, path: Path, wakeup: Wakeup) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """True as soon as a record can be read; an overrun counts (POLLERR)."""
        ready = self._poll.poll(timeout_s * 1000)
        return any(descriptor == self._descriptor for descriptor, _ in ready)

    def read(self) -> bytes:
        """The next record."""
        return os.read(self._descriptor, _RECORD_BYTES)

    def close(self) -> None:
        """Close the device."""
        os.close(self._descriptor)


class KmsgReader:
    """Lines of the kernel's ring buffer, from the first after `mark` on.

    Args:
        source: Where records come from.
        boot_id: The present boot.
        mark: Where the last run ended, None at the very first look. Of another boot: all that the
            buffer holds came since, and is news.
        clock: Epoch seconds.
        uptime: Seconds since boot of the same clock as the records' time.
    """

    def __init__(
        self,
        source: RecordSource,
        boot_id: str,
        mark: KmsgMark | None,
        *,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._boot_id = boot_id
        resumed = mark is not None and mark.boot_id == boot_id
        self._seq = mark.seq if mark is not None and resumed else -1
        self._clock = clock
        self._uptime = uptime
        self._first_look = mark is None
        self._caught_up = False
        self._gap_counts = resumed
        self._lost = 0

    def read(self, timeout_s: float) -> list[KernelLine]:
        """Records that are there, at most 512; waits for the first."""
        lines = self._drain()
        if lines or not self._source.wait(timeout_s):
            return lines
        return self._drain()

    @property
    def caught_up(self) -> bool:
        """Whether all that the buffer held at the opening has been returned."""
        return self._caught_up

    def mark(self) -> KmsgMark:
        """The position behind the last record."""
        return KmsgMark(self._boot_id, self._seq)

    def take_lost(self) -> int:
        """Records overwritten before they could be read."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """Close the device."""
        self._source.close()

    def _drain(self) -> list[KernelLine]:
        lines: list[KernelLine] = []
        for _ in range(_RECORDS_A_READ):
            try:
                record = self._source.read()
            except BlockingIOError:
                self._caught_up = True
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                self._gap_counts = True
                continue
            line = self._parse(record)
            if line is not None:
                lines.append(line)
        return lines

    def _parse(self, record: bytes) -> KernelLine | None:
        found = _HEADER.match(record)
        if found is None:
            return None
        priority, seq, micros = (int(word) for word in found.groups())
        if seq <= self._seq:
            return None
        if self._gap_counts:
            self._lost += seq - self._seq - 1
            self._gap_counts = False
        self._seq = seq
        return KernelLine(
            id=f"kmsg:{self._boot_id}:{seq}",
            text=record[found.end() :].split(b"\n", 1)[0],
            observed_at=self._observed_at(micros / 1e6),
            backlog=Backlog.NONE if self._caught_up or not self._first_look else Backlog.FIRST_LOOK,
            relayed=priority >> 3 != 0,  # facility 0 is the kernel; user space cannot write it
        )

    def _observed_at(self, uptime_s: float) -> float:
        """Of a fresh line: now. The kernel's stamps drift from the wall clock by minutes a week."""
        now = self._clock()
        if self._caught_up:
            return now
        return max(0.0, min(now, now - self._uptime() + uptime_s))
