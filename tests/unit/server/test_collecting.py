"""What stays is not looked through again and again, and what dies is freed within a day."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gpuwarden_server.core.collecting import OBJECTS, WHOLE_S, GarbageTurns


@dataclass(eq=False)
class _Round:
    """Part of a circle, which only the collector can free."""

    other: list[_Round] = field(default_factory=list)


@dataclass
class _Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[_Clock]:
    thresholds = gc.get_threshold()
    gc.freeze()  # what other tests left in this process is not looked through
    clock = _Clock()
    turns = GarbageTurns(clock)
    turns.take_over()
    yield clock
    turns.give_back()
    gc.set_threshold(*thresholds)


def _circle() -> _Round:
    one, two = _Round(), _Round()
    one.other.append(two)
    two.other.append(one)
    return one


@pytest.mark.usefixtures("clock")
def test_what_died_since_the_last_full_look_is_freed_by_the_next() -> None:
    gc.collect()
    gone = weakref.ref(_circle())
    gc.collect()
    assert gone() is None
    assert gc.get_threshold()[0] == OBJECTS


def test_what_was_alive_is_left_out_until_a_day_is_over(clock: _Clock) -> None:
    kept = _circle()
    seen = weakref.ref(kept)
    gc.collect()
    del kept
    clock.now += WHOLE_S / 2
    gc.collect()
    assert seen() is not None
    clock.now += WHOLE_S / 2
    gc.collect()
    assert seen() is None
