"""The machine that figures were made on, and what made them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy
import sklearn

from gpuwarden_wire.version import __version__


def machine_words() -> str:
    """Processor, cores and versions, in one line."""
    return (
        f"{_processor()}, {os.cpu_count()} cores; Python {platform.python_version()},"
        f" numpy {numpy.__version__}, scikit-learn {sklearn.__version__}, gpuwarden {__version__}"
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
