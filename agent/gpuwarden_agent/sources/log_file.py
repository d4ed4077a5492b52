"""Reader of a log file that grows, is rotated and is truncated."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

from gpuwarden_agent.sources.kernel_lines import MAX_LINE_BYTES, FileMark, KernelLine

_POLL_S = 0.04
"""Between two looks at the file; the longest that a fresh line waits."""

_POLLS_A_LOOK = 6
_CHUNK_BYTES = 65_536
_HEAD_BYTES = 256


class LogFileReader:
    """Lines of a file, from the first after `mark` on.

    A rotated file is read to its end before its successor; one that was rotated while the agent was
    away is looked for beside it (`kern.log.1`). Polled rather than watched: inotify says nothing on
    network and overlay file systems.

    Args:
        path: The file.
        mark: Where the last run ended, None at the first start.
        backlog_bytes: How much of an existing file the first start reads back.
        opened_at_start: What lies in the file now is older than the agent's start.
    """

    def __init__(
        self,
        path: Path,
        mark: FileMark | None,
        backlog_bytes: int,
        *,
        opened_at_start: bool = True,
    ) -> None:
        self._path = path
        self._generation = mark.generation if mark else 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._offset = 0
        self._partial = b""
        self._skipping = False
        self._backlog_ends: dict[tuple[int, int], int] = {}
        if opened_at_start:
            self._note_backlog(self._descriptor)
        self._attach()
        if mark is None:
            self._begin_near_end(backlog_bytes)
        else:
            self._resume(mark)

    def read(self, timeout_s: float) -> list[KernelLine]:
        """Lines that are there, of one chunk of 64 KiB; waits for the first."""
        deadline = time.monotonic() + timeout_s
        while True:
            lines = self._read_chunk()
            if lines:
                return lines
            if lines is None and not self._await_growth(deadline):
                return []

    def _await_growth(self, deadline: float) -> bool:
        """Sleep until there is reason to look closer; False where none came by `deadline`.

        The file's size is asked for at each poll, its name (was it rotated?) only now and then.
        """
        for _ in range(_POLLS_A_LOOK):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_POLL_S, left))
            if os.fstat(self._descriptor).st_size != self._offset:
                return True
        return True

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
        os.close(self._descriptor)

    # where to begin

    def _attach(self) -> None:
        found = os.fstat(self._descriptor)
        self._device, self._inode = found.st_dev, found.st_ino
        self._backlog_end = self._backlog_ends.pop((found.st_dev, found.st_ino), 0)

    def _note_backlog(self, descriptor: int) -> None:
        """What a file holds now is older than the agent's start."""
        found = os.fstat(descriptor)
        self._backlog_ends[found.st_dev, found.st_ino] = found.st_size

    def _begin_near_end(self, backlog_bytes: int) -> None:
        size = os.fstat(self._descriptor).st_size
        if size > backlog_bytes:
            self._offset = size - backlog_bytes
            self._skipping = True  # the line that we landed in

    def _resume(self, mark: FileMark) -> None:
        if self._continues(self._descriptor, mark):
            self._offset = mark.offset
            return
        rotated = self._find_rotated(mark)
        if rotated is None:
            self._generation += 1
            return
        self._note_backlog(self._descriptor)
        self._note_backlog(rotated)
        os.close(self._descriptor)
        self._descriptor = rotated
        self._attach()
        self._offset = mark.offset

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
            return self._split(chunk)
        if os.fstat(self._descriptor).st_size < self._offset:
            self._restart_at_top()
            return []
        return self._follow_rotation()

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
            backlog=start < self._backlog_end,
        )

    def _restart_at_top(self) -> None:
        self._offset = 0
        self._partial = b""
        self._skipping = False
        self._generation += 1
        self._backlog_end = 0

    def _follow_rotation(self) -> list[KernelLine] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None  # between rename and create
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
