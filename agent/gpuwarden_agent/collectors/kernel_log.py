"""The kernel log: recognised lines become events as they are written."""

from __future__ import annotations

import dataclasses
import math
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Event as StopFlag
from typing import Any

import msgspec

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import CollectorError, Emit, EventFollower, PositionStore
from gpuwarden_agent.collectors.kernel_dating import LineDating
from gpuwarden_agent.collectors.kernel_entities import entity_of_line
from gpuwarden_agent.collectors.kernel_merge import RepeatMerger
from gpuwarden_agent.collectors.trouble import recovered_event, trouble_event
from gpuwarden_agent.identity import read_booted_at
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.sources.kernel_files import read_text, reason_of
from gpuwarden_agent.sources.kernel_lines import FileMark, KernelLine, KmsgMark, LineReader
from gpuwarden_agent.sources.kmsg import KmsgDevice, KmsgReader
from gpuwarden_agent.sources.log_file import LogFileReader
from gpuwarden_agent.sources.wakeup import Wakeup
from gpuwarden_kernel_log import KernelEvent, LineContext, parse_events
from gpuwarden_wire.events import Backlog, Event, EventKind

_log = get_logger("kernel_log")

_WAIT_S = 60.0
_PENDING_WAIT_S = 0.25
_SAVE_EVERY_S = 5.0
_DUE_EVERY_S = 0.5
"""Between two looks for merged repeats: each costs a commit of all that are still awaited."""

_LOST_EVERY_S = 5.0
"""While the ring overflows, lines are lost at every read; that is told once so often."""

_SPRINT_S = 1.0
"""A flood is read at full speed for this long, then at half: reading holds the interpreter, which
the other collectors need too. A ring of the kernel is read whole in less."""

_DRIVER_VERSION_EVERY_S = 60.0
_TEXT_CHARACTERS = 1000


class Position(msgspec.Struct, frozen=True):
    """What survives a restart.

    Attributes:
        mark: How far was read.
        pending: Repeats that were counted but not sent.
        path: The log: another one is looked at for the first time.
        boot_id: Boot in which it was read so far.
    """

    mark: KmsgMark | FileMark
    pending: tuple[Event, ...] = ()
    path: str = ""
    boot_id: str = ""


class KernelLogFollower:
    """Follows /dev/kmsg or a log file.

    What was appended since the saved position is news, however long the agent was down. Two kinds
    of lines are not: those of an older boot, and what the very first look at a log finds.

    Args:
        path: The device or file.
        sys_root: Where sysfs is mounted; the NVIDIA driver's version picks the layout of some XIDs.
        boot_id: The present boot.
        started_at: Epoch seconds of the agent's start: what is younger is news at any look.
        positions: Keeps the position together with the events.
        backlog_bytes: How much of an existing log file the first look reads back.
        booted_at: Epoch seconds of the present boot, None where unknown.
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
        *,
        booted_at: float | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._driver_version_path = sys_root / "module" / "nvidia" / "version"
        self._boot_id = boot_id
        self._dating = LineDating(started_at, booted_at)
        self._positions = positions
        self._backlog_bytes = backlog_bytes
        self._clock = clock
        self._wakeup = Wakeup()
        self._settled = False
        self._merger = RepeatMerger()
        self._context = LineContext()
        self._context_until = 0.0
        self._lost_told_at = -math.inf

    def wake(self) -> None:
        """End the wait for a line."""
        self._wakeup.ring()

    def follow(self, emit: Emit, stop: StopFlag) -> None:
        """Hand over events until `stop` is set.

        Raises:
            CollectorError: The log cannot be opened or is gone.
        """
        position = self._load()
        reader = self._reader(position)
        kept = position.pending if position else ()
        if position is not None and position.boot_id != self._boot_id:
            kept = tuple(msgspec.structs.replace(one, backlog=Backlog.OLDER_BOOT) for one in kept)
        try:
            self._run(reader, kept, emit, stop)
        except OSError as error:
            raise CollectorError(
                reason_of(error), f"{self._path} could be read until now."
            ) from error
        finally:
            self._keep(reader, self._merger.rest(), emit)
            self._tell_lost(reader, emit, math.inf)
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
        self._keep(reader, kept, emit)
        saved_at = due_at = time.monotonic()
        busy_s = 0.0
        while not stop.is_set():
            soon = self._merger.waits or not self._settled
            lines = reader.read(_PENDING_WAIT_S if soon else _WAIT_S)
            now = time.monotonic()
            events = [one for line in lines for one in self._take(line, now)]
            if now >= due_at:
                events += self._merger.due(now)
                due_at = now + _DUE_EVERY_S
            settles = reader.caught_up and not self._settled
            self._settled = self._settled or settles
            if events or settles or (lines and now - saved_at >= _SAVE_EVERY_S):
                self._keep(reader, events, emit)
                saved_at = now
            self._tell_lost(reader, emit, now)
            took_s = time.monotonic() - now
            busy_s = busy_s + took_s if lines else 0.0
            if busy_s > _SPRINT_S:
                stop.wait(took_s)

    def _open(self, position: Position | None) -> LineReader:
        mark = position.mark if position and position.path == str(self._path) else None
        same_boot = position is None or position.boot_id == self._boot_id
        self._dating = dataclasses.replace(self._dating, same_boot=same_boot)
        if stat.S_ISCHR(self._path.stat().st_mode):
            kmsg_mark = mark if isinstance(mark, KmsgMark) else None
            self._settled = kmsg_mark is not None
            return KmsgReader(KmsgDevice(self._path, self._wakeup), self._boot_id, kmsg_mark)
        file_mark = mark if isinstance(mark, FileMark) else None
        self._settled = file_mark is not None and same_boot
        return LogFileReader(
            self._path,
            file_mark,
            self._backlog_bytes,
            same_boot=same_boot,
            clock=self._clock,
            wakeup=self._wakeup,
        )

    def _load(self) -> Position | None:
        content = self._positions.load_position(self.name)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Position)
        except msgspec.DecodeError as error:
            _log.warning("position_not_readable", why=str(error), then="reads as at a first start")
            return None

    def _keep(self, reader: LineReader, events: Sequence[Event], emit: Emit) -> None:
        """Store events with the position.

        Until the end of what is not news, the position stays where it was: after a crash all of it
        is read anew, for what it is, and the server knows the ids.
        """
        if not self._settled:
            if events:
                emit(events)
            return
        position = Position(reader.mark(), self._merger.pending(), str(self._path), self._boot_id)
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
        kind, entity = entity_of_line(found)
        stamped = found.observed_at.timestamp() if found.observed_at else None
        backlog, observed_at = self._dating.date(line, stamped, self._clock())
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
            backlog=backlog,
            attributes=_attributes(line, found),
        )

    def _tell_lost(self, reader: LineReader, emit: Emit, now: float) -> None:
        """Tell what the ring lost, at most once in a while; monotonic seconds."""
        if now - self._lost_told_at < _LOST_EVERY_S or not (lost := reader.take_lost()):
            return
        self._lost_told_at = now
        at = self._clock()
        _log.warning("kernel_lines_lost", lines=lost, why="overwritten in the ring before we read")
        mend = "Raise log_buf_len on the kernel's command line if this comes often."
        emit(
            [
                trouble_event(self.name, "kmsg_overrun", mend, self._boot_id, at, lines_lost=lost),
                recovered_event(self.name, self._boot_id, at),
            ]
        )


@lru_cache(maxsize=128)
def _parse(text: bytes, context: LineContext) -> tuple[KernelEvent, ...]:
    """A storm repeats few messages: those are parsed once."""
    return tuple(parse_events(text, context))


def _attributes(line: KernelLine, found: KernelEvent) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "action": found.action,
        "fault_class": found.fault_class.value if found.fault_class else None,
        "application_possible": found.application_possible or None,
        "acts_alone": found.acts_alone or None,
        "echo": found.echo or None,
        "unproven": line.relayed or not found.proven or None,
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
        booted_at=read_booted_at(settings.proc_root, time.time()),
    )
