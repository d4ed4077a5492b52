"""A follower of the kernel log that runs, and what it stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuwarden_agent.collectors.kernel_log import KernelLogFollower, Position
from gpuwarden_wire.events import Event
from tests.builders.agent import BOOT
from tests.fakes.waiting import wait_for

STARTED = 1_700_000_000.0
BOOTED = STARTED - 3600.0


class Positions:
    """A position store that keeps everything, and can lose what a crash would."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.events: list[Event] = []

    def load_position(self, follower: str) -> bytes | None:
        return self.content

    def commit_position(self, follower: str, position: bytes, events: Sequence[Event]) -> None:
        self.content = position
        self.events += events


class Running:
    """A follower in a thread."""

    def __init__(self, path: Path, positions: Positions, boot_id: str = BOOT) -> None:
        self.positions = positions
        self.emitted: list[Event] = []
        self._stop = threading.Event()
        self.follower = KernelLogFollower(
            path,
            path.parent / "sys",
            boot_id,
            STARTED,
            positions,
            1_000_000,
            booted_at=BOOTED,
        )
        self._thread = threading.Thread(
            target=self.follower.follow, args=(self.emitted.extend, self._stop), daemon=True
        )

    def __enter__(self) -> Running:
        self._thread.start()
        wait_for(lambda: self.positions.content)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.follower.wake()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def all(self) -> list[Event]:
        return [*self.emitted, *self.positions.events]

    def until(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        wait_for(lambda: enough(self.positions.events), what=str(self.positions.events)[-500:])
        return self.positions.events

    def pending(self) -> int:
        """Lines that were counted and have not gone out."""
        return sum(event.count for event in position_of(self.positions).pending)


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(line + "\n" for line in lines))


def position_of(positions: Positions) -> Position:
    """The position that was stored last."""
    return msgspec.json.decode(positions.content or b"", type=Position)
