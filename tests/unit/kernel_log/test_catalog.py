from __future__ import annotations

from gpuwarden_kernel_log import (
    FaultClass,
    RecoveryAction,
    Severity,
    nvlink5_decode,
    parse_nvlink5_words,
    stated_recovery_action,
    sxid_entry,
    xid_codes,
    xid_entry,
)
from gpuwarden_kernel_log.catalog import acts_alone

DECODED_OR_STATED = {*range(144, 151), 154}


def test_the_catalogue_covers_the_vendor_sheet() -> None:
    assert set(range(1, 173)) <= set(xid_codes())
    assert xid_entry(0) is None


def test_acts_alone_follows_the_rule_written_beside_it() -> None:
    entries = [entry for code in xid_codes() if (entry := xid_entry(code)) is not None]
    for entry in entries:
        assert entry.acts_alone == acts_alone(
            entry.severity,
            entry.action,
            entry.fault_class,
            application_possible=entry.application_possible,
            echo=entry.echo,
        ), entry
    assert [entry.code for entry in entries if entry.acts_alone] == [64, 79, 95, 140]


def test_severity_and_action_never_contradict() -> None:
    for code in set(xid_codes()) - DECODED_OR_STATED:
        entry = xid_entry(code)
        assert entry is not None
        if entry.action == "IGNORE":
            assert entry.severity in (Severity.INFO, Severity.WARNING), entry
        if entry.echo:
            assert not entry.acts_alone


def test_names_and_classes_are_filled() -> None:
    for code in xid_codes():
        entry = xid_entry(code)
        assert entry is not None and entry.name
        assert entry.applies_to <= {"a100", "h100", "b100", "gb200"}
    lost = xid_entry(79)
    assert lost is not None and lost.fault_class is FaultClass.BUS


def test_sxids_outside_the_lists_are_not_fatal() -> None:
    fatal, mild, hot = sxid_entry(20034), sxid_entry(22013), sxid_entry(10004)
    assert fatal is not None and fatal.fatal and not fatal.fabric_wide
    assert mild is not None and not mild.fatal
    assert hot is not None and hot.fault_class is FaultClass.THERMAL
    assert sxid_entry(99999) is None


def test_words_win_over_numbers_in_154() -> None:
    assert stated_recovery_action("to 0x2 (GPU Reset Required)") is RecoveryAction.RESET_GPU
    assert stated_recovery_action("GPU recovery action") is None


def test_nvlink5_needs_every_bit_known() -> None:
    both = nvlink5_decode(145, "RLW_REMAP", 0x4, 0x41, "580.1")
    assert both is not None and both.action == "RESET_GPU"
    assert nvlink5_decode(145, "RLW_REMAP", 0x4, 0x41 | 0x1000, "580.1") is None
    assert nvlink5_decode(145, "RLW_REMAP", 0x4, None, "580.1") is None
    assert nvlink5_decode(145, "NO_UNIT", 0x4, 0x40) is None


def test_nvlink5_second_bucket_of_a_row() -> None:
    mild = nvlink5_decode(145, "RLW_RXPIPE", 0x06, 0x1, "580.1")
    grave = nvlink5_decode(145, "RLW_RXPIPE", 0x86, 0x1, "580.1")
    assert mild is not None and mild.action == "IGNORE"
    assert grave is not None and grave.action == "RESET_GPU"


def test_nvlink5_words_are_read() -> None:
    words = parse_nvlink5_words("NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)")
    assert words is not None
    assert (words.unit, words.says_fatal, words.intr_info, words.error_bits) == (
        "NETIR",
        True,
        0x000FE406,
        0,
    )
    assert parse_nvlink5_words("RLW_REMAP Fatal") is None
    cut = parse_nvlink5_words("SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x0000")
    assert cut is not None and cut.error_bits is None
