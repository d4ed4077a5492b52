"""State files that are looked at between two readings, by another thread."""

from __future__ import annotations

import threading

from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.kernel_files import reason_of


class StateGlance:
    """Reads a few files of sysfs, kept open. Thread-safe: one that hangs holds up nobody else."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._open = False
        self._files: dict[str, _StateFile] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that can be looked at."""
        return tuple(self._files)

    def follow(self, paths: tuple[str, ...]) -> None:
        """Look at these files from now on."""
        if self._open and paths is self._paths:
            return
        former = self._files
        self._files = {path: former.get(path) or _StateFile(path) for path in paths}
        self._paths, self._open = paths, True
        for path, file in former.items():
            if path not in self._files:
                file.close()
        for file in self._files.values():
            file.open()

    def look(self, path: str) -> str:
        """Its text, or why there is none; while closed, the last one."""
        file = self._files.get(path)
        return file.look() if file is not None else ""

    def close(self) -> None:
        """Close the files until they are to be followed again."""
        self._open = False
        for file in self._files.values():
            file.close()


class _StateFile:
    """One file. A read that hangs in the kernel holds the lock, for which only looks wait."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._files = CounterFiles(1)
        self._wanted = True
        self._last = ""

    def open(self) -> None:
        """Let it be read."""
        self._wanted = True

    def look(self) -> str:
        """Read it."""
        with self._lock:
            if self._wanted:
                self._last = self._text()
            if not self._wanted:  # closed meanwhile
                self._files.close()
            return self._last

    def close(self) -> None:
        """Close it at once, or as soon as it has been read."""
        self._wanted = False
        if self._lock.acquire(blocking=False):
            try:
                if not self._wanted:
                    self._files.close()
            finally:
                self._lock.release()

    def _text(self) -> str:
        try:
            return self._files.text(self._path)
        except OSError as error:
            return reason_of(error)
