from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuwarden_agent.crew import PATIENCE_S, Crew
from tests.fakes.clock import StillClock
from tests.fakes.waiting import wait_for


class Worker:
    """Due again and again, and does as it is told."""

    def __init__(
        self, name: str, told: list[str], act: Callable[[], object] = lambda: None
    ) -> None:
        self.name = name
        self.due = 0.0
        self.threads: list[int] = []
        self._told = told
        self._act = act

    def take(self) -> None:
        self.threads.append(threading.get_ident())
        self._told.append(self.name)
        self.due = float("inf")
        self._act()


@contextmanager
def begun(crew: Crew) -> Iterator[Crew]:
    crew.start()
    try:
        yield crew
    finally:
        crew.end()
        assert crew.await_idle(5.0)


def test_those_who_are_due_together_take_turns_in_order_on_one_thread() -> None:
    told: list[str] = []
    workers = [Worker(name, told) for name in "abc"]
    with begun(Crew(workers)) as crew:
        wait_for(lambda: told == ["a", "b", "c"])
        for one in workers[1:]:
            one.due = 0.0
        crew.wake()
        wait_for(lambda: told == ["a", "b", "c", "b", "c"])
    assert len({thread for one in workers for thread in one.threads}) == 1


def test_one_who_hangs_is_left_alone_and_the_others_go_on_without_him() -> None:
    told: list[str] = []
    free = threading.Event()
    clock = StillClock()
    first, hangs, last = (
        Worker("first", told),
        Worker("hangs", told, lambda: free.wait(30)),
        Worker("last", told),
    )
    with begun(Crew([first, hangs, last], clock.monotonic)) as crew:
        wait_for(lambda: told == ["first", "hangs"])
        assert crew.part() is None, "he was given no time"
        clock.ahead += PATIENCE_S + 1.0  # past it, however the sum is rounded
        others = crew.part()
        assert others is not None
        with begun(others):
            wait_for(lambda: told == ["first", "hangs", "last"])
            assert crew.is_busy(hangs)
            assert crew.part() is None, "nobody waits for him any more"
            free.set()
            first.due = hangs.due = 0.0
            crew.wake()
            others.wake()
            wait_for(lambda: told.count("first") == told.count("hangs") == 2)
    assert len(set(hangs.threads)) == 1
    assert not {*first.threads[1:], *last.threads} & set(hangs.threads)


def test_one_who_takes_long_while_nobody_waits_is_no_trouble() -> None:
    told: list[str] = []
    free = threading.Event()
    clock = StillClock()
    other, slow = Worker("other", told), Worker("slow", told, lambda: free.wait(30))
    with begun(Crew([other, slow], clock.monotonic)) as crew:
        wait_for(lambda: crew.is_busy(slow))
        clock.ahead += 10 * PATIENCE_S
        assert crew.part() is None
        free.set()


def test_at_the_end_nobody_gets_a_further_turn() -> None:
    told: list[str] = []
    free = threading.Event()
    first, second = Worker("first", told, lambda: free.wait(30)), Worker("second", told)
    crew = Crew([first, second])
    crew.start()
    wait_for(lambda: crew.is_busy(first))
    crew.end()
    assert not crew.await_idle(0.01)
    free.set()
    assert crew.await_idle(5.0)
    wait_for(lambda: not crew.lives)
    assert told == ["first"]
