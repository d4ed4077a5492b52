"""Health of NVMe drives by their own log, through nvme-cli or smartctl where one is installed.

The log is read from the drive, seldom: each look is a command in its admin queue. A tool that hangs
is ended; one that cannot be ended (the drive does not answer the kernel) is left alone, and nothing
else is asked of that drive while it lives.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event as StopFlag

from gpuwarden_agent.checks.process import Outcome, run_check
from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, Harvest
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.block_devices import is_whole_disk
from gpuwarden_agent.sources.kernel_files import list_names
from gpuwarden_agent.sources.smart_log import (
    SMART_METRICS,
    parse_nvme_cli,
    parse_smartctl,
    smartctl_complaint,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

TOOL_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
NOT_INSTALLED = NotSupported("no_smart_tool: install nvme-cli or smartmontools")

TOOL_DEADLINE_S = 10.0
_LEAST_DEADLINE_S = 60.0
_NVME = re.compile(r"(nvme\d+)n\d+")  # controller and name space

# What the tools and the kernel say, as the reasons of ours:
# "/dev/nvme0n1: Permission denied", "Smartctl open device: /dev/nvme0 failed: Permission denied"
_COMPLAINTS = (
    ("permission denied", "permission_denied"),
    ("operation not permitted", "permission_denied"),
    ("no such file", "no_such_device"),
    ("no such device", "no_such_device"),
    ("input/output error", "io_error"),
    ("inappropriate ioctl", "not_supported_by_kernel"),
)

RunTool = Callable[[Sequence[str], float, StopFlag], Outcome]
"""Runs a command with closed input, a deadline in seconds, and bounded output."""


@dataclass(frozen=True, slots=True)
class SmartTool:
    """One of the two tools.

    Attributes:
        path: Where it is installed.
        arguments: In front of the device.
        parse: Readings of its output, None where that holds no log.
    """

    path: str
    arguments: tuple[str, ...]
    parse: Callable[[bytes], dict[str, Reading] | None]

    def command(self, device: str) -> tuple[str, ...]:
        """What is run for one device."""
        return (self.path, *self.arguments, f"/dev/{device}")


def find_tool(folders: Sequence[str] = TOOL_FOLDERS) -> SmartTool | None:
    """The tool that is installed; nvme-cli is asked first, as the lighter one."""
    path = ":".join(folders)
    if nvme := shutil.which("nvme", path=path):
        return SmartTool(nvme, ("smart-log", "-o", "json"), parse_nvme_cli)
    if smartctl := shutil.which("smartctl", path=path):
        return SmartTool(smartctl, ("-j", "-a"), parse_smartctl)
    return None


def run_tool(command: Sequence[str], deadline_s: float, stop: StopFlag) -> Outcome:
    """Run a tool as a plug-in check is run."""
    return run_check(command, {"LC_ALL": "C"}, deadline_s, stop)


class SmartCollector:
    """Asks every NVMe drive in turn.

    Args:
        sys_root: Where sysfs is mounted.
        interval_s: Cadence, seconds.
        tool_folders: Where the tools may be installed.
        run: Runs a tool.
        clock: Monotonic seconds.
        tool_deadline_s: Deadline of one run of a tool, seconds.
    """

    name = "smart"

    def __init__(
        self,
        sys_root: Path,
        interval_s: float,
        tool_folders: Sequence[str] = TOOL_FOLDERS,
        run: RunTool = run_tool,
        clock: Callable[[], float] = time.monotonic,
        tool_deadline_s: float = TOOL_DEADLINE_S,
    ) -> None:
        self.interval_s = interval_s
        self._tool_deadline_s = tool_deadline_s
        self._blocks = f"{sys_root}/class/block"
        self._tool_folders = tool_folders
        self._run = run
        self._seen = SeenDevices(clock)
        self._clock = clock
        self._left: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = StopFlag()

    @property
    def deadline_s(self) -> float:
        """Drives that hang share a deadline: what is left of them is asked at the next call."""
        return max(_LEAST_DEADLINE_S, min(self.interval_s / 2, 2 * _LEAST_DEADLINE_S))

    def collect(self, now: float) -> Harvest:
        """The health of every NVMe drive; `now` is epoch seconds."""
        self._left = {name: one for name, one in self._left.items() if one.poll() is None}
        tool = find_tool(self._tool_folders)
        rows: dict[str, Mapping[str, Reading]] = {}
        by_controller: dict[str, Mapping[str, Reading]] = {}
        until = self._clock() + self.deadline_s - 2 * self._tool_deadline_s
        for disk, controller in self._drives():
            if tool is None:
                rows[disk] = dict.fromkeys(SMART_METRICS, NOT_INSTALLED)
                continue
            if controller not in by_controller:
                by_controller[controller] = self._ask(tool, disk, controller, until)
            rows[disk] = by_controller[controller]
        if tool is not None:
            rows = dict(self._seen.complete(rows))
        return Harvest(rows={EntityKind.DISK: rows})

    def close(self) -> None:
        """End a tool that runs; the next call asks again."""
        self._stop.set()
        self._stop = StopFlag()

    def _drives(self) -> list[tuple[str, str]]:
        """Whole NVMe devices and the controller of each; a controller is asked once."""
        try:
            names = list_names(self._blocks)
        except OSError:
            return []
        matched = [(name, _NVME.fullmatch(name)) for name in names]
        return [
            (name, found[1])
            for name, found in matched
            if found is not None and is_whole_disk(self._blocks, name)
        ]

    def _ask(
        self, tool: SmartTool, disk: str, controller: str, until: float
    ) -> Mapping[str, Reading]:
        if controller in self._left:
            return _all_missing("tool_not_killable")
        if self._clock() > until:
            return _all_missing("deadline_exceeded")
        outcome = self._run(tool.command(disk), self._tool_deadline_s, self._stop)
        if outcome.left is not None:
            self._left[controller] = outcome.left
        # smartctl's exit code has a bit for each thing that is wrong with the drive: a log that it
        # printed holds whatever the code.
        row = None if outcome.cut else tool.parse(outcome.output)
        return _all_missing(_reason_of(outcome)) if row is None else row


def _all_missing(reason: str) -> Mapping[str, Reading]:
    return dict.fromkeys(SMART_METRICS, Unavailable(reason))


def _reason_of(outcome: Outcome) -> str:
    """Why an outcome holds no log."""
    if outcome.reason:
        return f"tool_{outcome.reason}"
    if outcome.cut:
        return "tool_too_much_output"
    said = outcome.errors.decode("utf-8", errors="replace") + smartctl_complaint(outcome.output)
    for words, reason in _COMPLAINTS:
        if words in said.lower():
            return reason
    return f"tool_exit_{outcome.exit_code}" if outcome.exit_code else "tool_output_unreadable"


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return SmartCollector(settings.sys_root, settings.smart_interval_s)
