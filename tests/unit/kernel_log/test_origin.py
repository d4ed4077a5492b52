"""Who wrote a line: the kernel, a program, or the kernel quoting a program's words."""

from __future__ import annotations

import json

import pytest

from gpuwarden_kernel_log import parse_events, parse_line

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU fell off the bus."
AER = "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"
UE = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)"
NIC = "mlx5_core 0000:5e:00.0: poll_health:800: device's health compromised - fatal error"
READONLY = "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM Fault Up"
GONE = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
INIT = "nvidia: probe of 0000:3b:00.0 failed with error -1"
GRAVE = (LOST, AER, UE, NIC, READONLY, SXID, GONE, INIT)

# Lines that any user can bring about.
BY_PROGRAMS = [
    "Jan 21 04:41:44 node7 bob[4242]: {}",
    "Jan 21 04:41:44 node7 bob: {}",
    "Jan 21 04:41:44 node7 bob: [20001.123456] {}",
    "2025-01-21T04:41:44.283758+00:00 node7 bob[4242]: {}",
    "2025-01-21T04:41:44.283758+00:00 node7 bob: {}",
    "<13>Jan 21 04:41:44 bob: {}",
    "<13>[20001.123456] {}",
    "<13>1 2025-01-21T04:41:44.283758+00:00 node7 kernel - - - {}",
    "12,1234,5678901,-;{}",
    "user  :warn  : [20001.123456] {}",
    "10.0.0.7: user: warning: [2026-04-22T21:27:51.29Z]: {}",
    "2025-01-21T04:41:44.283758Z stdout F {}",
    "> {}",
    '[20001.123456] overlayfs: unrecognized mount option "{}" or missing value',
    'overlayfs: unrecognized mount option "[ 1.000000] {}" or missing value',
    'overlayfs: unrecognized mount option "task a:1 blocked for more than 9 [ 1.000000] {}"',
    "process '/tmp/{}' started with executable stack",
]
BY_THE_KERNEL = [
    "{}",
    "[20001.123456] {}",
    "Jan 21 04:41:44 node7 kernel: [20001.123456] {}",
    "2025-01-21T04:41:44.283758+00:00 node7 kernel: {}",
    "<4>[20001.123456] {}",
    "<3>1 2025-01-21T04:41:44.283758+00:00 node7 kernel - - - {}",
    "4,1234,5678901,-;{}",
    "kern  :warn  : [20001.123456] {}",
    "10.0.0.7: kern: warning: [2026-04-22T21:27:51.29Z]: {}",
    "[  100.000001] NVRM: Xid (PCI:0000:3c:00): 45, pid=9, name=y, Ch 1[  100.000002] {}",
]


@pytest.mark.parametrize("text", GRAVE)
@pytest.mark.parametrize("form", BY_PROGRAMS)
def test_what_a_program_can_write_is_told_and_not_proven(form: str, text: str) -> None:
    events = parse_events(form.format(text))
    assert events
    for event in events:
        assert not event.proven
        assert not event.acts_alone


@pytest.mark.parametrize("text", GRAVE)
@pytest.mark.parametrize("form", BY_THE_KERNEL)
def test_what_the_kernel_writes_is_proven(form: str, text: str) -> None:
    *_, event = parse_events(form.format(text))
    assert event.text == text
    assert event.proven


def test_journald_says_who_wrote_a_record() -> None:
    for transport, proven in (("kernel", True), ("syslog", False)):
        record = {"_TRANSPORT": transport, "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": LOST}
        event = parse_line(json.dumps(record))
        assert event is not None and event.proven is proven


def test_a_code_without_its_driver_is_not_the_kernels() -> None:
    for text in ("Xid (PCI:0000:3b:00): 79, x", "SXid (PCI:0000:c1:00.0): 20034, Fatal"):
        event = parse_line(text)
        assert event is not None and not event.proven
