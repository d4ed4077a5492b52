"""Maintenance: the agent lets go of every device, so that a driver can be unloaded or a GPU reset.

The order is a small file in the run folder; beside it the agent says what it still holds. Both
outlast a restart of the agent and neither outlasts a boot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from gpuwarden_agent.collectors.contract import Conditions
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.run_files import may_be_obeyed, uptime_s, write_whole

_log = get_logger("maintenance")

LONGEST_S = 86_400.0
_SOURCE = "maintenance"
_LOOK_EVERY_S = 0.2
_HEALTH_EVERY_S = 10.0


class OrderUnusable(Exception):
    """There is an order that must not be obeyed; the message says why and names the mend.

    Attributes:
        reason: Short stable phrase.
    """

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(mend)
        self.reason = reason


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Let go of all devices.

    Attributes:
        boot_id: Boot it was given in; it is void in any other.
        since: Epoch seconds.
        until_s: Seconds of CLOCK_BOOTTIME when it is over: the wall clock may be set meanwhile.
        reason: The operator's words.
    """

    boot_id: str
    since: float
    until_s: float
    reason: str = ""


class AgentNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the running agent says of itself, for commands on this node.

    Attributes:
        pid: Its process.
        started_ticks: Start time of that process (proc(5), field 22): tells it from a later one.
        released: All devices are let go of.
        held: What it still holds, in words.
        troubles: (source, reason) of its own parts that do not work.
        driver: Which driver call hangs, "" while none does.
    """

    pid: int
    started_ticks: int
    released: bool = False
    held: tuple[str, ...] = ()
    troubles: tuple[tuple[str, str], ...] = ()
    driver: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether that very process still runs."""
        return started_ticks(self.pid) == self.started_ticks


class RunFolder:
    """The files `maintenance.json` (the order) and `agent.json` (the agent's note)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._order = folder / "maintenance.json"
        self._order_name = str(self._order)
        self._note = folder / "agent.json"

    def order(self, boot_id: str) -> Order | None:
        """The order in force, None where there is none or it is over.

        Raises:
            OrderUnusable: It cannot be read, or others could have written it.
        """
        try:
            facts = os.stat(self._order_name)  # noqa: PTH116 - all the time; Path costs thrice
            text = self._order.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OrderUnusable(
                "order_not_readable", f"{self._order}: {error.strerror}."
            ) from error
        if not may_be_obeyed(facts):
            raise OrderUnusable("order_not_trusted", f"Others may write it: rm {self._order}")
        try:
            order = msgspec.json.decode(text, type=Order)
        except msgspec.DecodeError as error:
            mend = f"{error}: rm {self._order}"
            raise OrderUnusable("order_not_readable", mend) from error
        left_s = order.until_s - uptime_s()
        return order if order.boot_id == boot_id and 0 < left_s <= LONGEST_S else None

    def give(self, order: Order) -> None:
        """Put an order in force.

        Raises:
            OSError: The folder does not take it.
        """
        write_whole(self._order, msgspec.json.encode(order))

    def end(self) -> bool:
        """End the order; False where there was none.

        Raises:
            OSError: The folder does not let it.
        """
        try:
            self._order.unlink()
        except FileNotFoundError:
            return False
        return True

    def note(self) -> AgentNote | None:
        """The note of an agent that runs, None where none does."""
        try:
            found = msgspec.json.decode(self._note.read_bytes(), type=AgentNote)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.is_alive else None

    def say(self, note: AgentNote) -> None:
        """Tell commands; a folder that does not take it only leaves them without an answer."""
        with suppress(OSError):
            write_whole(self._note, msgspec.json.encode(note))

    def fall_silent(self) -> None:
        """The agent ends."""
        with suppress(OSError):
            self._note.unlink()


class DeviceUsers(Protocol):
    """All that may hold a device."""

    def pause(self) -> None:
        """Make no further call and release every handle, each as soon as its call has ended."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...

    def held(self) -> list[str]:
        """What is not released yet, in words."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """What a running agent tells commands on its node; see `AgentNote`."""

    troubles: tuple[tuple[str, str], ...] = ()
    driver: str = ""


class MaintenanceKeeper:
    """Obeys orders; `look` is called all the time and does not block."""

    def __init__(
        self,
        folder: RunFolder,
        boot_id: str,
        users: DeviceUsers,
        conditions: Conditions,
        health: Callable[[], Health] = Health,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._users = users
        self._conditions = conditions
        self._health = health
        self._monotonic = monotonic
        self._look_at = 0.0
        self._health_at = 0.0
        self._known = Health()
        self._order: Order | None = None
        self._said: tuple[bool, tuple[str, ...], Health] | None = None
        self._started_ticks = started_ticks(os.getpid()) or 0

    def look(self) -> None:
        """Begin or end maintenance where the order came or went, and say how far it is."""
        now = self._monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_S
        try:
            order = self._folder.order(self._boot_id)
        except OrderUnusable as unusable:
            self._conditions.trouble(_SOURCE, unusable.reason, str(unusable), renew=True)
        else:
            self._obey(order)
        self._say()

    def close(self) -> None:
        """The agent ends; the order stays."""
        self._folder.fall_silent()

    def _obey(self, order: Order | None) -> None:
        if order is not None and self._order is None:
            _log.info("maintenance_begins", reason=order.reason)
            self._users.pause()
            over = time.time() + order.until_s - uptime_s()
            self._conditions.trouble(
                _SOURCE,
                "maintenance",
                "`gpuwarden-agent maintenance stop` ends it; it ends by itself at "
                f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(over))}. {order.reason}".strip(),
                renew=True,
            )
        elif order is None:
            if self._order is not None:
                _log.info("maintenance_ends")
                self._users.resume()
                with suppress(OSError):
                    self._folder.end()  # one that is over
            self._conditions.fine(_SOURCE)
        self._order = order

    def _say(self) -> None:
        held = tuple(self._users.held()) if self._order is not None else ()
        if (now := self._monotonic()) >= self._health_at:
            self._health_at, self._known = now + _HEALTH_EVERY_S, self._health()
        said = (self._order is not None, held, self._known)
        if said == self._said:
            return
        self._said = said
        self._folder.say(
            AgentNote(
                pid=os.getpid(),
                started_ticks=self._started_ticks,
                released=self._order is not None and not held,
                held=held,
                troubles=self._known.troubles,
                driver=self._known.driver,
            )
        )


def started_ticks(pid: int) -> int | None:
    """When a process began, clock ticks since boot; None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    # 4321 (python3) S 4320 …: the name may hold blanks and brackets, so count from its last
    # bracket; the start is field 22, and the first behind the name is field 3.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None
