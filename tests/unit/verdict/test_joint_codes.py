"""Codes that mean something else beside others: 48 with a remap, a driver code on most GPUs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gpuwarden_kernel_log import parse_line
from gpuwarden_verdict.context import RecentEvent
from gpuwarden_verdict.detectors import detect_event
from gpuwarden_verdict.detectors.recoveries import detect_recovery
from gpuwarden_verdict.detectors.uncorrectable_remap import DETECTOR
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.judgement import DRAIN_CONFIDENCE
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, Fleet, gpu_ref, node_ref, xid_line

NODE = Fleet().context(0)  # eight GPUs


def line(code: int, gpu: int = 0, at: float = START) -> Event:
    text = xid_line(code, gpu)
    parsed = parse_line(text)
    assert parsed is not None
    return Event(
        id=f"kmsg:b:{code}:{gpu}:{at}",
        kind=EventKind.KERNEL_LOG,
        observed_at=at,
        family=parsed.family.value,
        xid=code,
        pci_bus_id=parsed.pci_bus_id,
        text=text,
    )


def unproven(event: Event) -> Event:
    return msgspec.structs.replace(event, attributes={"unproven": True})


def past(event: Event, gpu: int = 0) -> RecentEvent:
    return RecentEvent(event, gpu_ref(0, gpu))


def said(event: Event, *recent: RecentEvent) -> list[Signal]:
    return detect_event(event, gpu_ref(0, 0), replace(NODE, recent=recent))


@pytest.mark.parametrize(("first", "second"), [(63, 48), (48, 63), (64, 48), (48, 64)])
def test_48_and_a_remap_ask_for_a_drain_whichever_comes_first(first: int, second: int) -> None:
    """NVIDIA's WORKFLOW_XID_48; the driver tells 48 first, then what became of the row."""
    (alone,) = said(line(second))
    assert alone.max_rung < Rung.DRAIN
    _, both = said(line(second), past(line(first)))
    assert (both.detector, both.max_rung, both.action) == (DETECTOR, Rung.DRAIN, "reset_gpu")
    assert both.score >= DRAIN_CONFIDENCE
    assert not both.acts_alone
    assert f"XID {({first, second} - {48}).pop()}" in both.sentence


def test_48_and_a_remap_far_from_each_other_or_of_doubtful_origin_do_not() -> None:
    for other in (
        past(line(63, at=START - 31)),
        past(line(63), gpu=1),
        past(unproven(line(63))),
        past(line(48)),
    ):
        assert len(said(line(48), other)) == 1
    assert len(said(unproven(line(48)), past(line(63)))) == 1


def test_a_clean_reading_of_the_remap_ends_what_both_said() -> None:
    for trouble in ("row_remap_pending", "recovery_action"):
        check = Event(
            id="p",
            kind=EventKind.CHECK_PASSED,
            observed_at=START,
            entity_kind=EntityKind.GPU,
            attributes={"after": [trouble]},
        )
        (recovery,) = detect_recovery(check, gpu_ref(0, 0), NODE, in_repair=False)
        assert {"xid:48", DETECTOR} <= recovery.detectors


@pytest.mark.parametrize(
    ("code", "told", "wide"),
    [
        (119, 8, True),
        (119, 5, True),
        (119, 4, False),
        (46, 8, True),
        (62, 8, True),
        (79, 8, False),  # acts alone: the GPU's own
        (48, 8, False),  # of the memory
        (31, 8, False),  # a program's storm is judged elsewhere
    ],
)
def test_a_driver_code_on_most_gpus_speaks_of_the_node(code: int, told: int, wide: bool) -> None:
    others = [past(line(code, gpu), gpu) for gpu in range(1, told)]
    of_node = [one for one in said(line(code), *others) if one.entity == node_ref(0)]
    assert len(of_node) == wide
    for signal in of_node:
        assert (signal.detector, signal.max_rung) == (f"driver_wide:xid:{code}", Rung.SUSPECT)
        assert f"on {told} of 8 GPUs" in signal.sentence


def test_the_same_gpu_often_or_long_ago_is_not_most_gpus() -> None:
    assert len(said(line(119), *(past(line(119, at=START - n)) for n in range(9)))) == 1
    ago = [past(line(119, gpu, at=START - 31), gpu) for gpu in range(1, 8)]
    assert len(said(line(119), *ago)) == 1


def test_lines_that_a_program_may_have_written_acquit_no_gpu() -> None:
    written = [past(unproven(line(119, gpu)), gpu) for gpu in range(1, 8)]
    assert len(said(line(119), *written)) == 1
