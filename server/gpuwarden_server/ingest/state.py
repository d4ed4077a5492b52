"""The fleet's columnar state and the lock that its users share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import Lock

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.windows import Columns, FleetSnapshot, FleetState

WORK_S = 0.005
REST_S = 0.0025


class GiveWay:
    """Called by a thread between pieces of long work: rests now and then.

    The interpreter gives way to the event loop late and for one step at a time, so that a second's
    work in a thread is a second in which hardly a batch is taken. Batches that came meanwhile are
    taken in the rest.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._since = monotonic()

    def __call__(self) -> None:
        """Rest where the last one is WORK_S ago."""
        if self._monotonic() - self._since >= WORK_S:
            self._sleep(REST_S)
            self._since = self._monotonic()


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="state-waiter")


@dataclass(frozen=True, slots=True)
class GuardedState:
    """FleetState is not thread-safe: every use, reads and views included, holds `lock`.

    Who looks at the whole fleet takes a `snapshot` instead.

    Threads take `lock` itself and hold it as short as they can; the event loop takes it by `held`.
    """

    state: FleetState
    lock: Lock = field(default_factory=Lock)
    _waiter: ThreadPoolExecutor = field(default_factory=_one_thread)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[FleetState]:
        """Hold the lock on the event loop without ever blocking it."""
        if not self.lock.acquire(blocking=False):
            await self._wait()
        try:
            yield self.state
        finally:
            self.lock.release()

    def snapshot(self, columns: Columns) -> FleetSnapshot:
        """The fleet to be read without the lock, which is held for some columns at a time.

        Args:
            columns: What will be read, as the last snapshot knows it; a kind's are of one moment.
        """
        give_way = GiveWay()
        with self.lock:
            snapshot = self.state.snapshot(give_way)
        for kind, wanted in columns.items():
            give_way()
            with self.lock:
                snapshot.read_ahead(kind, wanted)
        return snapshot

    def note_event(self, ref: EntityRef, group: EventGroup, at: float, count: int) -> None:
        """See `FleetState.note_event`; takes the lock."""
        with self.lock:
            self.state.note_event(ref, group, at, count)

    def note_repair(self, ref: EntityRef) -> None:
        """See `FleetState.note_repair`; takes the lock."""
        with self.lock:
            self.state.note_repair(ref)

    def close(self) -> None:
        """End the waiting thread."""
        self._waiter.shutdown(wait=True)

    async def _wait(self) -> None:
        acquired = asyncio.get_running_loop().run_in_executor(self._waiter, self.lock.acquire)
        try:
            await asyncio.shield(acquired)
        except asyncio.CancelledError:
            # The thread gets the lock later, and nobody would be there to give it back.
            acquired.add_done_callback(lambda _: self.lock.release())
            raise
