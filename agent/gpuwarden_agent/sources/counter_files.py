"""Small kernel files that are read again and again: kept open where the kernel allows it.

Of the cost of a counter, most is the walk along its path: 9 µs for open, read and close on a file
eight folders deep, 1.2 µs for one read of a file that is open already.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection

from gpuwarden_agent.sources.kernel_files import parse_number, reason_of
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

OPEN_AT_MOST = 160
"""Files that one reader keeps open: a service has 1,024 by default, for all readers and the rest of
the agent's work."""

_NUMBER_BYTES = 64  # "18446744073709551615" has 20; whatever fills this is no number
_TEXT_BYTES = 4096  # of one attribute of sysfs (Documentation/filesystems/sysfs)
_IMPLAUSIBLE = 1 << 63

ABSENT = NotSupported()


class CounterFiles:
    """Reads files by path. Not thread-safe.

    A file of sysfs makes its content anew for each read from its beginning, and answers ENODEV once
    its device is gone; then the path is tried again, since a device that was reset or got a new
    driver comes back under the same name. Files of any other file system are opened for each read.

    Args:
        open_at_most: Files kept open at once; the others are opened for each read.
    """

    def __init__(self, open_at_most: int = OPEN_AT_MOST) -> None:
        self._open_at_most = open_at_most
        self._open: dict[str, int] = {}

    @property
    def kept_open(self) -> int:
        """Files open now."""
        return len(self._open)

    def number(self, path: str) -> Reading:
        """The one number in a counter file, or why there is none; see `parse_number`.

        A file that is not there is `NotSupported`: drivers leave out the counters that they lack.
        """
        try:
            raw = self._read(path, _NUMBER_BYTES)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return Unavailable(reason_of(error))
        try:
            value = int(raw)
        except ValueError:
            return parse_number(raw.decode("utf-8", errors="replace").rstrip())
        if -_IMPLAUSIBLE < value < _IMPLAUSIBLE and len(raw) < _NUMBER_BYTES:
            return value
        return Unavailable("implausible_value")

    def text(self, path: str) -> str:
        """The text of a file, at most 4 KiB, stripped at the end.

        Raises:
            OSError: As the kernel says.
        """
        return self._read(path, _TEXT_BYTES).decode("utf-8", errors="replace").rstrip()

    def retain(self, paths: Collection[str]) -> None:
        """Close what is not among `paths`."""
        for path in [path for path in self._open if path not in paths]:
            os.close(self._open.pop(path))

    def close(self) -> None:
        """Close every file."""
        self.retain(())

    def _read(self, path: str, size: int) -> bytes:
        descriptor = self._open.get(path)
        if descriptor is not None:
            try:
                return os.pread(descriptor, size, 0)
            except OSError:
                os.close(self._open.pop(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        keep = False
        try:
            raw = os.pread(descriptor, size, 0)
            keep = len(self._open) < self._open_at_most and _is_made_by_kernel(descriptor)
        finally:
            if not keep:
                os.close(descriptor)
        if keep:
            self._open[path] = descriptor
        return raw


def _is_made_by_kernel(descriptor: int) -> bool:
    """An attribute of sysfs says that it is one page long and lies nowhere."""
    found = os.fstat(descriptor)
    return found.st_size == mmap.PAGESIZE and found.st_blocks == 0
