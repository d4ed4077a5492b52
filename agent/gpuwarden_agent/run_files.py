"""Small files in the run folder, by which commands on this node and its agent speak."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, readable for all.

    Raises:
        OSError: The folder does not take it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


def may_be_obeyed(facts: os.stat_result) -> bool:
    """Whether only root or the agent's own user could have written a file."""
    return facts.st_uid in {0, os.geteuid()} and not facts.st_mode & stat.S_IWOTH


def uptime_s() -> float:
    """Seconds since boot, suspend included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
