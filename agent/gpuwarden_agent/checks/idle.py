"""Whether the node's GPUs are idle: what loads them may run, and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpuwarden_wire.events import GpuIdentity

IDLE_FOR_S = 60.0
"""Jobs start their processes within seconds; one that is between two steps is not over."""

Processes = Callable[[], Mapping[str, tuple[int, ...] | None] | None]
"""Processes by GPU, None for a GPU that does not answer; None before any did."""


class IdleWatch:
    """Looks at the processes of all GPUs, and at the folder of jobs that a prolog fills."""

    def __init__(
        self,
        processes: Processes | None,
        gpus: Callable[[], Sequence[GpuIdentity]],
        jobs_folder: Path | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a watch.

        Args:
            processes: As NVML gave them last, None where NVML is off.
            gpus: The node's GPUs as known now.
            jobs_folder: Job ids by GPU, None where there is no such folder.
            monotonic: Seconds that never run backwards.
        """
        self._processes = processes
        self._gpus = gpus
        self._jobs_folder = jobs_folder
        self._monotonic = monotonic
        self._since: float | None = None

    def look(self) -> bool | None:
        """Whether they have been idle for IDLE_FOR_S; None where nobody can say."""
        busy = self._is_busy()
        if busy is not False:
            self._since = None
            return None if busy is None else False
        now = self._monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since >= IDLE_FOR_S

    def _is_busy(self) -> bool | None:
        table, gpus = self._processes() if self._processes else None, self._gpus()
        if table is None or not gpus:
            return None
        found = [table.get(gpu.gpu_uuid) for gpu in gpus]
        if any(found) or self._has_job():
            return True
        return None if any(one is None for one in found) else False

    def _has_job(self) -> bool:
        folder = self._jobs_folder
        try:
            return folder is not None and any(one.stat().st_size for one in folder.iterdir())
        except OSError:
            return True  # not readable now: nobody says that there is none
