"""Files of procfs that are read whole, again and again: kept open, and searched as bytes.

Opening costs more than reading: 16 µs for open, read and close of a short file, 5 µs where it is
open already; procfs makes the text anew for each read from offset 0.
"""

from __future__ import annotations

import os

from gpuwarden_agent.sources.kernel_files import reason_of
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_LIMIT_BYTES = 1_048_576
_FIRST_BYTES = 4_096
_WORD_BYTES = 40  # a 64-bit number has at most 20 digits
IMPLAUSIBLE = 1 << 63
"""Drivers report 2**64-1 where they could not read a counter, and a counter that fell below 0 reads
as a number just under it; none really gets half that far."""


class ProcFile:
    """One file that is read whole. Not thread-safe.

    Args:
        path: The file. One that lies on a disk, as in a test, is opened for each read.
        limit_bytes: What is beyond is not read.
        at_once: The kernel makes the whole text before it gives any of it (seq_file's single_open,
            sysctl): a read that gives less than was asked for has reached the end.
    """

    def __init__(
        self, path: str, limit_bytes: int = _LIMIT_BYTES, *, at_once: bool = False
    ) -> None:
        self.path = path
        self._at_once = at_once
        self._limit_bytes = limit_bytes
        self._descriptor = -1
        self._ask_bytes = min(_FIRST_BYTES, limit_bytes)

    def read(self) -> bytes:
        """The whole text.

        Raises:
            OSError: As the kernel says.
        """
        if self._descriptor >= 0:
            try:
                return self._read_from(self._descriptor)
            except OSError:
                self.close()  # the module behind it was unloaded, or the process is gone: try anew
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            text = self._read_from(descriptor)
            if _is_made_by_kernel(descriptor):
                self._descriptor, descriptor = descriptor, -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return text

    def close(self) -> None:
        """Close the file; it is opened again where it is read again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_from(self, descriptor: int) -> bytes:
        text = os.pread(descriptor, self._ask_bytes, 0)
        if self._at_once and len(text) < self._ask_bytes:
            return text
        parts, size = [text], len(text)
        # A file that the kernel makes record by record gives a page or so a read, however much is
        # asked for: only an empty read is its end.
        while size < self._limit_bytes and text:
            ask = min(max(self._ask_bytes, size), self._limit_bytes - size)
            text = os.pread(descriptor, ask, size)
            parts.append(text)
            size += len(text)
        self._ask_bytes = min(max(self._ask_bytes, size + size // 4), self._limit_bytes)
        return b"".join(parts)


def _is_made_by_kernel(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return found.st_size == 0 and found.st_blocks == 0


def read_missing(error: OSError) -> NotSupported | Unavailable:
    """The reading of a file that was not read: what is not there is not supported."""
    return NotSupported() if isinstance(error, FileNotFoundError) else Unavailable(reason_of(error))


def number_behind(text: bytes, key: bytes) -> Reading:
    """The number behind a key at the beginning of a line: "ctxt 1990473", "MemAvailable:  24 kB".

    Args:
        text: The file.
        key: With what follows it: b"ctxt ", b"MemAvailable:".
    """
    at = 0 if text.startswith(key) else text.find(b"\n" + key) + 1
    if at == 0 and not text.startswith(key):
        return Unavailable("no_such_line")
    at += len(key)
    words = text[at : at + _WORD_BYTES].partition(b"\n")[0].split(maxsplit=1)
    return whole_number(words[0]) if words else Unavailable("not_a_number")


def whole_number(word: bytes) -> Reading:
    """A counter as procfs writes it, or why it is none."""
    try:
        value = int(word)
    except ValueError:
        return Unavailable("not_a_number")
    return value if -IMPLAUSIBLE < value < IMPLAUSIBLE else Unavailable("implausible_value")
