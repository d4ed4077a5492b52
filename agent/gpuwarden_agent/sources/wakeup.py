"""Ends the wait of a thread that sleeps in poll(2)."""

from __future__ import annotations

import os


class Wakeup:
    """A descriptor beside those that a thread waits for; once rung it stays readable."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.rung = False

    def fileno(self) -> int:
        """The descriptor to wait for as well."""
        return self._descriptor

    def ring(self) -> None:
        """End every wait from now on."""
        self.rung = True
        os.eventfd_write(self._descriptor, 1)

    def __del__(self) -> None:
        os.close(self._descriptor)
