"""What people cleared, over restarts: it never speaks of a fault that began later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gpuwarden_server.incidents.repository import (
    CLEARANCES_KEPT_S,
    delete_clearances,
    read_clearances,
    write_clearances,
)
from gpuwarden_server.store.base import STATE
from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_verdict.engine.book import Book, Kept
from gpuwarden_verdict.engine.domain import Outcome
from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity
from gpuwarden_verdict.incidents.behind import place_signal
from gpuwarden_verdict.incidents.clearing import GAP_S, SEEN_STEP_S, Clearance, Sieve
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START

DISK = EntityRef(EntityKind.DISK, "n1/sda", "n1")
KNOWN = Clearance(DISK, "d", Severity.ERROR, 0.9, START, START)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = writing_engine(tmp_path / "state.db", Synchronous.NORMAL)
    STATE.create_all(made)
    yield made
    made.dispose()


def reading(entity: EntityRef = DISK) -> Signal:
    return place_signal(entity, "d", FaultClass.THERMAL, "hot", {}, START)


class Server:
    """A book and its rows, from one start to the next."""

    def __init__(self, engine: Engine, now: float) -> None:
        self.engine = engine
        with engine.begin() as connection:
            self.book = Book(Kept(clearances=read_clearances(connection, now)))

    def commit(self, outcome: Outcome) -> None:
        with self.engine.begin() as connection:
            write_clearances(connection, outcome.clearances)
            delete_clearances(connection, outcome.ended_clearances)
        self.book.apply([outcome])

    def is_new(self, now: float, signal: Signal | None = None) -> bool:
        """Whether a pass at `now` takes a signal for new; what follows of that is committed."""
        sieve = Sieve(self.book.clearance_of, now)
        found = sieve.is_new(signal or reading())
        assert found is sieve.is_new(signal or reading()), "the same signal says the same"
        self.commit(Outcome(DISK, clearances=sieve.seen, ended_clearances=sieve.ended))
        return found

    def rows(self) -> int:
        with self.engine.begin() as connection:
            return len(read_clearances(connection, 0.0))


def test_a_clear_of_long_ago_does_not_come_back_with_a_restart(engine: Engine) -> None:
    Server(engine, START).commit(Outcome(DISK, clearances=(KNOWN,)))
    later = START + 20 * 86_400.0
    restarted = Server(engine, later)
    assert not restarted.book.is_cleared(DISK, "d", later)
    assert restarted.is_new(later + 1)
    assert restarted.rows() == 0
    assert Server(engine, later + 2).is_new(later + 2)


def test_what_goes_on_over_a_restart_stays_known(engine: Engine) -> None:
    first, at = Server(engine, START), START
    first.commit(Outcome(DISK, clearances=(KNOWN,)))
    for _ in range(20):
        at += SEEN_STEP_S
        assert not first.is_new(at)
    assert at > START + GAP_S
    second = Server(engine, at + SEEN_STEP_S)
    assert second.book.is_cleared(DISK, "d", at + SEEN_STEP_S)
    assert not second.is_new(at + SEEN_STEP_S)
    assert Server(engine, at + 3 * GAP_S).is_new(at + 3 * GAP_S)


def test_a_clear_that_ended_is_ended_after_a_restart_too(engine: Engine) -> None:
    first = Server(engine, START)
    first.commit(Outcome(DISK, clearances=(KNOWN,)))
    graver = replace(reading(), severity=Severity.CRITICAL)
    assert first.is_new(START + 1, graver)
    assert first.rows() == 0
    assert Server(engine, START + 2).is_new(START + 2)


def test_an_event_that_was_known_stays_known_and_what_is_old_goes(engine: Engine) -> None:
    first = Server(engine, START)
    first.commit(Outcome(DISK, clearances=(KNOWN,)))
    old = replace(reading(), event_ids=("e",), observed_at=START - 1)
    assert not Server(engine, START + 86_400.0).is_new(START + 86_400.0, old)
    late = START + CLEARANCES_KEPT_S + 1
    first.commit(Outcome(DISK, clearances=(replace(KNOWN, detector="e", at=late, seen_at=late),)))
    assert first.rows() == 1


def test_a_clear_goes_along_when_its_node_is_called_something_else() -> None:
    book = Book(Kept(clearances=(KNOWN,)))
    book.rename("n1", "n2")
    renamed = EntityRef(EntityKind.DISK, "n2/sda", "n2")
    assert book.clearance_of(DISK, "d") is None
    assert not Sieve(book.clearance_of, START + 1).is_new(reading(renamed))
