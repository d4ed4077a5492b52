"""What the agent knows of NVML: settings, the probe's contract, and the states it can be in.

NVML is called in a child process (`nvml_child`), because a driver that hangs leaves the caller in
an uninterruptible sleep: a thread could not be cancelled and would take the agent along. The parent
side is `nvml_process.NvmlProbeProcess`; nothing here imports pynvml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gpuwarden_agent.sources.nvml_frames import Answer, Watch, Xid


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """Settings of everything that reads NVML.

    Attributes:
        boot_id: Kernel's boot id; part of every event id.
        library_path: libnvidia-ml.so.1 to load; None leaves the search to the dynamic linker.
        sys_root: Where sysfs is mounted.
        state_folder: Folder that outlives reboots, where the GPUs ever seen and the trouble told of
            them are remembered; None remembers in memory only.
        keeps_state: False reads what is remembered there and writes nothing.
        gpus_expected: GPUs built into this node, those bound to another driver included; None takes
            the most ever seen.
        interval_s: Seconds between polls.
        fast_interval_s: Seconds between looks at what announces a fault; 0 for none.
        gpm_interval_s: Seconds between two GPM samples of a GPU; 0 for none.
        call_deadline_s: Seconds that one poll of all GPUs may take before its readings count as
            stale. A poll of 8 GPUs takes tens of milliseconds; 10 s is the cycle limit that
            nvidia_gpu_exporter settled on.
        stuck_after_s: Seconds after which a call in flight is a driver that is stuck. Slow calls of
            a loaded driver end within seconds (nvmlInit under 200 concurrent clients: 12 s); a
            driver that hangs does not come back, so 30 s parts the two with room on both sides.
        restart_after_s: First pause before a child that ended is started again; doubles up to
            `restart_at_most_s`.
        restart_at_most_s: Longest pause between two starts.
        renew_after_s: Seconds that a GPU must have been lost before the child is ended and started
            anew to see whether a reset brought it back (NVML keeps a lost GPU's handle lost until
            the library is initialised again); doubles up to an hour while the loss lasts.
    """

    boot_id: str
    library_path: Path | None = None
    sys_root: Path = Path("/sys")
    state_folder: Path | None = None
    keeps_state: bool = True
    gpus_expected: int | None = None
    interval_s: float = 5.0
    fast_interval_s: float = 0.0
    gpm_interval_s: float = 0.0
    call_deadline_s: float = 10.0
    stuck_after_s: float = 30.0
    restart_after_s: float = 1.0
    restart_at_most_s: float = 60.0
    renew_after_s: float = 60.0


class ProbeState(StrEnum):
    """State of the child process and of the driver behind it."""

    STARTING = "starting"  # alive, NVML not initialised yet
    READY = "ready"  # initialised, no poll outstanding
    BUSY = "busy"  # a poll is outstanding
    STUCK = "stuck"  # a call has been in flight for longer than stuck_after_s
    STOPPED = "stopped"  # alive, does not answer, and no call is to blame (SIGSTOP, starved)
    EXITED = "exited"  # ended; started again after a pause
    UNAVAILABLE = "unavailable"  # NVML said no: no library, no driver
    CLOSED = "closed"  # close() was called


@dataclass(frozen=True, slots=True)
class ProbeCondition:
    """The probe's state and what stands behind it.

    Attributes:
        state: State.
        call: NVML function in flight, "" between calls.
        gpu_uuid: GPU that the call is about, "" where it is about none.
        call_age_s: Seconds since the call began, 0 between calls.
        call_number: Number of the call within this child; tells one hang from the next.
        reason: For UNAVAILABLE, STOPPED and EXITED: short stable phrase.
        mend: What the operator can do about it.
    """

    state: ProbeState
    call: str = ""
    gpu_uuid: str = ""
    call_age_s: float = 0.0
    call_number: int = 0
    reason: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll brought.

    Attributes:
        condition: The probe's condition at the end of the poll.
        answer: Readings of all GPUs, None where the child did not answer within the deadline.
    """

    condition: ProbeCondition
    answer: Answer | None = field(default=None)


GpuProcesses = Mapping[str, tuple[int, ...] | None]
"""Ids of the processes that compute on a GPU by its UUID, None where it does not answer now."""


class NvmlProbe(Protocol):
    """Reads GPUs without ever blocking for longer than the deadline, whatever the driver does."""

    def poll(self) -> Poll:
        """Read all GPUs once; returns within `call_deadline_s`. Starts the child where needed."""
        ...

    def condition(self) -> ProbeCondition:
        """The present condition; does not wait."""
        ...

    def stuck_call(self) -> str:
        """The driver call that hangs, "" while none does; does not wait."""
        ...

    def next_xid(self, timeout_s: float) -> Xid | None:
        """The next XID event, None where none came within `timeout_s` seconds.

        None before that where there is something else to look at: `watch`, or we were woken.
        """
        ...

    def on_change(self, hurry: Callable[[], None]) -> None:
        """Call `hurry` from now on, from a thread of ours, where a poll is worth making at once."""
        ...

    def wake(self) -> None:
        """Let `next_xid` return at once."""
        ...

    def watch(self) -> Watch | None:
        """How far XID events are watched; None before the child said so."""
        ...

    def processes(self) -> GpuProcesses | None:
        """Processes by GPU as last read; another object where they were read again.

        None before the first GPU said.
        """
        ...

    def renew(self) -> None:
        """End the child between calls and start a new one: NVML is initialised afresh."""
        ...

    def close(self) -> None:
        """Ask the child to end. A child inside a call is left alone; it ends when the call does.

        A later poll starts a new child, once the old one has ended.
        """
        ...

    def held(self) -> str:
        """The child that has not ended yet, in words; "" where there is none."""
        ...
