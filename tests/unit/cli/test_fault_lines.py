from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuwarden_cli.commands.inject import in_file, parse_address
from gpuwarden_cli.exits import CommandError
from gpuwarden_cli.fault_lines import FAULTS, Place, fault_named
from gpuwarden_kernel_log import Family, parse_line, xid_codes, xid_entry

PLACE = Place("0000:3b:00.0", "ibp24s0")
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

FAMILIES = {
    "off-bus": [Family.XID, Family.GPU_LOST],
    "row-remap-failure": [Family.XID],
    "uncorrected-ecc": [Family.XID, Family.XID],
    "application": [Family.XID, Family.XID],
    "gsp-timeout": [Family.XID],
    "nvlink": [Family.XID],
    "pcie-fatal": [Family.AER_UNCORRECTABLE],
    "nic-down": [Family.NIC_LINK],
    "nic-up": [Family.NIC_LINK],
}


def test_every_fault_is_held_to_the_parser() -> None:
    assert set(FAMILIES) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_lines_are_read_as_what_they_say(name: str) -> None:
    lines = FAULTS[name].lines(PLACE)
    events = [parse_line(in_file(line, AT, "node-1")) for line in lines]
    assert [event.family if event else None for event in events] == FAMILIES[name]
    for event in events:
        assert event is not None
        assert event.pci_bus_id == PLACE.pci_bus_id
        assert event.observed_at == AT
    assert all(0 <= line.level <= 7 for line in lines)


def test_any_xid_of_the_catalogue_can_be_written() -> None:
    for code in xid_codes():
        fault = fault_named(f"xid-{code}")
        assert fault is not None
        event = parse_line(fault.lines(PLACE)[0].text)
        assert event is not None
        entry = xid_entry(code)
        assert entry is not None
        assert (event.xid, event.pci_bus_id) == (code, PLACE.pci_bus_id)


@pytest.mark.parametrize("name", ["", "xid-", "xid-x", "xid-99999", "79", "nothing"])
def test_other_names_are_none(name: str) -> None:
    assert fault_named(name) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("3B:00.0", "0000:3b:00.0"),
        ("0001:3b:00", "0001:3b:00.0"),
        ("3b:00", "0000:3b:00.0"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "3b", "GPU-1", "0000:3b:00.9", "xx:00.0"])
def test_wrong_address_is_named(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
    assert caught.value.mend
