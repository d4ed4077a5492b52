"""Stories of hardware faults, judged on a fake clock."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.entities import EntityState, FaultClass, Rung
from gpuwarden_verdict.incidents.domain import IncidentPhase
from gpuwarden_verdict.policy.document import DecisionPhase
from gpuwarden_wire.acknowledgement import Usable
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import Fleet, gpu_ref, node_ref, pci_of, xid_line

LOST_RECOVERY = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


def test_xid_79_excludes_the_gpu_on_the_event_path() -> None:
    fleet = Fleet()
    fleet.line(1, xid_line(79, 3, "GPU has fallen off the bus."))
    assert fleet.excluded_names() == ["GPU-1-3"]
    assert fleet.record(gpu_ref(1, 3)).state is EntityState.EXCLUDED
    verdict = fleet.verdict(1)
    assert verdict.node.usable is Usable.NO
    assert [gpu.usable for gpu in verdict.gpus].count(Usable.NO) == 1
    assert "XID 79" in verdict.node.why
    assert fleet.verdict(0).node.usable is Usable.YES


def test_the_whole_chain_of_a_lost_gpu_is_one_incident_with_the_first_cause() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(119, 2, "Timeout after 6s of waiting for RPC response from GPU2 GSP!"))
    fleet.now += 4
    fleet.line(0, xid_line(79, 2, "GPU has fallen off the bus."))
    fleet.line(0, xid_line(154, 2, LOST_RECOVERY))
    fleet.now += 1
    fleet.line(0, xid_line(45, 2, "pid=812, name=trainer, Ch 00000008"))
    (incident,) = fleet.open()
    assert incident.fault_class is FaultClass.BUS  # the better later cause re-labels
    assert {item.detector for item in incident.evidence} == {
        "xid:79",
        "xid:119",
        "xid:154",
        "xid:45",
    }
    assert len(fleet.excluded()) == 1


@pytest.mark.parametrize("cause_first", [True, False])
def test_154_takes_the_class_of_the_cause_within_30_s_before_or_after(cause_first: bool) -> None:
    fleet = Fleet()
    lines = [
        xid_line(48, 5, "DBE (double bit error) ECC Error"),
        xid_line(154, 5, LOST_RECOVERY),
    ]
    for text in lines if cause_first else reversed(lines):
        fleet.line(2, text)
        fleet.now += 20
    (incident,) = fleet.open()
    assert incident.fault_class is FaultClass.MEMORY
    assert fleet.excluded_names() == ["GPU-2-5"]  # reboot asked for: acts alone


def test_154_without_a_cause_acts_and_stays_unknown_and_154_none_asks_for_nothing() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(154, 0, LOST_RECOVERY))
    fleet.line(1, xid_line(154, 0, "GPU recovery action changed from 0x1 (Reset) to 0x0 (None)"))
    (incident,) = fleet.open()
    assert (incident.entity, incident.fault_class) == (gpu_ref(0, 0), FaultClass.UNKNOWN)
    assert fleet.excluded_names() == ["GPU-0-0"]


def test_a_fatal_xid_that_does_not_act_alone_excludes_only_after_settling() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(119, 1, "Timeout after 6s of waiting for RPC response"))
    assert fleet.excluded() == ()
    fleet.sweep(29)
    assert fleet.excluded() == ()
    fleet.sweep(1)
    assert fleet.excluded_names() == ["GPU-0-1"]


@pytest.mark.parametrize("remap", [63, 64])
def test_48_with_a_remap_drains_the_gpu_after_settling(remap: int) -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(48, 1, "pid='<unknown>', name=<unknown>, DBE"))
    fleet.now += 0.1
    fleet.line(0, xid_line(remap, 1, "pid='<unknown>', name=<unknown>, Row Remapper"))
    for _ in range(8):
        fleet.sweep(5)
    (exclusion,) = fleet.excluded()
    assert (exclusion.rung, exclusion.entity) == (Rung.DRAIN, "GPU-0-1")
    assert "drain, then reset" in exclusion.reason
    assert fleet.record(gpu_ref(0, 1)).state is EntityState.DRAINING


@pytest.mark.parametrize("code", [119, 46, 62])
def test_a_driver_fault_on_all_gpus_of_a_node_is_advice_about_the_node(code: int) -> None:
    fleet = Fleet()
    for gpu in range(8):
        fleet.line(0, xid_line(code, gpu, "Timeout after 6s of waiting for RPC response"))
        fleet.now += 1
    fleet.line(1, xid_line(code, 3, "Timeout after 6s of waiting for RPC response"))
    for _ in range(20):
        fleet.sweep(5)
    assert fleet.excluded_names() == ["GPU-1-3"]  # alone on its node: its own
    (advice,) = (d for d in fleet.decisions.values() if d.entity.node_id == "n0")
    assert (advice.entity, advice.rung) == (node_ref(0), Rung.SUSPECT)
    assert advice.fault_class is FaultClass.DRIVER
    assert "on 8 of 8 GPUs" in advice.reasons[0]
    fleet.line(0, xid_line(79, 5))  # what a GPU says of itself still acts
    assert fleet.excluded_names() == ["GPU-0-5", "GPU-1-3"]
    fleet.reboot(0)
    fleet.sweep(600)
    assert {incident.entity.node_id for incident in fleet.open()} == {"n1"}


def test_uncontained_memory_error_evicts_and_the_entity_drains() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(95, 1, "Uncontained ECC error"))
    assert fleet.excluded()[0].rung is Rung.EVICT
    fleet.sweep(5)
    assert fleet.record(gpu_ref(0, 1)).state is EntityState.DRAINING


def test_the_same_xid_from_nvml_and_the_kernel_log_is_one_occurrence_with_two_sources() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(94, 1, "Contained memory error"))
    fleet.now += 3
    fleet.event(
        0,
        EventKind.NVML_XID,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-1",
        pci_bus_id=pci_of(1),
        xid=94,
    )
    (incident,) = fleet.open()
    (item,) = incident.evidence
    assert (item.count, item.sources) == (1, ("kernel_log", "nvml"))
    fleet.now += 60
    fleet.line(0, xid_line(94, 1, "Contained memory error"))
    assert fleet.open()[0].evidence[0].count == 2


def test_fallen_off_the_bus_without_xid_waits_for_a_second_voice() -> None:
    fleet = Fleet()
    text = "NVRM: GPU 0000:02:00.0: GPU has fallen off the bus."
    fleet.line(0, text)
    fleet.sweep(60)
    assert fleet.excluded() == ()
    lost = {"entity_kind": EntityKind.GPU, "entity": "GPU-0-1"}
    gone = {"entity_kind": EntityKind.GPU, "entity": "GPU-2-1"}
    fleet.event(0, EventKind.GPU_LOST, **lost, attributes={"probes": 1, "reason": "gpu_is_lost"})
    assert fleet.excluded() == ()  # the line is a minute old, one probe may meet a reset
    fleet.sweep(30)
    assert fleet.excluded_names() == ["GPU-0-1"]  # but two planes agree once both have settled
    fleet.event(2, EventKind.GPU_LOST, **gone, attributes={"probes": 1, "reason": "gpu_is_lost"})
    fleet.sweep(60)
    assert "GPU-2-1" not in fleet.excluded_names()
    fleet.event(2, EventKind.GPU_LOST, **gone, attributes={"probes": 2, "reason": "gpu_is_lost"})
    assert "GPU-2-1" in fleet.excluded_names()
    fleet.line(1, text)
    fleet.event(
        1,
        EventKind.GPU_LOST,
        entity_kind=EntityKind.GPU,
        entity="GPU-1-1",
        attributes={"probes": 1},
    )
    assert "GPU-1-1" in fleet.excluded_names()


def test_row_remap_failure_is_a_parts_fault_that_only_a_check_after_repair_ends() -> None:
    fleet = Fleet()
    bad = gpu_ref(0, 4)
    fleet.tell([bad], gpu_row_remap_failure=1.0)
    fleet.sweep(5)
    assert fleet.excluded_names() == [bad.key]
    fleet.reboot(0)
    fleet.tell([bad], gpu_row_remap_failure=0.0)  # even a reading that clears is no repair
    for _ in range(20):
        fleet.sweep(3600)
    passed = {"entity_kind": EntityKind.GPU, "entity": bad.key}
    fleet.event(0, EventKind.CHECK_PASSED, **passed)
    assert fleet.excluded_names() == [bad.key]
    fleet.repair(bad)
    assert fleet.record(bad).state is EntityState.IN_REPAIR
    fleet.sweep(600)
    assert fleet.excluded_names() == [bad.key]
    fleet.event(0, EventKind.CHECK_PASSED, **passed)
    assert fleet.excluded() == ()
    assert fleet.record(bad).state is EntityState.PROBATION
    fleet.sweep(599)
    assert fleet.record(bad).state is EntityState.PROBATION
    fleet.sweep(1)
    assert fleet.record(bad).state is EntityState.HEALTHY


def test_probation_excludes_again_on_the_first_new_symptom() -> None:
    fleet = Fleet()
    bad = gpu_ref(0, 4)
    fleet.line(0, xid_line(79, 4))
    fleet.repair(bad)
    fleet.event(0, EventKind.CHECK_PASSED, entity_kind=EntityKind.GPU, entity=bad.key)
    fleet.line(0, xid_line(94, 4, "Contained memory error"))  # alone only suspect
    fleet.sweep(31)
    assert fleet.excluded_names() == [bad.key]
    assert fleet.record(bad).state is EntityState.EXCLUDED


def test_a_reboot_ends_a_lost_gpu_after_it_stayed_clean_for_the_dwell() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(79, 3))
    fleet.now += 120
    fleet.reboot(0)
    (incident,) = fleet.open()
    assert incident.phase is IncidentPhase.MITIGATED
    fleet.sweep(599)
    assert fleet.excluded_names() == ["GPU-0-3"]
    fleet.sweep(1)
    assert fleet.open() == []
    assert fleet.excluded() == ()
    assert fleet.record(gpu_ref(0, 3)).state is EntityState.PROBATION


def test_flapping_is_held_open() -> None:
    fleet = Fleet()
    fatal = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM Fault Up"
    fleet.line(0, fatal)
    for _ in range(3):
        fleet.now += 300
        fleet.reboot(0)
        fleet.now += 300
        fleet.line(0, fatal)
    fleet.reboot(0)
    fleet.sweep(600)
    assert fleet.excluded_names() == ["n0"]  # came back three times: eight times the dwell
    fleet.sweep(8 * 600)
    assert fleet.excluded() == ()
    assert len(fleet.incidents) == 1


def test_a_fatal_code_that_comes_again_after_the_reboot_waits_for_a_check_or_a_day() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.line(0, xid_line(79, 3))
        fleet.now += 300
        fleet.reboot(0)
        fleet.sweep(2 * 600)
    assert fleet.excluded_names() == ["GPU-0-3"]
    assert "again" in fleet.open()[0].why
    fleet.sweep(10 * 3600)
    assert fleet.excluded_names() == ["GPU-0-3"]
    gpu = gpu_ref(0, 3)
    fleet.event(0, EventKind.CHECK_PASSED, entity_kind=EntityKind.GPU, entity=gpu.key)
    fleet.sweep(60)
    assert fleet.excluded() == ()


def test_a_revoke_acquits_and_the_next_sweep_does_not_undo_it() -> None:
    fleet = Fleet()
    bad = gpu_ref(0, 4)
    fleet.tell([bad], gpu_row_remap_failure=1.0)
    fleet.sweep(5)
    fleet.revoke(bad)
    assert fleet.record(bad).state is EntityState.HEALTHY
    for _ in range(23):
        fleet.tell([bad], gpu_row_remap_failure=1.0)
        fleet.sweep(3600)
        assert fleet.excluded() == ()
    fleet.line(0, xid_line(79, 4))  # another class
    assert fleet.excluded_names() == [bad.key]


def test_a_fault_of_another_class_seconds_after_a_revoke_decides() -> None:
    """It belongs to the acquitted chain by its time, not by what the person has seen."""
    fleet = Fleet()
    bad = gpu_ref(0, 4)
    fleet.line(0, xid_line(79, 4))
    fleet.now += 3
    fleet.revoke(bad)
    fleet.now += 5
    fleet.line(0, xid_line(79, 4))
    assert fleet.excluded() == ()
    fleet.line(0, xid_line(95, 4, "Uncontained ECC error"))
    assert fleet.excluded_names() == [bad.key]
    assert {incident.fault_class for incident in fleet.open()} == {
        FaultClass.BUS,
        FaultClass.MEMORY,
    }


def test_a_revoke_of_a_node_whose_gpus_are_not_read_covers_one_address() -> None:
    fleet = Fleet(gpus=0)
    node = node_ref(0)
    fleet.line(0, xid_line(79, 4))
    assert fleet.excluded_names() == [node.key]
    fleet.revoke(node)
    for _ in range(3):
        fleet.now += 60
        fleet.line(0, xid_line(79, 4))
        fleet.sweep(60)
        assert fleet.excluded() == (), "the address that a person has judged"
    # Another device's trouble that decides nothing alone does not revive what was acquitted.
    fleet.line(0, xid_line(167, 6))  # the same class
    fleet.sweep(60)
    (incident,) = fleet.open()
    assert [item.detector for item in incident.evidence] == ["xid:79", "xid:167"]
    assert fleet.excluded() == ()
    fleet.line(0, xid_line(79, 5))
    assert fleet.excluded_names() == [node.key]
    assert pci_of(5) in fleet.excluded()[0].reason
    fleet.revoke(node)
    fleet.line(0, xid_line(79, 5))
    fleet.line(0, xid_line(79, 4))
    fleet.sweep(60)
    assert fleet.excluded() == ()


def test_an_acquittal_ends_after_24_h_and_covers_a_new_incident_of_the_same_class() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(79, 4))
    fleet.revoke(gpu_ref(0, 4))
    fleet.now += 60
    fleet.event(0, EventKind.CHECK_PASSED, entity_kind=EntityKind.GPU, entity="GPU-0-4")
    assert fleet.open() == []
    fleet.now += 3600
    fleet.line(0, xid_line(79, 4))
    assert fleet.excluded() == ()
    fleet.now += 86400
    fleet.sweep()
    assert fleet.excluded_names() == ["GPU-0-4"]


def test_uncorrected_ecc_is_told_once_and_not_again_after_its_reset() -> None:
    fleet = Fleet()
    bad = gpu_ref(0, 4)
    for total in (0.0, 0.0, 1.0, 1.0):
        fleet.now += 5
        fleet.tell([bad], gpu_ecc_uncorrected_volatile_total=total)
        fleet.sweep()
    (incident,) = fleet.open()
    assert incident.fault_class is FaultClass.MEMORY
    assert incident.evidence[0].count == 1
    fleet.event(0, EventKind.CHECK_PASSED, entity_kind=EntityKind.GPU, entity=bad.key)
    fleet.now += 200
    fleet.tell([bad], gpu_ecc_uncorrected_volatile_total=0.0)
    fleet.sweep()
    assert fleet.open() == []
    assert fleet.excluded() == ()


def test_the_drivers_own_recovery_action_excludes_and_its_end_lifts() -> None:
    fleet = Fleet()
    bad = gpu_ref(0, 4)
    fleet.tell([bad], gpu_recovery_action=0.0)
    fleet.sweep(5)
    fleet.tell([bad], gpu_recovery_action=1.0)
    fleet.sweep(5)
    assert fleet.excluded_names() == [bad.key]
    fleet.tell([bad], gpu_recovery_action=0.0)
    fleet.sweep(5)
    fleet.tell([bad], gpu_recovery_action=0.0)
    fleet.sweep(600)
    assert fleet.excluded() == ()


def test_a_held_exclusion_expires_only_when_its_evidence_is_not_renewed() -> None:
    fleet = Fleet()
    fleet.line(0, xid_line(79, 3))
    for _ in range(72):
        fleet.sweep(3600)
    assert fleet.excluded_names() == ["GPU-0-3"]
    phases = {move.decision.phase for move in fleet.decision_moves}
    assert phases == {DecisionPhase.IN_FORCE}


def test_fatal_sxid_is_the_nodes_fault_and_a_nonfatal_one_excludes_nobody() -> None:
    fleet = Fleet()
    fleet.line(0, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 46 egress")
    fleet.sweep(60)
    assert fleet.excluded() == ()
    fleet.line(1, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 timeout")
    assert fleet.excluded_names() == ["n1"]
    assert fleet.record(node_ref(1)).state is EntityState.EXCLUDED
    assert all(gpu.usable is Usable.NO for gpu in fleet.verdict(1).gpus)
