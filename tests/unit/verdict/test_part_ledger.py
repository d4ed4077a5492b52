"""What is on record of a part: sums by age, bytes that carry it over, names that change."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.ledger import (
    KEPT_S,
    MOST_OF_A_MARK,
    SEVERE_MARKS,
    LedgerFormError,
    LedgerReading,
    Mark,
    PartLedger,
    part_name,
)
from gpuwarden_wire.metrics import EntityKind

T, DAY = 1_800_000_000.0, 86_400.0
GPU = EntityRef(EntityKind.GPU, "GPU-1", "n1")
PORT = EntityRef(EntityKind.NIC, "n1/mlx5_0/1", "n1")
NODE = EntityRef(EntityKind.NODE, "n1", "n1")


def severe(ledger: PartLedger, window_days: float, least_age_s: float = 0.0) -> float:
    counted = ledger.reading().counted(
        EntityKind.GPU, SEVERE_MARKS, T, window_days * DAY, least_age_s
    )
    return float(counted.sum())


def worn() -> PartLedger:
    ledger = PartLedger()
    for days, mark in ((0.5, Mark.MEMORY), (10, Mark.MEMORY), (90, Mark.BUS), (90, Mark.REPAIR)):
        ledger.note(part_name(GPU, "S1"), GPU, mark, T - days * DAY)
    return ledger


def test_marks_count_within_a_window_once_they_are_old_enough() -> None:
    ledger = worn()
    assert severe(ledger, 30) == 2 and severe(ledger, 180) == 3
    assert severe(ledger, 30, least_age_s=DAY) == 1, "the present case is no history"
    decayed = ledger.reading().decayed(EntityKind.GPU, [Mark.MEMORY], T, 30 * DAY)
    assert decayed == pytest.approx(np.exp(-0.5 / 30) + np.exp(-10 / 30))


def test_the_same_mark_again_is_one_and_can_be_taken_back() -> None:
    ledger = worn()
    before = ledger.version
    ledger.note(part_name(GPU, "S1"), GPU, Mark.MEMORY, T - 10 * DAY)
    assert severe(ledger, 180) == 3 and ledger.version == before
    ledger.retract(part_name(GPU, "S1"), Mark.MEMORY, T - 10 * DAY)
    assert severe(ledger, 180) == 2 and ledger.version > before


def test_a_board_is_followed_by_its_serial_and_the_next_one_starts_anew() -> None:
    ledger = worn()
    there = EntityRef(EntityKind.GPU, "GPU-1", "n9")
    ledger.note(part_name(there, "S1"), there, Mark.NVLINK, T - 2 * DAY)
    assert severe(ledger, 180) == 4
    assert ledger.marks_of(part_name(EntityRef(EntityKind.GPU, "GPU-2", "n1"), "S2")) == ()
    assert ledger.reading().keys == {EntityKind.GPU: ("GPU-1",)}


def test_an_export_gives_the_same_ledger_without_what_is_long_past() -> None:
    ledger = worn()
    ledger.note(part_name(PORT), PORT, Mark.NIC, T - 3 * DAY, 0.25)
    ledger.note(part_name(NODE), NODE, Mark.HOST, T - KEPT_S - DAY)
    again = PartLedger.imported(ledger.export(T))
    for name in (part_name(GPU, "S1"), part_name(PORT)):
        assert again.marks_of(name) == ledger.marks_of(name) != ()
    assert again.marks_of(part_name(NODE)) == ()
    assert again.export(T) == ledger.export(T)


@pytest.mark.parametrize(
    "harm",
    [
        lambda blob: b"",
        lambda blob: b"GIF89a" + blob,
        lambda blob: blob[:-3],
        lambda blob: blob[:4] + b"\xff\xff" + blob[6:],
    ],
)
def test_bytes_that_are_no_ledger_are_refused(harm: object) -> None:
    assert callable(harm)
    with pytest.raises(LedgerFormError, match="delete it"):
        PartLedger.imported(harm(worn().export(T)))


def test_a_renamed_node_keeps_what_is_on_record_of_it_and_its_ports() -> None:
    ledger = PartLedger()
    ledger.note(part_name(PORT), PORT, Mark.NIC, T)
    ledger.note(part_name(NODE), NODE, Mark.HOST, T)
    ledger.rename_node("n1", "rack7-n1")
    assert ledger.marks_of("nic:rack7-n1/mlx5_0/1") and ledger.marks_of("node:rack7-n1")
    assert ledger.reading().keys[EntityKind.NIC] == ("rack7-n1/mlx5_0/1",)


def test_a_part_that_fails_all_day_keeps_its_newest_marks() -> None:
    ledger = PartLedger()
    for minute in range(MOST_OF_A_MARK + 5):
        ledger.note("gpu:S1", GPU, Mark.BUS, T + minute * 60.0)
    kept = ledger.marks_of("gpu:S1")
    assert len(kept) == MOST_OF_A_MARK and kept[0][1] == T + 5 * 60.0


def test_nothing_on_record_counts_nothing() -> None:
    assert LedgerReading().counted(EntityKind.GPU, SEVERE_MARKS, T, DAY).size == 0
    assert PartLedger().reading().decayed(EntityKind.NODE, SEVERE_MARKS, T, DAY).size == 0
