"""Logging of the agent: key-value lines on stderr."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class _StderrLines:
    """Writes lines to stderr; one that is closed or broken must not end the thread that logs."""

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = exception = critical = msg


def configure_logs(level: str) -> None:
    """One line an event, `key=value`, UTC; nothing below `level`.

    Args:
        level: debug, info, warning or error.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.ERROR)),
        logger_factory=lambda *_: _StderrLines(),
        cache_logger_on_first_use=False,
    )
