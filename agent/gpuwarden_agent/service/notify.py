"""Tells systemd that the agent is ready, alive and ending: sd_notify(3), over its socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from gpuwarden_agent.service.config import NotifySocket


class ServiceNotifier:
    """Does nothing where nobody waits for word.

    Args:
        notify: Where to send to, and how often it wants to hear from us.
        monotonic: Monotonic seconds.
    """

    def __init__(
        self, notify: NotifySocket, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = notify.address
        self._every_s = notify.watchdog_s / 3 if notify.watchdog_s is not None else None
        self._monotonic = monotonic
        self._due = 0.0

    def ready(self) -> None:
        """Everything runs."""
        self._send("READY=1")

    def alive(self) -> None:
        """Called from the loop that the watchdog watches; sends a third of its time apart."""
        now = self._monotonic()
        if self._every_s is not None and now >= self._due:
            self._due = now + self._every_s
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def _send(self, word: str) -> None:
        if not self._address:
            return
        # "@name" is a socket in the abstract name space, written with a leading NUL.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(word.encode(), address)
