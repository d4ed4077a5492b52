from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwarden_kernel_log import (
    Family,
    RecoveryAction,
    nvlink5_decode,
    parse_line,
    xid_codes,
    xid_entry,
)
from gpuwarden_verdict.context import NodeContext, RecentEvent, entity_of, occurrences, remember
from gpuwarden_verdict.detectors import EVENT_DETECTORS, SWEEP_DETECTORS, detect_event
from gpuwarden_verdict.detectors.buckets import ACTION_OF_BUCKET, ASKS_FOR_HARDWARE, recommended
from gpuwarden_verdict.detectors.recoveries import detect_recovery
from gpuwarden_verdict.detectors.xid import read_xid, weigh_xid
from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.event_groups import EventGroup, group_of
from gpuwarden_verdict.signals import Persistence, RecoveryKind, Signal
from gpuwarden_wire.events import Event, EventKind, GpuIdentity
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, gpu_ref, node_ref, xid_line

GPUS = {
    "0000:01:00.0": GpuIdentity(
        gpu_uuid="GPU-0-0", pci_bus_id="0000:01:00.0", driver_version="580.65.06"
    )
}
NODE = NodeContext("n0", "boot-1", booted_at=START - 86400, gpus=GPUS)
LOST = EntityRef(EntityKind.NODE, "n0", "n0")


def line(text: str, **fields: object) -> Event:
    parsed = parse_line(text)
    known: dict[str, object] = {"family": Family.OTHER_NVRM.value}
    if parsed is not None:
        known = {
            "family": parsed.family.value,
            "xid": parsed.xid,
            "sxid": parsed.sxid,
            "pci_bus_id": parsed.pci_bus_id,
            "severity": parsed.severity.value,
        }
    return Event(
        **{  # type: ignore[arg-type]  # fields of Event by name
            "id": "kmsg:b:1",
            "kind": EventKind.KERNEL_LOG,
            "observed_at": START,
            "text": text,
            **known,
            **fields,
        }
    )


def nvml(code: int) -> Event:
    return Event(
        id=f"nvml:b:GPU-0-0:{code}",
        kind=EventKind.NVML_XID,
        observed_at=START,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-0",
        xid=code,
    )


def signals(event: Event, node: NodeContext = NODE) -> list[Signal]:
    return detect_event(event, entity_of(event, node), node)


def test_every_bucket_of_the_catalogue_resolves_to_an_action() -> None:
    """NVSentinel#1888: three action strings matched nothing."""
    buckets = {entry.action for code in xid_codes() if (entry := xid_entry(code))} - {None}
    buckets |= {action.value for action in RecoveryAction} | {"XID_154_EVAL"}
    assert buckets <= set(ACTION_OF_BUCKET)
    assert ACTION_OF_BUCKET.keys() >= ASKS_FOR_HARDWARE
    assert recommended("SOMETHING_NEW") is recommended(None) is RecommendedAction.INVESTIGATE


@pytest.mark.parametrize("code", xid_codes())
def test_severity_action_and_rung_of_every_code_agree(code: int) -> None:
    """NVSentinel#911: fatal severity with action none left nodes cordoned for ever."""
    xid = read_xid(nvml(code), NODE)
    weight = weigh_xid(xid)
    if weight.severity is Severity.CRITICAL:
        assert xid.bucket in ASKS_FOR_HARDWARE
        assert weight.action not in (RecommendedAction.NONE, RecommendedAction.RESTART_APP)
    if weight.score >= 0.8:
        assert weight.severity is Severity.CRITICAL
        assert weight.persistence is Persistence.BOOT
    if xid.echo or xid.application_possible or xid.bucket in (None, "IGNORE", "CONTACT_SUPPORT"):
        assert weight.score < 0.8
        assert not weight.acts_alone
    assert weight.acts_alone is (xid.acts_alone and not xid.echo)


def test_the_codes_that_decide_alone_are_the_near_consensus_of_the_field() -> None:
    alone = {code for code in xid_codes() if any(s.acts_alone for s in signals(nvml(code)))}
    assert alone == {64, 79, 95, 140}


@pytest.mark.parametrize("code", [13, 31, 32, 43, 45, 63, 68, 69, 92, 94, 121, 154, 162, 185])
def test_codes_that_made_peers_take_sound_nodes_away_stay_below_exclude(code: int) -> None:
    for signal in signals(nvml(code)):
        assert signal.score < 0.8
        assert not signal.acts_alone


def test_an_unknown_code_is_a_warning_and_never_more() -> None:
    (signal,) = signals(line(xid_line(999)))
    assert (signal.severity, signal.fault_class) == (Severity.WARNING, FaultClass.UNKNOWN)
    assert signal.max_rung is Rung.SUSPECT


def test_the_kernels_own_line_decides_as_the_agent_read_it() -> None:
    read = {"fault_class": "bus", "acts_alone": True, "action": "RESTART_BM"}
    assert signals(line(xid_line(79), attributes=read))[0].acts_alone


def test_a_line_of_79_names_gpu_address_and_boot() -> None:
    (signal,) = signals(line(xid_line(79), count=3))
    assert signal.entity == gpu_ref(0, 0)
    assert signal.acts_alone
    assert signal.action is RecommendedAction.REBOOT_NODE
    assert (signal.boot_id, signal.count, signal.event_ids) == ("boot-1", 3, ("kmsg:b:1",))
    assert "0000:01:00.0" in signal.sentence and "(3 times)" in signal.sentence


def test_an_address_that_no_gpu_of_the_node_has_is_the_nodes() -> None:
    event = line(xid_line(79, 0x3A))
    assert entity_of(event, NODE) == LOST
    assert signals(event)[0].entity == LOST


NVLINK_RESET = "RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 0x0 0x0 0x0 0x0)"
NVLINK_IGNORE = "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000100 0x0 0x0 0x0 0x0)"


def test_nvlink5_codes_are_decoded_from_the_words_of_the_line() -> None:
    row = nvlink5_decode(145, "RLW_REMAP", 4, 0x40, "580.65.06")
    assert row is not None and row.action == "RESET_GPU"
    (reset,) = signals(line(xid_line(145, 0, NVLINK_RESET)))
    (ignore,) = signals(line(xid_line(145, 0, NVLINK_IGNORE)))
    assert (reset.severity, reset.fault_class) == (Severity.CRITICAL, FaultClass.NVLINK)
    assert reset.action is RecommendedAction.RESET_GPU
    assert ignore.severity is Severity.WARNING
    assert ignore.max_rung is Rung.SUSPECT


@pytest.mark.parametrize(
    ("text", "action", "rung", "alone"),
    [
        ("changed from 0x0 (None) to 0x1 (GPU Reset Required)", "reset_gpu", Rung.EXCLUDE, True),
        ("changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot_node", 2, True),
        ("changed from 0x0 (None) to 0x3 (Drain P2P)", "investigate", Rung.DRAIN, True),
        ("changed from 0x0 (None) to 0x4 (Drain and Reset)", "reset_gpu", Rung.DRAIN, True),
        ("changed fr", "investigate", Rung.SUSPECT, False),
    ],
)
def test_154_follows_its_text(text: str, action: str, rung: int, alone: bool) -> None:
    (signal,) = signals(line(xid_line(154, 0, f"GPU recovery action {text}")))
    assert (signal.action, signal.max_rung, signal.acts_alone) == (action, rung, alone)


def test_154_none_is_a_recovery_and_no_signal() -> None:
    event = line(xid_line(154, 0, "GPU recovery action changed from 0x1 (Reset) to 0x0 (None)"))
    assert signals(event) == []
    (recovery,) = detect_recovery(event, gpu_ref(0, 0), NODE, in_repair=False)
    assert recovery.kind is RecoveryKind.READING_CLEAR
    assert recovery.detectors == {"xid:154"}


@pytest.mark.parametrize("kind", [EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED])
def test_own_trouble_gives_no_signal_and_no_recovery(kind: EventKind) -> None:
    event = Event(id="x", kind=kind, observed_at=START, severity="critical", text="child is gone")
    assert signals(event) == []
    assert detect_recovery(event, node_ref(0), NODE, in_repair=False) == []
    assert group_of(event) is None


@pytest.mark.parametrize(
    ("text", "detector", "fault_class", "least", "most"),
    [
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2168)", "rm_init_failed",
         FaultClass.DRIVER, 0.5, 0.79),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", "host_memory",
         FaultClass.HOST, 0.5, 0.9),
        ("mce: [Hardware Error]: Machine check events logged", "host_memory",
         FaultClass.HOST, 0.0, 0.29),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "fs_readonly",
         FaultClass.STORAGE, 0.5, 0.9),
        ("nvme nvme0: I/O 12 QID 3 timeout, aborting", "disk_error",
         FaultClass.STORAGE, 0.1, 0.79),
        ("nfs: server fs1 not responding, still trying", "nfs_timeout",
         FaultClass.STORAGE, 0.0, 0.29),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]", "lockup",
         FaultClass.HOST, 0.3, 0.6),
        ("INFO: task python:4711 blocked for more than 120 seconds.", "hung_task",
         FaultClass.HOST, 0.1, 0.5),
        ("Out of memory: Killed process 4711 (python) total-vm:1kB", "oom",
         FaultClass.APPLICATION, 0.0, 0.29),
        ("mlx5_core 0000:5e:00.0 ens1: Link down", "nic_link_log",
         FaultClass.NIC, 0.0, 0.29),
        ("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
         "nvlink_log", FaultClass.NVLINK, 0.1, 0.6),
    ],
)  # fmt: skip
def test_each_family_has_its_detector(
    text: str, detector: str, fault_class: FaultClass, least: float, most: float
) -> None:
    (signal,) = signals(line(text))
    assert (signal.detector, signal.fault_class) == (detector, fault_class)
    assert least <= signal.score <= most
    assert not signal.acts_alone
    assert signal.sentence and text[:20] in signal.sentence


@pytest.mark.parametrize(
    "family", [Family.LOCKUP, Family.HUNG_TASK, Family.OOM, Family.NFS_TIMEOUT]
)
def test_what_programs_and_servers_can_do_is_suspect_at_most(family: Family) -> None:
    for severity in Severity:
        event = line("cut", family=family.value, severity=severity.value)
        assert all(signal.max_rung is Rung.SUSPECT for signal in signals(event))


def test_aer_counts_on_a_gpu_only_and_not_on_a_bridge() -> None:
    on_gpu = line(
        "nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"
    )
    assert on_gpu.family == Family.AER_UNCORRECTABLE
    (signal,) = signals(on_gpu)
    assert (signal.entity, signal.fault_class) == (gpu_ref(0, 0), FaultClass.BUS)
    on_bridge = line(
        "pcieport 0000:16:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction"
    )
    assert signals(on_bridge) == []


def test_lines_of_other_families_and_text_cut_to_nothing_give_no_signal_or_a_warning() -> None:
    assert signals(line("NVRM: something odd")) == []
    assert signals(line("", family="not-a-family")) == []
    cut = line("NVRM: Xid", family=Family.XID.value, xid=79)
    assert signals(cut)[0].acts_alone  # the agent read the code before it cut the text


@pytest.mark.parametrize(
    "attributes", [{"relayed": True}, {"fault_class": "bus"}, {"acts_alone": True, "relayed": True}]
)
def test_a_relayed_line_is_evidence_and_never_an_order(attributes: dict[str, object]) -> None:
    event = line(xid_line(79), attributes=attributes)
    (signal,) = signals(event)
    assert not signal.acts_alone
    assert signal.score < 0.8 and signal.max_rung is Rung.SUSPECT
    assert signal.severity is Severity.ERROR
    assert "origin not proven" in signal.sentence
    assert group_of(event) is None


def test_a_failed_check_names_its_class_when_it_knows_one() -> None:
    event = Event(
        id="c", kind=EventKind.CHECK_FAILED, observed_at=START, entity_kind=EntityKind.GPU,
        entity="GPU-0-0", text="sum differs", attributes={"check": "gemm", "fault_class": "memory"},
    )  # fmt: skip
    (signal,) = signals(event)
    assert signal.fault_class is FaultClass.MEMORY
    assert "gemm failed" in signal.sentence
    odd = Event(
        id="c", kind=EventKind.CHECK_FAILED, observed_at=START, attributes={"fault_class": ["x"]}
    )
    assert signals(odd)[0].fault_class is FaultClass.UNKNOWN


def check(**attributes: Any) -> Event:
    return Event(
        id="p",
        kind=EventKind.CHECK_PASSED,
        observed_at=START,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-0",
        attributes=dict(attributes),
    )


def test_an_active_check_speaks_for_all_and_a_passive_one_for_what_it_followed() -> None:
    (active,) = detect_recovery(check(), gpu_ref(0, 0), NODE, in_repair=False)
    assert (active.kind, active.detectors) == (RecoveryKind.CHECK_PASSED, frozenset())
    (lost,) = detect_recovery(check(after=["gpu_lost"]), gpu_ref(0, 0), NODE, in_repair=False)
    assert {"gpu_lost", "gpu_lost_log", "xid:79"} <= lost.detectors
    assert "row_remap_failure" not in lost.detectors
    (reset,) = detect_recovery(
        check(after=["recovery_action"]), gpu_ref(0, 0), NODE, in_repair=False
    )
    assert {"recovery_action", "xid:154", "xid:95", "xid:119"} <= reset.detectors
    assert "xid:79" not in reset.detectors
    (unknown,) = detect_recovery(check(after=["tea"]), gpu_ref(0, 0), NODE, in_repair=False)
    assert unknown.detectors == {"tea"}
    (repaired,) = detect_recovery(check(after=["gpu_lost"]), gpu_ref(0, 0), NODE, in_repair=True)
    assert (repaired.kind, repaired.detectors) == (RecoveryKind.CHECK_AFTER_REPAIR, frozenset())


@pytest.mark.parametrize(
    ("probes", "by_kernel", "words"),
    [
        (1, False, "at one probe"),
        (1, True, "at one probe, and the kernel says so too"),
        (2, False, "at 2 probes in a row"),
    ],
)
def test_a_lost_gpu_is_told_in_the_words_of_what_decided(
    probes: int, by_kernel: bool, words: str
) -> None:
    lost = Event(id="l", kind=EventKind.GPU_LOST, observed_at=START, attributes={"probes": probes})
    recent = (RecentEvent(line(xid_line(79)), gpu_ref(0, 0)),) if by_kernel else ()
    (signal,) = detect_event(lost, gpu_ref(0, 0), replace(NODE, recent=recent))
    assert signal.sentence.endswith(f"is gone (lost) {words}")


def test_a_passive_check_after_nothing_clears_nothing() -> None:
    assert detect_recovery(check(after=[]), gpu_ref(0, 0), NODE, in_repair=False) == []


def test_boot_and_answers_are_recoveries() -> None:
    boot = Event(id="b", kind=EventKind.NODE_BOOT, observed_at=START)
    (new,) = detect_recovery(boot, node_ref(0), NODE, in_repair=False)
    assert (new.kind, new.boot_id, new.entity) == (RecoveryKind.NEW_BOOT, "boot-1", node_ref(0))
    back = as_kind(check(), EventKind.GPU_BACK)
    (answer,) = detect_recovery(back, gpu_ref(0, 0), NODE, in_repair=False)
    assert answer.detectors == {"gpu_lost"}
    responds = Event(id="r", kind=EventKind.DRIVER_RESPONDS, observed_at=START)
    (driver,) = detect_recovery(responds, node_ref(0), NODE, in_repair=False)
    assert driver.detectors == {"driver_stuck"}


def as_kind(event: Event, kind: EventKind) -> Event:
    return Event(
        id=event.id,
        kind=kind,
        observed_at=event.observed_at,
        entity_kind=event.entity_kind,
        entity=event.entity,
    )


def test_occurrences_are_counted_once_over_both_sources() -> None:
    first = line(xid_line(79))
    recent = remember((), first, gpu_ref(0, 0))
    second = Event(
        id="nvml:1", kind=EventKind.NVML_XID, observed_at=START + 4, entity_kind=EntityKind.GPU,
        entity="GPU-0-0", xid=79, count=2,
    )  # fmt: skip
    assert occurrences(second, gpu_ref(0, 0), recent) == 0
    assert occurrences(second, gpu_ref(0, 1), recent) == 2
    assert occurrences(first, gpu_ref(0, 0), ()) == 1
    late = line(xid_line(79), observed_at=START + 100)
    assert [past.event for past in remember(recent, late, gpu_ref(0, 0))] == [first, late]


def test_a_storm_does_not_make_the_memory_of_recent_events_grow() -> None:
    recent: tuple[RecentEvent, ...] = ()
    for _ in range(1000):
        recent = remember(recent, line(xid_line(45)), gpu_ref(0, 0))
    assert len(recent) == 160


@pytest.mark.parametrize(
    ("event", "group"),
    [
        (nvml(79), EventGroup.XID_BUS),
        (nvml(31), EventGroup.XID_APPLICATION),
        (nvml(45), EventGroup.XID_ECHO),
        (nvml(48), EventGroup.XID_MEMORY),
        (nvml(119), EventGroup.XID_DRIVER),
        (nvml(999), EventGroup.XID_OTHER),
        (line("nvme nvme0: I/O 12 QID 3 timeout, aborting"), EventGroup.STORAGE),
        (Event(id="l", kind=EventKind.GPU_LOST, observed_at=START), EventGroup.GPU_LOST),
        (Event(id="l", kind=EventKind.KERNEL_LOG, observed_at=START, family="tea"), None),
        (Event(id="l", kind=EventKind.INVENTORY, observed_at=START), None),
    ],
)
def test_events_fall_into_groups(event: Event, group: EventGroup | None) -> None:
    assert group_of(event) is group


def test_detectors_have_unique_names_and_versions() -> None:
    names = [one.name for one in EVENT_DETECTORS] + [one.name for one in SWEEP_DETECTORS]
    versions = [one.version for one in EVENT_DETECTORS] + [one.version for one in SWEEP_DETECTORS]
    assert len(names) == len(set(names))
    assert min(versions) >= 1
