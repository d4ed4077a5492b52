from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.sources.nvml import ProbeState
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Stale, Unavailable
from tests.builders.nvml import pci_bus
from tests.unit.agent_nvml.rig import SLOTS, Rig, gpu


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_readings_identities_and_counts_of_a_sound_node(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    harvest = rig.collect()
    assert harvest.rows[EntityKind.GPU]["GPU-0"]["gpu_power_watts"] == 300.0
    assert rig.node(harvest) == {
        "node_gpus_visible": 2.0,
        "node_gpus_on_pci": 2.0,
        "node_gpus_expected": 2,
        "node_nvml_call_age_seconds": 0.0,
        "node_nvml_poll_seconds": 0.0,
        "node_nvml_poll_gap_seconds": Unavailable("first_round"),
    }
    assert harvest.inventory is not None
    assert [one.gpu_uuid for one in harvest.inventory.gpus] == ["GPU-0", "GPU-1"]
    assert harvest.inventory.gpus[0].driver_version == "580.95.05"
    assert harvest.events == ()


def test_the_inventory_is_sent_again_only_when_it_changed(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.probe.will_answer(gpu(0), gpu(1, code=15))
    assert [rig.collect().inventory is not None for _ in range(3)] == [True, False, False]


def test_a_lost_gpu_stays_in_the_inventory_and_is_not_visible(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.probe.will_answer(gpu(0), gpu(1, code=15))
    rig.collect()
    harvest = rig.collect()
    assert rig.node(harvest)["node_gpus_visible"] == 1.0
    assert rig.node(harvest)["node_gpus_expected"] == 2
    (event,) = harvest.events
    assert (event.kind, event.entity, event.pci_bus_id) == (EventKind.GPU_LOST, "GPU-1", SLOTS[1])
    assert event.attributes == {"probes": 1, "reason": "gpu_is_lost"}
    assert event.id == "gpu_lost:boot-1:GPU-1:1"
    assert event.severity == "critical"


def test_the_life_of_a_loss(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    for code in (15, 15, 15, 0, 0, 0):
        rig.probe.will_answer(gpu(0), gpu(1, code))
    kinds = [[event.kind for event in rig.collect().events] for _ in range(7)]
    lost, back, check = EventKind.GPU_LOST, EventKind.GPU_BACK, EventKind.CHECK_PASSED
    assert kinds == [[], [lost], [lost], [], [back], [check], []]


def test_a_stuck_driver_is_told_once_and_once_when_it_is_over(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    call = {"call": "nvmlDeviceGetPowerUsage", "gpu_uuid": "GPU-1"}
    rig.probe.will_be(ProbeState.BUSY, **call, call_age_s=10.0)
    rig.probe.will_be(ProbeState.STUCK, **call, call_age_s=31.0)
    rig.probe.will_be(ProbeState.STUCK, **call, call_age_s=36.0)
    rig.probe.will_answer(gpu(0), gpu(1))
    harvests = [rig.collect() for _ in range(5)]
    assert [len(harvest.events) for harvest in harvests] == [0, 0, 1, 0, 1]
    (stuck,) = harvests[2].events
    assert stuck.kind is EventKind.DRIVER_STUCK
    assert stuck.attributes == {
        "call": "nvmlDeviceGetPowerUsage",
        "gpu_uuid": "GPU-1",
        "pci_bus_id": SLOTS[1],
        "age_s": 31.0,
    }
    assert (stuck.entity_kind, stuck.entity) == (EntityKind.NODE, "")
    assert harvests[4].events[0].kind is EventKind.DRIVER_RESPONDS
    assert rig.node(harvests[3])["node_nvml_call_age_seconds"] == 36.0


def test_while_the_driver_does_not_answer_readings_are_stale(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.probe.will_be(ProbeState.STUCK, call="nvmlDeviceGetSerial", call_age_s=31.0)
    rig.collect()
    harvest = rig.collect()
    assert harvest.rows[EntityKind.GPU]["GPU-0"]["gpu_power_watts"] == Stale(5.0)
    assert rig.node(harvest)["node_gpus_visible"] == Stale(5.0)
    assert rig.node(harvest)["node_gpus_on_pci"] == 2.0


def test_a_driver_stuck_from_the_start_gives_reasons(rig: Rig) -> None:
    rig.probe.will_be(ProbeState.STUCK, call="nvmlInit", call_age_s=31.0)
    harvest = rig.collect()
    assert [event.kind for event in harvest.events] == [EventKind.DRIVER_STUCK]
    assert rig.node(harvest)["node_gpus_visible"] == Unavailable("driver_stuck")
    assert harvest.inventory is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ProbeState.STOPPED, "nvml_child_stopped"),
        (ProbeState.STOPPED, "nvml_child_silent"),
        (ProbeState.EXITED, "nvml_child_exited"),
        (ProbeState.UNAVAILABLE, "nvml_driver_not_loaded"),
    ],
)
def test_own_trouble_is_an_error_and_says_nothing_about_a_gpu(
    rig: Rig, state: ProbeState, reason: str
) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.probe.will_be(state, reason)
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.collect()
    with pytest.raises(CollectorError) as raised:
        rig.collect()
    assert raised.value.reason == reason
    assert rig.collect().events == ()


def test_a_node_without_a_gpu_is_no_trouble(tmp_path: Path) -> None:
    rig = Rig(tmp_path, slots=())
    rig.probe.will_be(ProbeState.UNAVAILABLE, "nvml_library_not_found")
    harvest = rig.collect()
    assert rig.node(harvest) == {
        "node_gpus_visible": NotSupported(),
        "node_gpus_on_pci": 0.0,
        "node_gpus_expected": 0,
        "node_nvml_call_age_seconds": 0.0,
        "node_nvml_poll_seconds": 0.0,
        "node_nvml_poll_gap_seconds": Unavailable("first_round"),
    }


def test_a_node_that_should_have_gpus_and_has_no_library_is_trouble(tmp_path: Path) -> None:
    rig = Rig(tmp_path, slots=(), gpus_expected=8)
    rig.probe.will_be(ProbeState.UNAVAILABLE, "nvml_library_not_found")
    with pytest.raises(CollectorError):
        rig.collect()


def test_no_sysfs_is_a_reason_not_a_zero(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sys_root=tmp_path / "nowhere")
    rig.probe.will_answer(gpu(0), gpu(1))
    harvest = rig.collect()
    assert rig.node(harvest)["node_gpus_on_pci"] == Unavailable("no_such_file")
    assert rig.node(harvest)["node_gpus_expected"] == 2


def test_a_configured_expectation_is_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, gpus_expected=8)
    rig.probe.will_answer(gpu(0), gpu(1))
    harvest = rig.collect()
    assert rig.node(harvest)["node_gpus_expected"] == 8
    assert harvest.inventory is not None
    assert harvest.inventory.gpus_expected == 8


def test_a_gpu_bound_to_a_virtual_machine_is_not_this_nodes(tmp_path: Path) -> None:
    handed_over = pci_bus(tmp_path / "handed_over", SLOTS, driver="vfio-pci")
    rig = Rig(tmp_path, slots=(), sys_root=handed_over)
    rig.probe.will_answer()
    assert rig.node(rig.collect())["node_gpus_on_pci"] == 0.0


def test_nvml_is_initialised_afresh_while_a_gpu_stays_lost_ever_more_rarely(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.collect()
    renewed = []
    for _ in range(100):
        rig.probe.will_answer(gpu(0), gpu(1, code=15))
        before = rig.probe.renewed
        rig.collect()
        if rig.probe.renewed > before:
            renewed.append(rig.clock - 110.0)
    assert renewed == [60.0, 120.0, 240.0, 480.0]


@pytest.mark.parametrize(("code", "visible"), [(4, 2.0), (15, 1.0)], ids=["forbidden", "lost"])
def test_a_gpu_without_a_handle_counts_only_where_it_is_not_ours_to_open(
    rig: Rig, code: int, visible: float
) -> None:
    rig.probe.will_answer(gpu(0), count=2, unreachable=(code,))
    assert rig.node(rig.collect())["node_gpus_visible"] == visible


def test_the_bus_is_looked_at_now_and_then_and_at_once_where_the_driver_has_news(
    rig: Rig,
) -> None:
    def on_pci() -> object:
        return rig.node(rig.collect())["node_gpus_on_pci"]

    for code in (0, 0, 15, 0, 0, 0, 0, 0):
        rig.probe.will_answer(gpu(0), gpu(1, code=code))
    assert on_pci() == 2.0
    slot = rig.sys_root / "bus/pci/devices" / SLOTS[1]
    device = slot.readlink()
    slot.unlink()
    assert on_pci() == 2.0, "all is well with the driver: not yet"
    assert on_pci() == 1.0, "the driver has lost it"
    slot.symlink_to(device)
    assert on_pci() == 2.0, "it was missing just before"
    assert on_pci() == 2.0
    slot.unlink()
    assert [on_pci() for _ in range(3)] == [2.0, 2.0, 1.0]


def test_a_gap_between_answered_polls_is_told(rig: Rig) -> None:
    rig.probe.will_answer(gpu(0), gpu(1))
    rig.probe.will_be(ProbeState.BUSY, call="nvmlDeviceGetPowerUsage", call_age_s=4.0)
    rig.probe.will_answer(gpu(0), gpu(1))
    rows = [rig.node(rig.collect()) for _ in range(3)]
    gaps = [row["node_nvml_poll_gap_seconds"] for row in rows]
    assert gaps == [Unavailable("first_round"), 5.0, 10.0]


def test_close_reaches_the_probe(rig: Rig) -> None:
    rig.collector.close()
    assert rig.probe.closed
