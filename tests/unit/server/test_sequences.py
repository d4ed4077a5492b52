from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_verdict.engine.sequences import (
    HOLE_GRACE_S,
    MAX_DIGESTS,
    MAX_HOLES,
    Arrival,
    SequenceLedger,
    subtract,
)


def filled(*seqs: int, now: float = 0.0) -> SequenceLedger:
    ledger = SequenceLedger()
    for seq in seqs:
        ledger.apply(seq, seq, now)
    return ledger


def test_in_order_everything_is_new_once() -> None:
    ledger = filled(1, 2, 3)
    assert ledger.applied_seq == 3
    assert ledger.holes == []
    assert [ledger.judge(seq, seq) for seq in (2, 3, 4)] == [
        Arrival.REPLAY,
        Arrival.REPLAY,
        Arrival.NEW,
    ]


def test_other_content_is_a_conflict_and_a_forgotten_one_a_replay() -> None:
    ledger = filled(*range(1, 200))
    ledger.durable_seq = 199
    ledger.apply(200, 200, 0.0)
    assert ledger.judge(200, 7) is Arrival.CONFLICT
    assert ledger.judge(3, 7) is Arrival.REPLAY


def test_a_hole_is_filled_in_any_order() -> None:
    ledger = SequenceLedger()
    assert ledger.apply(1, 1, 0.0) == 0
    assert ledger.apply(6, 6, 0.0) == 4
    assert ledger.ceiling(1.0) == 1
    for seq in (4, 2, 3, 5):
        assert ledger.judge(seq, seq) is Arrival.NEW
        ledger.apply(seq, seq, 1.0)
        assert ledger.judge(seq, seq) is Arrival.REPLAY
    assert ledger.ceiling(1.0) == 6


def test_a_hole_that_nothing_fills_stops_holding_back_but_stays_open() -> None:
    ledger = filled(1, 4)
    assert ledger.ceiling(HOLE_GRACE_S - 1) == 1
    assert ledger.ceiling(HOLE_GRACE_S) == 4
    assert ledger.judge(3, 3) is Arrival.NEW


def test_what_was_declared_is_no_gap_whenever_it_was_declared() -> None:
    before = SequenceLedger()
    assert before.declare(1, 3, 0.0) == 3
    assert before.declare(1, 3, 0.0) == 0  # agents repeat it until it is acknowledged
    assert before.apply(4, 4, 0.0) == 0
    after = filled(1, 4)
    assert after.declare(2, 3, 0.0) == 2
    assert after.declare(2, 3, 0.0) == 0
    assert (before.ceiling(0.0), after.ceiling(0.0)) == (4, 4)


def test_a_ledger_survives_its_json_form() -> None:
    ledger = filled(1, 2, 5)
    ledger.declare(8, 9, 0.0)
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=SequenceLedger) == ledger


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(0, 2**40))
def test_each_sequence_is_new_exactly_once_and_the_ceiling_never_covers_a_young_hole(
    arrivals: list[int], far: int
) -> None:
    ledger = SequenceLedger()
    applied: set[int] = set()
    for seq in [*arrivals, 41 + far]:
        arrival = ledger.judge(seq, seq)
        assert (arrival is Arrival.NEW) == (seq not in applied)
        if arrival is Arrival.NEW:
            ledger.apply(seq, seq, 0.0)
            applied.add(seq)
        ceiling = ledger.ceiling(0.0)
        assert set(range(1, min(ceiling, 41) + 1)) <= applied
        assert ledger.applied_seq == max(applied)


@given(st.sets(st.integers(1, 10**6), min_size=300, max_size=700))
def test_memory_stays_bounded_whatever_comes(seqs: set[int]) -> None:
    ledger = filled(*sorted(seqs))
    assert len(ledger.holes) <= MAX_HOLES
    assert len(ledger.digests) <= MAX_DIGESTS


Ranges = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=6)


@given(Ranges, Ranges)
def test_subtract_equals_the_difference_of_sets(
    parts: list[tuple[int, int]], taken: list[tuple[int, int]]
) -> None:
    def members(ranges: list[tuple[int, int]]) -> set[int]:
        return {n for first, last in ranges for n in range(first, last + 1)}

    assert members(subtract(parts, taken)) == members(parts) - members(taken)
