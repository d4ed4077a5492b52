"""State files that are looked at between two readings, by another thread."""

from __future__ import annotations

import threading

from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.kernel_files import reason_of


class StateGlance:
    """Reads a few files of sysfs, kept open. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files = CounterFiles()
        self._paths: tuple[str, ...] = ()
        self._open = False
        self._last: tuple[str, ...] = ()

    def follow(self, paths: tuple[str, ...]) -> None:
        """Look at these files from now on."""
        if self._open and paths is self._paths:
            return
        with self._lock:
            self._files.retain(paths)
            self._paths, self._open = paths, True

    def look(self) -> tuple[str, ...]:
        """Their texts, or why there is none; while closed, the last ones."""
        with self._lock:
            if self._open:
                self._last = tuple(map(self._text, self._paths))
            return self._last

    def close(self) -> None:
        """Close the files until they are to be followed again."""
        with self._lock:
            self._open = False
            self._files.close()

    def _text(self, path: str) -> str:
        try:
            return self._files.text(path)
        except OSError as error:
            return reason_of(error)
