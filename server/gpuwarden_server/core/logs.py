"""Logs as key-value events on stderr; stdout stays free for what a person must read once."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

import structlog


class LogForm(StrEnum):
    """How a log line looks."""

    CONSOLE = "console"
    JSON = "json"


def configure_logging(form: LogForm, level: str) -> None:
    """Set structlog and the standard library's root logger up for this process.

    Args:
        form: For people or for programs.
        level: Least level that is written: debug, info, warning, error.
    """
    least = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if form is LogForm.JSON
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        # Looked up at each line: who replaces sys.stderr gets the lines.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=sys.stderr, level=max(least, logging.WARNING), force=True)
