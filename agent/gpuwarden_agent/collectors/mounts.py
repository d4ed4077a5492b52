"""Network mounts: throughput, latency, queueing, retransmits and slots of every NFS mount."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.kernel_files import reason_of
from gpuwarden_agent.sources.mount_stats import MountStats, Transports, parse_mounts
from gpuwarden_agent.sources.proc_files import ProcFile
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

WATCHED_AT_MOST = 32
"""An automounter may bring hundreds; what is not watched is counted."""

_LIMIT_BYTES = 4 * 1_048_576  # a mount takes about 6 KiB
_KEY_AT_MOST = 200  # of the 255 characters that a key may have on the wire
# What the first process sees is what the node has; the agent may live in a container. Only root may
# look at it.
_PROCESSES = ("1", "self")

_OPERATIONS, _RETRANSMITS = "mount_operations_total", "mount_retransmits_total"
_SLOTS, _BACKLOG = "mount_slots_in_use_ratio", "mount_backlog_requests"


class MountCollector:
    """Reads mountstats; never touches a mounted file system.

    Args:
        proc_root: Where procfs is mounted.
        interval_s: Cadence, seconds.
        deadline_s: Deadline of one call, seconds.
        clock: Monotonic seconds.
    """

    name = "mounts"

    def __init__(
        self,
        proc_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._files = [
            ProcFile(f"{proc_root}/{process}/mountstats", _LIMIT_BYTES) for process in _PROCESSES
        ]
        self._chosen: ProcFile | None = None
        self._seen = SeenDevices(clock)
        self._watched: dict[str, MountStats] = {}

    def collect(self, now: float) -> Harvest:
        """Counters of every NFS mount.

        Raises:
            CollectorError: mountstats cannot be read.
        """
        mounts = {_key_of(mount.point): mount for mount in parse_mounts(self._read())}
        watched = self._choose(mounts)
        rows = {key: _row(mounts[key], self._watched.get(key)) for key in watched}
        self._watched = {key: replace(mounts[key], counters=rows[key]) for key in watched}
        counts: dict[str, Reading] = {
            "node_nfs_mounts": len(mounts),
            "node_nfs_mounts_left_out": len(mounts) - len(watched),
        }
        return Harvest(
            rows={EntityKind.MOUNT: self._seen.complete(rows), EntityKind.NODE: {"": counts}}
        )

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _read(self) -> bytes:
        """The text, of the process that could be read last or else of the first that can be."""
        trouble: OSError | None = None
        for file in (self._chosen,) if self._chosen else self._files:
            try:
                text = file.read()
            except OSError as error:
                trouble, self._chosen = error, None
            else:
                self._chosen = file
                return text
        reason = reason_of(trouble) if trouble else "no_such_file"
        raise CollectorError(reason, f"Let the agent read {self._files[-1].path}.")

    def _choose(self, mounts: dict[str, MountStats]) -> list[str]:
        """Those watched before stay, so that a series does not come and go."""
        stay = [key for key in mounts if key in self._watched]
        fresh = [key for key in mounts if key not in self._watched]
        return stay + fresh[: WATCHED_AT_MOST - len(stay)]


def _row(mount: MountStats, before: MountStats | None) -> dict[str, Reading]:
    row = {**mount.counters, **_pressure(mount.transports, before.transports if before else None)}
    if before is not None:
        row[_RETRANSMITS] = _never_falling(mount.counters, before.counters)
    return row


def _never_falling(now: Mapping[str, Reading], before: Mapping[str, Reading]) -> Reading:
    """The least number of retransmits; that falls where an operation ends before it was sent.

    A counter that falls says that it began anew: that is so only where the operations fell too.
    """
    fresh, former = now[_RETRANSMITS], before[_RETRANSMITS]
    if not (isinstance(fresh, float | int) and isinstance(former, float | int)):
        return fresh
    operations, formerly = now[_OPERATIONS], before[_OPERATIONS]
    if not (isinstance(operations, float | int) and isinstance(formerly, float | int)):
        return fresh
    return fresh if operations < formerly else max(fresh, former)


def _pressure(now: Transports | None, before: Transports | None) -> dict[str, Reading]:
    """Means since the last look: slots in use by the most ever in use, requests waiting for one."""
    if now is None:
        return dict.fromkeys((_SLOTS, _BACKLOG), Unavailable("no_such_line"))
    in_use, backlog = _means(now, before)
    if not now.slots:
        return {_SLOTS: NotSupported(), _BACKLOG: backlog}
    return {
        _SLOTS: in_use / now.slots if isinstance(in_use, float | int) else in_use,
        _BACKLOG: backlog,
    }


def _means(now: Transports, before: Transports | None) -> tuple[Reading, Reading]:
    """Requests in use and waiting, on average over the requests sent since `before`."""
    if before is None:
        missing: Reading = Unavailable("first_look")
        return missing, missing
    sends = now.sends - before.sends
    in_use, backlog = now.in_use - before.in_use, now.backlog - before.backlog
    if sends < 0 or in_use < 0 or backlog < 0:
        missing = Unavailable("counter_went_back")
    elif sends == 0:
        missing = Unavailable("no_requests")
    else:
        return in_use / sends, backlog / sends
    return missing, missing


def _key_of(point: str) -> str:
    if len(point) <= _KEY_AT_MOST:
        return point
    digest = hashlib.sha256(point.encode("utf-8", errors="replace")).hexdigest()[:16]
    return f"{point[: _KEY_AT_MOST - 17]}~{digest}"


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return MountCollector(settings.proc_root, settings.interval_s, settings.deadline_s)
