"""Reader of a log file that grows, is rotated and is truncated."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_agent.sources.file_watch import FileWatch
from gpuwarden_agent.sources.kernel_lines import MAX_LINE_BYTES, FileMark, KernelLine
from gpuwarden_agent.sources.wakeup import Wakeup
from gpuwarden_wire.events import Backlog

_LOOK_S = 5.0
"""Between two looks at the file's name, where the kernel does not tell: was it rotated?"""

_LOOK_ALONE_S = 1.0
"""Likewise where the kernel tells nothing of this file, or the name is gone for now."""

_OVERTIME_S = 0.5
"""How long a read goes on beyond its time through bytes that hold no line's end."""

_CHUNK_BYTES = 65_536
_HEAD_BYTES = 256
_SEARCH_BYTES = 1 << 20

# The first line of a boot: "[    0.000000] Linux version 6.8.0-41-generic (buildd@…", or where the
# kernel's own stamp is left out "Jun 14 15:16:01 gpu-7 kernel: Linux version 6.8.0-41-generic …".
_BANNER = b"Linux version "
_BEFORE_BANNER = (b"0.000000] ", b"kernel: ")


@dataclass(frozen=True, slots=True)
class _Stood:
    """What stood in a file when it was opened, by the offsets where lines begin.

    Attributes:
        older_until: What begins before this was written in an older boot.
        unclear_until: What begins before this may have been.
        first_look_until: What begins before this was there before anybody looked.
    """

    older_until: int = 0
    unclear_until: int = 0
    first_look_until: int = 0

    def backlog(self, start: int) -> Backlog | None:
        """Of the line that begins at `start`."""
        if start < self.older_until:
            return Backlog.OLDER_BOOT
        if start < self.unclear_until:
            return None
        return Backlog.FIRST_LOOK if start < self.first_look_until else Backlog.NONE


class LogFileReader:
    """Lines of a file, from the first after `mark` on.

    A rotated file is read to its end before its successor; one that was rotated while the agent was
    away is looked for beside it (`kern.log.1`).

    Args:
        path: The file.
        mark: Where the last run ended, None at the very first look.
        backlog_bytes: How much of an existing file the first look reads back.
        same_boot: The last run ended in the present boot.
        clock: Epoch seconds.
        wakeup: Ends a wait; None where nobody waits for long.
    """

    def __init__(
        self,
        path: Path,
        mark: FileMark | None,
        backlog_bytes: int,
        *,
        same_boot: bool = True,
        clock: Callable[[], float] = time.time,
        wakeup: Wakeup | None = None,
    ) -> None:
        self._path = path
        self._wakeup = wakeup or Wakeup()
        self._generation = mark.generation if mark else 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._offset = 0
        self._partial = b""
        self._skipping = False
        self._nameless = False
        self._clock = clock
        self._caught_up = False
        self._stood: dict[tuple[int, int], _Stood] = {}
        self._newest = _identity(self._descriptor), os.fstat(self._descriptor).st_size
        files = [self._descriptor]
        if mark is None:
            self._begin_near_end(backlog_bytes)
        else:
            files = self._resume(mark)
        if mark is None or not same_boot:
            self._survey(files, first_look=mark is None)
        for successor in files[1:]:
            os.close(successor)  # opened again when its turn comes
        self._watch = FileWatch(path, self._wakeup)
        self._attach()

    def read(self, timeout_s: float) -> list[KernelLine]:
        """Lines that are there, of one chunk of 64 KiB; waits for the first."""
        deadline = time.monotonic() + timeout_s
        while True:
            lines = self._read_chunk()
            if lines:
                return lines
            if lines is None and (self._wakeup.rung or not self._await_growth(deadline)):
                return []
            if time.monotonic() >= deadline + _OVERTIME_S:
                return []

    def _await_growth(self, deadline: float) -> bool:
        """Sleep until there is reason to look closer; False where none came by `deadline`."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        tells = self._watch.listens and not self._nameless
        look_s = _LOOK_S if tells else _LOOK_ALONE_S
        changed = self._watch.await_change(self._descriptor, self._offset, min(left, look_s))
        return changed or left > look_s

    @property
    def caught_up(self) -> bool:
        """Whether all that the file held at the opening has been returned."""
        return self._caught_up

    def mark(self) -> FileMark:
        """The position behind the last whole line."""
        offset = self._offset - len(self._partial)
        head_bytes = min(_HEAD_BYTES, offset)
        head = zlib.crc32(os.pread(self._descriptor, head_bytes, 0))
        return FileMark(self._device, self._inode, offset, self._generation, head, head_bytes)

    def take_lost(self) -> int:
        """A file loses nothing that we could count."""
        return 0

    def close(self) -> None:
        """Close the file."""
        self._watch.close()
        os.close(self._descriptor)

    # where to begin

    def _attach(self) -> None:
        self._device, self._inode = file = _identity(self._descriptor)
        self._here = self._stood.pop(file, _Stood())
        self._watch.close()
        self._watch = FileWatch(self._path, self._wakeup)

    def _survey(self, files: Sequence[int], *, first_look: bool) -> None:
        """Tell what stands in the files, in order of reading, by the boot that wrote it."""
        starts = [self._offset, *(0 for _ in files[1:])]
        sizes = [os.fstat(descriptor).st_size for descriptor in files]
        banners = [_last_boot(*one) for one in zip(files, starts, sizes, strict=True)]
        newest = max((n for n, at in enumerate(banners) if at is not None), default=None)
        for n, (descriptor, size) in enumerate(zip(files, sizes, strict=True)):
            until = size if newest is not None and n < newest else banners[n] or 0
            self._stood[_identity(descriptor)] = _Stood(
                older_until=until,
                unclear_until=size if newest is None and not first_look else 0,
                first_look_until=size if first_look else 0,
            )

    def _begin_near_end(self, backlog_bytes: int) -> None:
        size = os.fstat(self._descriptor).st_size
        if size > backlog_bytes:
            self._offset = size - backlog_bytes
            self._skipping = True  # the line that we landed in

    def _resume(self, mark: FileMark) -> list[int]:
        """Go to the mark, in the file or the one it was rotated to; the files to be read then."""
        if self._continues(self._descriptor, mark):
            self._offset = mark.offset
            return [self._descriptor]
        rotated = self._find_rotated(mark)
        if rotated is None:
            self._generation += 1
            return [self._descriptor]
        newest, self._descriptor = self._descriptor, rotated
        self._offset = mark.offset
        return [rotated, newest]

    def _continues(self, descriptor: int, mark: FileMark) -> bool:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (mark.device, mark.inode):
            return False
        if found.st_size < mark.offset:
            return False
        return zlib.crc32(os.pread(descriptor, mark.head_bytes, 0)) == mark.head

    def _find_rotated(self, mark: FileMark) -> int | None:
        for sibling in sorted(self._path.parent.glob(self._path.name + "?*")):
            try:
                descriptor = os.open(sibling, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if self._continues(descriptor, mark):
                return descriptor
            os.close(descriptor)
        return None

    # going on

    def _read_chunk(self) -> list[KernelLine] | None:
        """Lines of the next chunk, empty where it ends none; None at the end of the file."""
        chunk = os.pread(self._descriptor, _CHUNK_BYTES, self._offset)
        if chunk:
            lines = self._split(chunk)
            self._note_progress()
            return lines
        if os.fstat(self._descriptor).st_size < self._offset:
            self._restart_at_top()
            return []
        last = self._follow_rotation()
        self._caught_up = self._caught_up or last is None
        return last

    def _note_progress(self) -> None:
        file, size = self._newest
        if (self._device, self._inode) == file and self._offset >= size:
            self._caught_up = True

    def _split(self, chunk: bytes) -> list[KernelLine]:
        start = self._offset - len(self._partial)
        self._offset += len(chunk)
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        lines: list[KernelLine] = []
        for text in whole:
            if self._skipping:
                self._skipping = False
            else:
                lines.append(self._line(start, text))
            start += len(text) + 1
        if len(self._partial) > MAX_LINE_BYTES:
            if not self._skipping:
                lines.append(self._line(start, self._partial[:MAX_LINE_BYTES]))
            self._skipping = True
            self._partial = b""
        return lines

    def _line(self, start: int, text: bytes) -> KernelLine:
        generation = f".{self._generation}" if self._generation else ""
        return KernelLine(
            id=f"file:{self._device}:{self._inode}{generation}:{start}",
            text=text,
            # What is appended while we follow was written just now, whatever stamp it bears.
            observed_at=self._clock() if self._caught_up else None,
            backlog=self._here.backlog(start),
        )

    def _restart_at_top(self) -> None:
        self._offset = 0
        self._partial = b""
        self._skipping = False
        self._generation += 1
        self._here = _Stood()

    def _follow_rotation(self) -> list[KernelLine] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._nameless = True  # between rename and create
            return None
        self._nameless = False
        if (found.st_dev, found.st_ino) == (self._device, self._inode):
            return None
        successor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        last = self._partial
        lines = [self._line(self._offset - len(last), last)] if last else []
        os.close(self._descriptor)
        self._descriptor = successor
        self._restart_at_top()
        self._attach()
        return lines


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _last_boot(descriptor: int, start: int, end: int) -> int | None:
    """Where between two offsets the kernel last said that it starts; None where it nowhere did."""
    while end > start:
        begin = max(start, end - _SEARCH_BYTES)
        block = os.pread(descriptor, end - begin, begin)
        at = block.rfind(_BANNER)
        while at >= 0:
            if block.endswith(_BEFORE_BANNER, 0, at):
                return begin + at
            at = block.rfind(_BANNER, 0, at)
        if begin == start:
            return None
        end = begin + 64  # the banner may lie across the cut
    return None
