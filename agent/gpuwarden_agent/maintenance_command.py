"""`gpuwarden-agent maintenance`: gives the order and waits until the agent has let go."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.identity import read_boot_id
from gpuwarden_agent.maintenance import (
    LONGEST_S,
    AgentNote,
    Order,
    OrderUnusable,
    RunFolder,
)
from gpuwarden_agent.run_files import uptime_s

_LOOK_EVERY_S = 0.1


class MaintenanceExit(IntEnum):
    """How the command ends."""

    DONE = 0  # all let go of, or no agent runs; with stop: it goes on
    NOT_YET = 1  # the order stands, and the agent still holds something
    FAILED = 2  # the order cannot be given


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """What was asked on the command line.

    Attributes:
        action: start, stop or show.
        for_s: Seconds after which it ends by itself.
        wait_s: Longest wait for the agent's answer.
        reason: The operator's words.
    """

    action: str
    for_s: float = 3600.0
    wait_s: float = 30.0
    reason: str = ""


def run_maintenance(settings: AgentSettings, request: MaintenanceRequest) -> MaintenanceExit:
    """Do what was asked and say on standard output how it is."""
    folder = RunFolder(settings.run_folder)
    boot_id = read_boot_id(settings.proc_root)
    try:
        match request.action:
            case "start":
                return _start(folder, boot_id, request)
            case "stop":
                return _stop(folder, request)
            case _:
                return _show(folder, boot_id)
    except OSError as error:
        _complain(
            f"{settings.run_folder}: {error.strerror}. Run it as root or as the agent's user, "
            "with the agent's GPUWARDEN_AGENT_VERDICT_FILE."
        )
    except OrderUnusable as unusable:
        _complain(f"{unusable.reason}: {unusable}")
    return MaintenanceExit.FAILED


def _start(folder: RunFolder, boot_id: str, request: MaintenanceRequest) -> MaintenanceExit:
    if not 1.0 <= request.for_s <= LONGEST_S:
        _complain(f"--for {request.for_s:g}: give seconds from 1 to {LONGEST_S:g}.")
        return MaintenanceExit.FAILED
    until_s = uptime_s() + request.for_s
    folder.give(
        Order(boot_id=boot_id, since=time.time(), until_s=until_s, reason=request.reason[:200])
    )
    note = _await(folder, request.wait_s, lambda note: note.released)
    return _say_how_far(folder, note)


def _stop(folder: RunFolder, request: MaintenanceRequest) -> MaintenanceExit:
    was_on = folder.end()
    note = _await(folder, request.wait_s, lambda note: not note.released and not note.held)
    if note is None:
        _say(_nobody(folder))
    elif note.released or note.held:
        _say(f"The order is ended; agent {note.pid} has not gone on yet.")
        return MaintenanceExit.NOT_YET
    else:
        _say(f"Agent {note.pid} {'goes on' if was_on else 'was not in maintenance'}.")
    return MaintenanceExit.DONE


def _show(folder: RunFolder, boot_id: str) -> MaintenanceExit:
    order = folder.order(boot_id)
    if order is None:
        _say("No maintenance.")
        return MaintenanceExit.DONE
    reason = f" ({order.reason})" if order.reason else ""
    _say(f"Maintenance{reason}, ends by itself in {order.until_s - uptime_s():.0f} s.")
    return _say_how_far(folder, folder.note())


def _say_how_far(folder: RunFolder, note: AgentNote | None) -> MaintenanceExit:
    if note is None:
        _say(f"{_nobody(folder)} One that starts there will hold no device until this is over.")
        return MaintenanceExit.DONE
    if note.released:
        _say(f"Agent {note.pid} holds no device.")
        return MaintenanceExit.DONE
    held = "; ".join(note.held) or "it has not answered the order yet"
    _say(f"Agent {note.pid} has not let go of everything: {held}.")
    return MaintenanceExit.NOT_YET


def _nobody(folder: RunFolder) -> str:
    return (
        f"No agent runs with its files in {folder.path}; one that was started with another "
        "GPUWARDEN_AGENT_VERDICT_FILE is not reached: --env-file names its settings."
    )


def _await(
    folder: RunFolder, wait_s: float, reached: Callable[[AgentNote], bool]
) -> AgentNote | None:
    """The agent's note as soon as it says what is wanted, else as it is in the end."""
    until = time.monotonic() + wait_s
    while (note := folder.note()) is not None and not reached(note) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    return note


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _complain(line: str) -> None:
    sys.stderr.write(f"gpuwarden-agent: {line}\n")
