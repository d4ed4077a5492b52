"""Who runs where and when: jobs.csv on a clock."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop

from gpuwarden_models.recording_tables import JobRow


class JobTimeline:
    """Jobs as they start and end; the clock only goes forward. Not thread-safe."""

    def __init__(self, jobs: Sequence[JobRow]) -> None:
        self._changes = [
            (moment, number, starts, job)
            for number, job in enumerate(jobs)
            for moment, starts in ((job.start, True), (job.end, False))
        ]
        heapify(self._changes)
        self._running: dict[str, dict[str, JobRow]] = {}

    def advance(self, at: float) -> set[str]:
        """Go to a moment (epoch seconds); returns nodes on which something started or ended."""
        changed: set[str] = set()
        while self._changes and self._changes[0][0] <= at:
            _, _, starts, job = heappop(self._changes)
            for node in job.nodes:
                running = self._running.setdefault(node, {})
                if starts:
                    running[job.job_id] = job
                else:
                    running.pop(job.job_id, None)
            changed.update(job.nodes)
        return changed

    def on(self, node: str) -> tuple[JobRow, ...]:
        """Jobs on a node now, those that began first first."""
        return tuple(self._running.get(node, {}).values())
