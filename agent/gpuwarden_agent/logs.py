"""Logging of the agent: key-value lines on stderr.

Of our own, on `time` alone: structlog costs 18 MiB resident with what it imports (asyncio; rich
where installed), more than a third of what the whole agent may weigh.
"""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import suppress

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_lowest = _LEVELS["info"]


def configure_logs(level: str) -> None:
    """One line an event, `key=value`, UTC; nothing below `level`.

    Args:
        level: debug, info, warning or error.
    """
    global _lowest
    _lowest = _LEVELS.get(level, _LEVELS["error"])


class Logger:
    """Writes events of one part of the agent."""

    def __init__(self, part: str) -> None:
        self._part = part

    def debug(self, event: str, **values: object) -> None:
        """What helps to find a fault of ours."""
        self._write("debug", event, values)

    def info(self, event: str, **values: object) -> None:
        """A change of state."""
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        """Trouble that goes on without anybody."""
        self._write("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        """Something was lost or does not work."""
        self._write("error", event, values)

    def exception(self, event: str, **values: object) -> None:
        """An error with the trace of the exception that is being handled."""
        self._write("error", event, {**values, "exception": traceback.format_exc().rstrip()})

    def _write(self, level: str, event: str, values: dict[str, object]) -> None:
        if _LEVELS[level] < _lowest:
            return
        parts = {"timestamp": _now(), "level": level, "part": self._part, "event": event, **values}
        line = " ".join(f"{key}={_quoted(value)}" for key, value in parts.items())
        # stderr that is closed or broken must not end the thread that logs
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def get_logger(part: str) -> Logger:
    """The logger of a part of the agent."""
    return Logger(part)


def _now() -> str:
    seconds = time.time()
    parts = time.gmtime(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int(seconds % 1 * 1e6):06d}Z"


def _quoted(value: object) -> str:
    """A value in logfmt: quoted where it holds a space, a quote, an equals sign or a control."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    plain = text.isprintable() and not set(' ="\\') & set(text)
    if plain and text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'
