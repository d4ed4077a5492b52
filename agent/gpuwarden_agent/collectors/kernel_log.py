"""The kernel log: recognised lines become events as they are written."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Event as StopFlag
from typing import Any

import msgspec
import structlog

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import CollectorError, Emit, EventFollower, PositionStore
from gpuwarden_agent.collectors.kernel_merge import RepeatMerger
from gpuwarden_agent.collectors.trouble import recovered_event, trouble_event
from gpuwarden_agent.sources.kernel_files import read_text, reason_of
from gpuwarden_agent.sources.kernel_lines import FileMark, KernelLine, KmsgMark, LineReader
from gpuwarden_agent.sources.kmsg import KmsgDevice, KmsgReader
from gpuwarden_agent.sources.log_file import LogFileReader
from gpuwarden_kernel_log import Family, KernelEvent, LineContext, parse_events
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_log = structlog.get_logger("kernel_log")

_WAIT_S = 0.2
_SAVE_EVERY_S = 5.0
_DRIVER_VERSION_EVERY_S = 60.0
_TEXT_CHARACTERS = 1000
_OLD_S = 60.0
"""A stamp this much before the agent's start tells of an old line, whenever it was written."""

_GPU_FAMILIES = frozenset({Family.XID, Family.GPU_LOST, Family.RM_INIT_FAILED, Family.NVLINK})
_NIC_FAMILIES = frozenset({Family.NIC_LINK, Family.NIC_ERROR})
_DISK_FAMILIES = frozenset({Family.NVME_ERROR, Family.BLOCK_ERROR})

_PORT = re.compile(r"\bport:? ?(\d{1,3})\b", re.IGNORECASE)  # "mlx5_1: Port: 1 Link DOWN"
_NVME_CONTROLLER = re.compile(r"nvme\d+")  # "nvme nvme0: I/O 12 QID 3 timeout"
_PARTITION = re.compile(r"((?:sd|vd|xvd)[a-z]+)\d+|(nvme\d+n\d+|mmcblk\d+)p\d+")


class Position(msgspec.Struct, frozen=True):
    """What survives a restart: how far was read, and repeats that were counted but not sent."""

    mark: KmsgMark | FileMark
    pending: tuple[Event, ...] = ()


class KernelLogFollower:
    """Follows /dev/kmsg or a log file.

    Args:
        path: The device or file.
        sys_root: Where sysfs is mounted; the NVIDIA driver's version picks the layout of some XIDs.
        boot_id: The present boot.
        started_at: Epoch seconds of the agent's start.
        positions: Keeps the position together with the events.
        backlog_bytes: How much of an existing log file the first start reads back.
        clock: Epoch seconds.
    """

    name = "kernel_log"

    def __init__(
        self,
        path: Path,
        sys_root: Path,
        boot_id: str,
        started_at: float,
        positions: PositionStore,
        backlog_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._driver_version_path = sys_root / "module" / "nvidia" / "version"
        self._boot_id = boot_id
        self._started_at = started_at
        self._positions = positions
        self._backlog_bytes = backlog_bytes
        self._clock = clock
        self._opened_before = False
        self._merger = RepeatMerger()
        self._context = LineContext()
        self._context_until = 0.0

    def follow(self, emit: Emit, stop: StopFlag) -> None:
        """Hand over events until `stop` is set.

        Raises:
            CollectorError: The log cannot be opened or is gone.
        """
        position = self._load()
        reader = self._reader(position)
        self._opened_before = True
        try:
            self._run(reader, list(position.pending) if position else [], emit, stop)
        except OSError as error:
            raise CollectorError(
                reason_of(error), f"{self._path} could be read until now."
            ) from error
        finally:
            self._save(reader, self._merger.rest())
            reader.close()

    def read_present(self, patience_s: float) -> list[Event]:
        """What the log holds now, positions aside; stops after `patience_s` at the latest.

        Raises:
            CollectorError: The log cannot be opened.
        """
        reader = self._reader(None)
        until = time.monotonic() + patience_s
        events: list[Event] = []
        try:
            while (lines := reader.read(0.0)) and time.monotonic() < until:
                events += [one for line in lines for one in self._take(line, 0.0)]
        finally:
            reader.close()
        return events + self._merger.rest()

    def _reader(self, position: Position | None) -> LineReader:
        try:
            return self._open(position)
        except OSError as error:
            raise CollectorError(
                reason_of(error), f"Let the agent read {self._path}, or set the kernel log's path."
            ) from error

    def _run(self, reader: LineReader, kept: Sequence[Event], emit: Emit, stop: StopFlag) -> None:
        self._save(reader, kept)
        saved_at = time.monotonic()
        while not stop.is_set():
            lines = reader.read(_WAIT_S)
            now = time.monotonic()
            events = [one for line in lines for one in self._take(line, now)]
            events += self._merger.due(now)
            if events or (lines and now - saved_at >= _SAVE_EVERY_S):
                self._save(reader, events)
                saved_at = now
            if lost := reader.take_lost():
                self._tell_lost(lost, emit)

    def _open(self, position: Position | None) -> LineReader:
        mark = position.mark if position else None
        at_start = not self._opened_before
        if stat.S_ISCHR(self._path.stat().st_mode):
            kmsg_mark = mark if isinstance(mark, KmsgMark) else None
            device = KmsgDevice(self._path)
            return KmsgReader(device, self._boot_id, kmsg_mark, opened_at_start=at_start)
        file_mark = mark if isinstance(mark, FileMark) else None
        return LogFileReader(self._path, file_mark, self._backlog_bytes, opened_at_start=at_start)

    def _load(self) -> Position | None:
        content = self._positions.load_position(self.name)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Position)
        except msgspec.DecodeError as error:
            _log.warning("position_not_readable", why=str(error), then="reads as at a first start")
            return None

    def _save(self, reader: LineReader, events: Sequence[Event]) -> None:
        position = Position(reader.mark(), self._merger.pending())
        self._positions.commit_position(self.name, msgspec.json.encode(position), events)

    def _take(self, line: KernelLine, now: float) -> Iterable[Event]:
        for event in self.recognise(line):
            yield from self._merger.take(event, now)

    def recognise(self, line: KernelLine) -> list[Event]:
        """The events in one line; empty where it speaks of nothing that matters."""
        self._refresh_context()
        found = _parse(line.text, self._context)
        return [self._event(line, one, number) for number, one in enumerate(found)]

    def _refresh_context(self) -> None:
        now = time.monotonic()
        if now < self._context_until:
            return
        self._context_until = now + _DRIVER_VERSION_EVERY_S
        try:
            version = read_text(self._driver_version_path).strip() or None
        except OSError:
            version = None
        if version != self._context.driver_version:
            self._context = LineContext(driver_version=version)

    def _event(self, line: KernelLine, found: KernelEvent, number: int) -> Event:
        kind, entity = _entity(found)
        stamped = found.observed_at.timestamp() if found.observed_at else None
        observed_at = line.observed_at or stamped or self._clock()
        old = stamped is not None and stamped < self._started_at - _OLD_S
        return Event(
            id=f"{line.id}:{number}" if number else line.id,
            kind=EventKind.KERNEL_LOG,
            observed_at=max(0.0, observed_at),
            entity_kind=kind,
            entity=entity,
            family=found.family.value,
            xid=found.xid,
            sxid=found.sxid,
            pci_bus_id=found.pci_bus_id,
            pid=found.pid,
            process=found.process,
            severity=found.severity.value,
            device=found.device,
            text=found.text[:_TEXT_CHARACTERS],
            backlog=line.backlog or old,
            attributes=_attributes(line, found),
        )

    def _tell_lost(self, lost: int, emit: Emit) -> None:
        now = self._clock()
        _log.warning("kernel_lines_lost", lines=lost, why="overwritten in the ring before we read")
        mend = "Raise log_buf_len on the kernel's command line if this comes often."
        emit(
            [
                trouble_event(self.name, "kmsg_overrun", mend, self._boot_id, now, lines_lost=lost),
                recovered_event(self.name, self._boot_id, now),
            ]
        )


@lru_cache(maxsize=128)
def _parse(text: bytes, context: LineContext) -> tuple[KernelEvent, ...]:
    """A storm repeats few messages: those are parsed once."""
    return tuple(parse_events(text, context))


def _entity(found: KernelEvent) -> tuple[EntityKind, str]:
    """Whom a line speaks about; a GPU is joined by the server from `pci_bus_id`."""
    if found.family in _GPU_FAMILIES and found.pci_bus_id:
        return EntityKind.GPU, ""
    if found.family in _NIC_FAMILIES and found.device:
        return EntityKind.NIC, nic_entity(found.device, found.text)
    if found.family in _DISK_FAMILIES and found.device:
        return EntityKind.DISK, disk_entity(found.device)
    return EntityKind.NODE, ""


def nic_entity(device: str, text: str) -> str:
    """Entity key of a NIC: the interface, or "device/port" of an RDMA device (port 1 if unsaid)."""
    if not device.startswith(("mlx", "bnxt_re", "irdma", "hfi", "qedr", "rocep", "ibp")):
        return device
    port = _PORT.search(text)
    return f"{device}/{port[1] if port else 1}"


def disk_entity(device: str) -> str:
    """Entity key of a disk: the whole device; of an NVMe controller its first namespace."""
    if _NVME_CONTROLLER.fullmatch(device):
        return f"{device}n1"
    part = _PARTITION.fullmatch(device)
    return (part[1] or part[2]) if part else device


def _attributes(line: KernelLine, found: KernelEvent) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "action": found.action,
        "fault_class": found.fault_class.value if found.fault_class else None,
        "application_possible": found.application_possible or None,
        "acts_alone": found.acts_alone or None,
        "echo": found.echo or None,
        "relayed": line.relayed or None,
        "uptime_s": found.uptime_s,
    }
    return {name: value for name, value in facts.items() if value is not None}


def build(context: CollectorContext) -> EventFollower:
    """The follower as the settings want it."""
    settings = context.settings
    return KernelLogFollower(
        settings.kmsg_path,
        settings.sys_root,
        context.boot_id,
        context.started_at,
        context.positions,
        settings.kmsg_backlog_bytes,
    )
