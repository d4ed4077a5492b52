"""Kernel lines that anybody may have written: told and stored, and never a reason to exclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import pytest

from gpuwarden_kernel_log import parse_line
from gpuwarden_verdict.context import NodeContext, entity_of, occurrences, remember
from gpuwarden_verdict.detectors import detect_event
from gpuwarden_verdict.detectors.recoveries import detect_recovery
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.lifecycle import advance
from gpuwarden_verdict.policy.case import EntityCase
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.policy.judgement import judge_case
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_verdict.signals import Recovery, RecoveryKind
from gpuwarden_wire.events import Attribute, Event, EventKind, GpuIdentity
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import ACT, START, gpu_ref, xid_line

NODE = NodeContext(
    "n0",
    "boot-1",
    booted_at=START - 86_400,
    gpus={
        "0000:01:00.0": GpuIdentity(
            gpu_uuid="GPU-0-0", pci_bus_id="0000:01:00.0", driver_version="580.65.06"
        )
    },
)
UNPROVEN = {"unproven": True}
REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
# All that may exclude by the kernel's word.
GRAVE = [
    *(xid_line(code) for code in (46, 48, 62, 64, 79, 95, 119, 140)),
    xid_line(154, rest=REBOOT),
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM Fault Up",
    "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
    "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:1000)",
    "nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
    "mlx5_core 0000:5e:00.0: poll_health:800: device's health compromised - fatal error",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
]
_NUMBERS = count(1)
POOL = parse_policy(ACT).pools[-1]


def line(
    text: str, *, attributes: Mapping[str, Attribute] | None = None, at: float = START
) -> Event:
    parsed = parse_line(text)
    assert parsed is not None, text
    return Event(
        id=f"kmsg:b:{next(_NUMBERS)}",
        kind=EventKind.KERNEL_LOG,
        observed_at=at,
        family=parsed.family.value,
        xid=parsed.xid,
        sxid=parsed.sxid,
        pci_bus_id=parsed.pci_bus_id,
        severity=parsed.severity.value,
        text=text,
        attributes=attributes or {},
    )


def nvml(code: int, at: float = START) -> Event:
    return Event(
        id=f"nvml:b:GPU-0-0:{next(_NUMBERS)}",
        kind=EventKind.NVML_XID,
        observed_at=at,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-0",
        xid=code,
    )


def gone(probes: int, at: float = START) -> Event:
    return Event(
        id=f"gpu_lost:b:{next(_NUMBERS)}",
        kind=EventKind.GPU_LOST,
        observed_at=at,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-0",
        attributes={"probes": probes},
    )


def after(events: Sequence[Event], incidents: Sequence[Incident] = ()) -> tuple[Incident, ...]:
    held = {incident.id: incident for incident in incidents}
    names = (f"inc-{next(_NUMBERS)}" for _ in events)
    for event in events:
        found = detect_event(event, entity_of(event, NODE), NODE)
        moves = advance(tuple(held.values()), found, (), event.observed_at, lambda: next(names))
        held |= {move.incident.id: move.incident for move in moves}
    return tuple(held.values())


def rung_of(
    incidents: tuple[Incident, ...], now: float, pool: PoolPolicy | None = None
) -> Rung | None:
    judged = judge_case(EntityCase(incidents[0].entity, incidents), pool or POOL, now)
    return judged.rung if judged else None


@pytest.mark.parametrize("text", GRAVE)
def test_what_anybody_may_have_written_never_excludes_however_long_it_stands(text: str) -> None:
    events = [line(text, attributes=UNPROVEN, at=START + 20.0 * n) for n in range(10)]
    incidents = after(events)
    assert incidents and "origin not proven" in incidents[0].why
    for pool in (POOL, replace(POOL, exclude_confidence=0.5)):
        assert rung_of(incidents, START + 3600.0, pool) is Rung.SUSPECT


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_nvml_proves_a_line(order: tuple[int, int]) -> None:
    both = (line(xid_line(79), attributes=UNPROVEN), nvml(79, START + 1.0))
    (incident,) = after([both[n] for n in order])
    assert rung_of((incident,), START + 2.0) is Rung.EXCLUDE
    assert "origin not proven" not in incident.why


def test_a_probe_that_finds_the_gpu_gone_proves_a_line_once_settled() -> None:
    incidents = after([line(xid_line(79), attributes=UNPROVEN), gone(1, START + 1.0)])
    assert rung_of(incidents, START + 2.0) in (None, Rung.SUSPECT)
    assert rung_of(incidents, START + 60.0) is Rung.EXCLUDE


def test_a_forged_line_does_not_wake_what_a_reboot_ended() -> None:
    incidents = after([line(xid_line(79))])
    boot = Recovery(
        incidents[0].entity, RecoveryKind.NEW_BOOT, START + 60.0, "booted", boot_id="boot-2"
    )
    (move,) = advance(incidents, (), (boot,), START + 60.0, lambda: "unused")
    forged = line(xid_line(79), attributes=UNPROVEN, at=START + 90.0)
    (incident,) = after([forged], [move.incident])
    assert rung_of((incident,), START + 3600.0) is Rung.SUSPECT


def test_a_forged_all_clear_ends_nothing() -> None:
    text = xid_line(154, rest="GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)")
    said, forged = line(text), line(text, attributes=UNPROVEN)
    ref = gpu_ref(0, 0)
    assert detect_recovery(said, ref, NODE, in_repair=False)
    assert detect_recovery(forged, ref, NODE, in_repair=False) == []


def test_a_forged_line_does_not_swallow_the_count_of_the_true_one() -> None:
    forged = line(xid_line(79), attributes=UNPROVEN)
    ref = gpu_ref(0, 0)
    true = nvml(79, START + 1.0)
    assert occurrences(true, ref, remember((), forged, ref)) == 1
    assert occurrences(true, ref, remember((), line(xid_line(79)), ref)) == 0
