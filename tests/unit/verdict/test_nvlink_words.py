"""The words of NVLink lines: registers of XID 74, and whose fault a row of 144-150 may be."""

from __future__ import annotations

import pytest

from gpuwarden_kernel_log import (
    NvLinkFault,
    nvlink4_fault,
    parse_nvlink4_words,
    parse_nvlink5_words,
    parse_sm_place,
)
from gpuwarden_verdict.detectors import detect_event
from gpuwarden_verdict.entities import FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Signal
from tests.builders.verdict import Fleet, gpu_ref, xid_line

LINK = "pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6({})"


def said(code: int, rest: str, *before: tuple[int, int, str]) -> Signal:
    """What is said of a line on GPU 0, after others: (code, gpu, rest)."""
    fleet = Fleet()
    for other, gpu, text in before:
        fleet.line(0, xid_line(other, gpu, text))
    context = fleet.context(0)
    event = fleet.line(0, xid_line(code, 0, rest))
    (signal,) = [
        one for one in detect_event(event, gpu_ref(0, 0), context) if one.detector == f"xid:{code}"
    ]
    return signal


@pytest.mark.parametrize(
    ("registers", "fault"),
    [
        ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.MECHANICAL),
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.ECC_PARITY),
        ("0x600000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.SIGNAL),
        ("0x40000001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.IGNORED),
        ("0x100002, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.SYMPATHETIC),
        ("0x8000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.REPORT),
        ("0x4, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", NvLinkFault.REPORT),  # not in the table
        ("0x0, 0xffffffff, 0x0, 0x0, 0x0, 0x0, 0x0", None),  # the second does not count
        ("0x0, 0x0, 0x40, 0x0, 0x0, 0x0, 0x0", NvLinkFault.ECC_PARITY),
        ("0x0, 0x0, 0x2000, 0x0, 0x0, 0x0, 0x0", NvLinkFault.REPORT),
        ("0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0", NvLinkFault.SYMPATHETIC_FABRIC),
        ("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0", NvLinkFault.ECC_THRESHOLD),
        ("0x0, 0x0, 0x0, 0x0, 0x140000, 0x0, 0x0", NvLinkFault.ECC_PARITY),
        ("0x2, 0x0", NvLinkFault.SYMPATHETIC),  # cut short
    ],
)
def test_registers_of_74_by_nvidias_table(registers: str, fault: NvLinkFault | None) -> None:
    words = parse_nvlink4_words(LINK.format(registers))
    assert words is not None
    assert words.link == 6
    assert nvlink4_fault(words) is fault


@pytest.mark.parametrize(
    "text", ["", "74, Channel 0x23, MMU Fault: faulted @ 0x7fc123456000", "link 6(", "link 6(0x)"]
)
def test_lines_of_74_without_registers(text: str) -> None:
    assert parse_nvlink4_words(text) is None


@pytest.mark.parametrize(
    ("registers", "action", "severity", "rung"),
    [
        ("0x10000, 0x0", "check_cable", Severity.ERROR, Rung.EXCLUDE),
        ("0x10, 0x0", "reset_gpu", Severity.ERROR, Rung.EXCLUDE),
        ("0x1, 0x0", "none", Severity.WARNING, Rung.SUSPECT),
        ("0x2, 0x0", "investigate", Severity.ERROR, Rung.SUSPECT),
    ],
)
def test_74_weighs_by_its_registers_and_alone_is_a_suspect(
    registers: str, action: str, severity: Severity, rung: Rung
) -> None:
    signal = said(74, LINK.format(registers))
    assert (signal.action, signal.severity, signal.max_rung) == (action, severity, rung)
    assert signal.score < 0.8
    assert not signal.echo


def test_74_that_is_secondary_by_its_registers_follows_what_is_told_beside_it() -> None:
    secondary = LINK.format("0x2, 0x0")
    assert said(74, secondary, (79, 3, "GPU has fallen off the bus.")).echo
    assert not said(74, secondary, (45, 3, "pid=1, Ch 1"), (31, 2, "pid=1, Ch 1")).echo
    assert not said(74, LINK.format("0x10, 0x0"), (79, 3, "GPU has fallen off the bus.")).echo


def down(reason: int) -> str:
    """A link-down event of XID 149 with one of NVIDIA's reasons, in the layout before R575."""
    return f"NETIR_LINK_EVT Fatal XC0 i0 Link 10 (0x{0x1C6 | reason << 20:08x} 0x0 0x0 0x0 0x0 0x0)"


@pytest.mark.parametrize("reason", [0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25])
def test_what_the_far_end_did_is_not_this_gpus_fault(reason: int) -> None:
    signal = said(149, down(reason))
    assert signal.max_rung is Rung.SUSPECT
    assert signal.score < 0.8
    assert "far end" in signal.sentence


@pytest.mark.parametrize("reason", [0x0F, 0x11, 0x16])
def test_what_software_or_a_person_did_is_the_operators(reason: int) -> None:
    signal = said(149, down(reason))
    assert (signal.fault_class, signal.max_rung) == (FaultClass.OPERATOR, Rung.SUSPECT)


@pytest.mark.parametrize("reason", [0x02, 0x04, 0x0A, 0x2A, 0x2B])
def test_a_link_that_fell_by_itself_asks_for_the_reset_and_a_look_at_the_cable(reason: int) -> None:
    signal = said(149, down(reason))
    assert (signal.action, signal.max_rung) == ("reset_gpu", Rung.EXCLUDE)
    assert signal.severity is Severity.CRITICAL
    assert "cable" in signal.sentence


def test_a_bit_error_event_is_ignored_by_nvidia_and_still_means_the_cable() -> None:
    signal = said(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 10 (0x00000226 0x1 0x0 0x0 0x0 0x0)")
    assert (signal.severity, signal.action) == (Severity.WARNING, "check_cable")
    assert 0.3 <= signal.score < 0.8
    assert signal.max_rung is Rung.SUSPECT


FLOW = "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000004 0x0 0x0 0x0 0x0)"


def test_a_remap_error_follows_from_a_link_that_fell_within_thirty_seconds() -> None:
    """CHECK_NVLINK_FAILURE_FLOW: then it can be ignored, else it is to be reported."""
    assert said(145, FLOW, (149, 5, down(0x20))).echo
    alone = said(145, FLOW)
    assert not alone.echo
    assert "report it" in alone.sentence
    assert not said(145, FLOW, (149, 5, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 1 (0x226 0x1)")).echo


def test_an_injected_error_is_a_test_and_blames_nobody() -> None:
    reset = "RLW_REMAP Fatal XC1 i{} Link 10 (0x00000082 0x00000040 0x0 0x0 0x0 0x0)"
    assert said(145, reset.format(0)).acts_alone
    injected = said(145, reset.format(1))
    assert (injected.fault_class, injected.severity) == (FaultClass.OPERATOR, Severity.WARNING)
    assert not injected.acts_alone
    assert injected.score < 0.3
    padded = parse_nvlink5_words("145, RLW_CTRL Nonfatal XC 01 i 01 Link 10 (0x62 0x80000000)")
    assert padded is not None and padded.injected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Graphics SM Warp Exception on (GPC 7, TPC 4, SM 1): Illegal Instruction", (7, 4, 1)),
        ("Graphics SM Global Exception on (GPC 0, TPC 1): Physical Multiple", (0, 1, None)),
    ],
)
def test_the_place_on_the_chip(text: str, place: tuple[int, int, int | None]) -> None:
    found = parse_sm_place(text)
    assert found is not None
    assert (found.gpc, found.tpc, found.sm) == place


@pytest.mark.parametrize("text", ["Graphics Exception: ESR 0x504648=0x1000e", "(GPC x, TPC 1)", ""])
def test_lines_of_13_without_a_place(text: str) -> None:
    assert parse_sm_place(text) is None
