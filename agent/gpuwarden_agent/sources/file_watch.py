"""Waits for a file to change without looking at it all the time."""

from __future__ import annotations

import ctypes
import os
import select
import time
from pathlib import Path

from gpuwarden_agent.sources.wakeup import Wakeup

POLL_S = 0.04
"""Between two looks at a file that the kernel does not watch: the longest that a line waits."""

# inotify(7), linux/inotify.h
_MODIFY, _ATTRIB, _MOVE_SELF, _DELETE_SELF = 0x2, 0x4, 0x800, 0x400
_WATCHED = _MODIFY | _ATTRIB | _MOVE_SELF | _DELETE_SELF
_ROOM_BYTES = 4096


class FileWatch:
    """One open file, watched by inotify; looked at every POLL_S where that says nothing.

    inotify is silent about what other machines write to a network file system, and about some
    overlay file systems. It is believed until the file has once grown without a word from it.

    Args:
        path: Name under which the file was opened.
        wakeup: Ends a wait.
    """

    def __init__(self, path: Path, wakeup: Wakeup) -> None:
        self._inotify = _watch(path)
        self._wakeup = wakeup

    @property
    def listens(self) -> bool:
        """Whether the kernel tells; else the file is polled."""
        return self._inotify is not None

    def await_change(self, descriptor: int, size: int, timeout_s: float) -> bool:
        """Whether within `timeout_s` seconds the file is no longer `size` long, or was renamed.

        Likewise where we were woken.
        """
        deadline = time.monotonic() + timeout_s
        while os.fstat(descriptor).st_size == size:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._sleep(left):
                return True
            if self.listens and os.fstat(descriptor).st_size != size:
                self.close()  # it grew, and nothing was said
        return True

    def _sleep(self, timeout_s: float) -> bool:
        """Sleep until there is something to see; False where the time passed."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        if self._inotify is None:
            return bool(poll.poll(min(POLL_S, timeout_s) * 1000))
        poll.register(self._inotify, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]
        if self._inotify in ready:
            os.read(self._inotify, _ROOM_BYTES)
        return bool(ready)

    def close(self) -> None:
        """Stop watching; from here on the file is polled."""
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None


def _watch(path: Path) -> int | None:
    """A descriptor that tells of changes; None where the kernel has none left or knows none."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            return None
        if libc.inotify_add_watch(descriptor, os.fsencode(path), _WATCHED) < 0:
            os.close(descriptor)
            return None
    except (OSError, AttributeError):
        return None
    return descriptor
