"""What systemd tells a service in its environment: sd_notify(3), sd_watchdog_enabled(3)."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotifySocket:
    """Where a service of type notify sends word.

    Attributes:
        address: Path, or "@name" in the abstract name space; "" where nobody listens.
        watchdog_s: We are ended when nothing is heard for so long, seconds; None for never.
    """

    address: str = ""
    watchdog_s: float | None = None


def read_notify_socket() -> NotifySocket:
    """From this process's environment; words that make no sense count as not said."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    micros = os.environ.get("WATCHDOG_USEC", "")
    meant_for = os.environ.get("WATCHDOG_PID", "")
    mine = meant_for in ("", str(os.getpid()))
    watchdog_s = int(micros) / 1e6 if mine and micros.isascii() and micros.isdigit() else None
    return NotifySocket(address if address[:1] in ("/", "@") else "", watchdog_s or None)
