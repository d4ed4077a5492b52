from __future__ import annotations

import pytest

from gpuwarden_kernel_log import (
    Family,
    FaultClass,
    LineContext,
    Severity,
    parse_events,
    parse_line,
    xid_entry,
)

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, name=trainer, GPU has fallen off the bus."


def test_a_lost_gpu_says_who_what_and_where() -> None:
    event = parse_line(LOST)
    assert event is not None
    assert (event.family, event.xid, event.pci_bus_id) == (Family.XID, 79, "0000:3b:00.0")
    assert (event.pid, event.process) == (812, "trainer")
    assert (event.severity, event.action) == (Severity.CRITICAL, "RESTART_BM")
    assert event.fault_class is FaultClass.BUS
    assert event.acts_alone and not event.echo and not event.application_possible
    assert event.text == LOST


@pytest.mark.parametrize(
    ("address", "canonical"),
    [
        ("PCI:0000:3B:00", "0000:3b:00.0"),
        ("PCI:0000:3b:00.0", "0000:3b:00.0"),
        ("PCI:00000000:3b:00.0", "0000:3b:00.0"),
        ("PCI:00000008:06:00", "0008:06:00.0"),
        ("0000:3b:00", "0000:3b:00.0"),
        ("PCI:0000:90:1c", "0000:90:1c.0"),
        ("PCI:0000:05:00 GPU-I:05", "0000:05:00.0"),
        ("PCI:10000:e1:00.0", "10000:e1:00.0"),
    ],
)
def test_addresses_have_one_spelling(address: str, canonical: str) -> None:
    event = parse_line(f"NVRM: Xid ({address}): 31, pid=1, name=x, Ch 00000008")
    assert event is not None and event.pci_bus_id == canonical


@pytest.mark.parametrize(
    ("text", "pid", "process"),
    [
        ("pid='<unknown>', name=<unknown>, Ch 1", None, None),
        ("pid=<unknown>, name=<unknown>, Ch 1", None, None),
        ("pid=3849, name=KMS thread, Timeout", 3849, "KMS thread"),
        ("pid=1896, Row Remapper", 1896, None),
        ("Ch 00000008", None, None),
    ],
)
def test_process_is_read_or_absent(text: str, pid: int | None, process: str | None) -> None:
    event = parse_line(f"NVRM: Xid (PCI:0000:3b:00): 31, {text}")
    assert event is not None and (event.pid, event.process) == (pid, process)


@pytest.mark.parametrize("code", [79, 64, 95, 140])
def test_a_broken_part_acts_alone(code: int) -> None:
    event = parse_line(f"NVRM: Xid (PCI:0000:3b:00): {code}, something")
    assert event is not None and event.acts_alone


@pytest.mark.parametrize("code", [13, 31, 43, 45, 48, 63, 74, 94, 109, 119, 137, 171, 172, 155])
def test_echoes_applications_and_links_never_act_alone(code: int) -> None:
    event = parse_line(f"NVRM: Xid (PCI:0000:3b:00): {code}, something")
    assert event is not None and not event.acts_alone


def test_an_unknown_code_is_a_warning_without_action() -> None:
    event = parse_line("NVRM: Xid (PCI:0000:3b:00): 999, novelty")
    assert event is not None
    assert (event.severity, event.action, event.acts_alone) == (Severity.WARNING, None, False)


@pytest.mark.parametrize(
    ("text", "action", "severity", "alone"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", "RESET_GPU", "critical", True),
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", "RESTART_BM", "critical", True),
        ("from 0x0 (None) to 0x2 (OS Reboot)", "RESTART_BM", "critical", True),
        ("from 0x0 (None) to 0x3 (Drain P2P)", "DRAIN_P2P", "error", True),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", "DRAIN_AND_RESET", "critical", True),
        ("from 0x1 (GPU Reset Required) to 0x0 (None)", "NONE", "info", False),
        ("from 0x0 (None) to 0x1", "RESET_GPU", "critical", True),
        ("from 0x0 (None) to 0x9 (Something New)", None, "warning", False),
        ("", None, "warning", False),
    ],
)
def test_154_states_what_its_text_says(
    text: str, action: str | None, severity: str, alone: bool
) -> None:
    event = parse_line(f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed {text}")
    assert event is not None
    assert (event.action, event.severity.value, event.acts_alone) == (action, severity, alone)
    assert event.fault_class is FaultClass.UNKNOWN


@pytest.mark.parametrize(
    ("words", "action", "severity", "alone"),
    [
        # a broken cell in this GPU's link unit
        (
            "145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 0x0)",
            "RESET_GPU",
            "critical",
            True,
        ),
        # the same under the layout before R575
        (
            "145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 0x0)",
            "RESET_GPU",
            "critical",
            True,
        ),
        # a link that went down: the far end may be to blame
        (
            "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x0)",
            "RESET_GPU",
            "critical",
            False,
        ),
        (
            "145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 00 (0x00000007 0x00000004 0x0)",
            "XID_154_EVAL",
            "error",
            False,
        ),
        (
            "145, RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000 0x0)",
            "IGNORE",
            "warning",
            False,
        ),
        # cut short, or a bit that the sheet does not know
        ("145, RLW_REMAP Fatal XC1 i0 Link 10", "WORKFLOW_NVLINK5_ERR", "error", False),
        (
            "145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x40000000 0x0)",
            "WORKFLOW_NVLINK5_ERR",
            "error",
            False,
        ),
    ],
)
def test_nvlink5_lines_are_decoded_where_the_words_allow(
    words: str, action: str, severity: str, alone: bool
) -> None:
    event = parse_line(f"NVRM: Xid (PCI:0000:3b:00): {words}")
    assert event is not None
    assert (event.action, event.severity.value, event.acts_alone) == (action, severity, alone)


def test_the_driver_version_picks_the_layout() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040)"
    old = parse_line(line, LineContext(driver_version="570.124.06"))
    new = parse_line(line, LineContext(driver_version="580.65.06"))
    assert old is not None and old.action == "RESET_GPU"
    assert new is not None and new.action == "WORKFLOW_NVLINK5_ERR"


def test_glued_messages_are_both_found() -> None:
    line = (
        f"[  100.000001] {LOST}[  100.000002] NVRM: Xid (PCI:0000:3c:00): 45, pid=9, name=y, Ch 1"
    )
    first, second = parse_events(line)
    assert (first.xid, first.uptime_s, first.text) == (79, 100.000001, LOST)
    assert (second.xid, second.uptime_s, second.pci_bus_id) == (45, 100.000002, "0000:3c:00.0")
    assert parse_line(line) == first


def test_a_line_that_a_program_wrote_never_acts_alone() -> None:
    by_kernel = parse_line(f"Jan 21 04:41:44 node7 kernel: {LOST}")
    assert by_kernel is not None and by_kernel.acts_alone
    for writer in ("node7 trainer[812]: ", "node7 trainer: ", "node7 trainer: [   12.345678] "):
        by_program = parse_line(f"Jan 21 04:41:44 {writer}{LOST}")
        assert by_program is not None and by_program.xid == 79 and not by_program.acts_alone


def test_prose_about_xids_is_not_an_event() -> None:
    assert parse_line('The Xid 79 indicates that "GPU has fallen off the bus".') is None
    assert parse_line('explicit "NVRM: Xid (...)" text.') is None


def test_severity_and_application_come_from_the_catalogue() -> None:
    for code in (13, 31, 48, 63, 92, 94, 119):
        event, entry = parse_line(f"NVRM: Xid (PCI:0000:3b:00): {code}, x"), xid_entry(code)
        assert event is not None and entry is not None
        assert event.severity is entry.severity
        assert event.action == entry.action
        assert event.application_possible is entry.application_possible


def test_sxid_words_decide_and_details_are_echoes() -> None:
    head = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): "
    fatal = parse_line(f"{head}20034, Fatal, Link 48 LTSSM Fault Up")
    mild = parse_line(f"{head}20034, Non-fatal, Link 48")
    detail = parse_line(f"{head}20034, Severity 1 Engine instance 37 Sub-engine instance 00")
    words = parse_line(f"{head}20034, Data {{0x10000000, 0x10000000}}")
    plain = parse_line(f"{head}22003, Minion Halt")
    unknown = parse_line(f"{head}77777, novelty")
    assert fatal is not None and fatal.acts_alone and fatal.severity is Severity.CRITICAL
    assert (fatal.sxid, fatal.pci_bus_id, fatal.device) == (
        20034,
        "0000:06:00.0",
        "nvidia-nvswitch1",
    )
    assert mild is not None and not mild.acts_alone and mild.severity is Severity.WARNING
    assert detail is not None and detail.echo and not detail.acts_alone
    assert words is not None and words.echo and words.severity is Severity.INFO
    assert plain is not None and plain.severity is Severity.CRITICAL and not plain.acts_alone
    assert unknown is not None and unknown.severity is Severity.WARNING
