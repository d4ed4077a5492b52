"""What is known of GPUs over restarts of the agent, reboots, and changes of their driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import Harvest, Notice
from gpuwarden_agent.sources.nvml import ProbeState
from gpuwarden_agent.sources.nvml_frames import GpuAnswer
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.readings import Reading
from tests.builders.nvml import pci_bus
from tests.unit.agent_nvml.rig import SLOTS, Rig, gpu

LOST, BACK, CHECK = EventKind.GPU_LOST, EventKind.GPU_BACK, EventKind.CHECK_PASSED


class Node:
    """One node whose agent is started again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rig = Rig(folder, state_folder=folder / "spool")

    def restart(self, boot_id: str = "boot-1", gpus_expected: int | None = None) -> None:
        spool = self.folder / "spool"
        self.rig = Rig(
            self.folder, state_folder=spool, boot_id=boot_id, gpus_expected=gpus_expected
        )

    def sees(self, *gpus: GpuAnswer) -> Harvest:
        self.rig.probe.will_answer(*gpus)
        return self.rig.collect()

    def kinds(self, *gpus: GpuAnswer) -> list[EventKind]:
        return [event.kind for event in self.sees(*gpus).events]

    def expected(self, *gpus: GpuAnswer) -> Reading:
        return self.rig.node(self.sees(*gpus))["node_gpus_expected"]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def take_off_the_bus(node: Node, number: int) -> None:
    (node.rig.sys_root / "bus/pci/devices" / SLOTS[number]).unlink()


def test_a_gpu_that_does_not_come_up_after_a_reboot_is_still_expected(node: Node) -> None:
    assert node.expected(gpu(0), gpu(1)) == 2
    take_off_the_bus(node, 1)
    node.restart("boot-2")
    harvest = node.sees(gpu(0))
    assert node.rig.node(harvest)["node_gpus_expected"] == 2
    assert node.rig.node(harvest)["node_gpus_visible"] == 1.0
    assert harvest.inventory is not None
    assert harvest.inventory.gpus_expected == 2


def test_a_removal_is_told_by_the_setting_and_needs_telling_once(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    take_off_the_bus(node, 1)
    node.restart("boot-2", gpus_expected=1)
    told = node.sees(gpu(0)).inventory
    assert told is not None
    assert (told.gpus_expected, told.gpus_expected_set) == (1, True)
    node.restart("boot-3")
    assert node.expected(gpu(0)) == 1


def test_a_copied_spool_does_not_expect_the_gpus_of_its_origin(node: Node, tmp_path: Path) -> None:
    node.sees(gpu(0), gpu(1))
    other = Rig(tmp_path / "copy", (SLOTS[0],), state_folder=tmp_path / "spool", boot_id="another")
    other.probe.will_answer(GpuAnswer(uuid="GPU-of-the-copy", pci_bus_id=SLOTS[0], index=0))
    assert other.node(other.collect())["node_gpus_expected"] == 1


def test_a_board_exchanged_in_its_slot_is_expected_once(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    node.restart("boot-2")
    fresh = GpuAnswer(uuid="GPU-fresh", pci_bus_id=SLOTS[1], index=1)
    harvest = node.sees(gpu(0), fresh)
    assert node.rig.node(harvest)["node_gpus_expected"] == 2
    assert harvest.events == ()
    node.restart("boot-2")
    assert node.kinds(gpu(0), fresh) == []


def test_an_agent_restarted_while_a_gpu_is_lost_tells_that_it_answers_again(node: Node) -> None:
    for _ in range(3):
        node.sees(gpu(0), gpu(1))
    assert [node.kinds(gpu(0), gpu(1, code=15)) for _ in range(3)] == [[LOST], [LOST], []]
    node.restart()
    # The driver gives no handle for a lost GPU: a new child does not even know its UUID.
    assert [node.kinds(gpu(0)) for _ in range(2)] == [[], []]
    harvest = node.sees(gpu(0), gpu(1))
    (back,) = harvest.events
    assert (back.kind, back.entity, back.pci_bus_id) == (BACK, "GPU-1", SLOTS[1])
    (check,) = node.sees(gpu(0), gpu(1)).events
    assert check.kind is CHECK
    assert check.attributes["after"] == ["gpu_lost"]


def test_a_gpu_lost_while_the_agent_was_down_is_told_and_stays_in_the_inventory(
    node: Node,
) -> None:
    node.sees(gpu(0), gpu(1))
    node.restart()
    harvest = node.sees(gpu(0))
    (lost,) = harvest.events
    assert (lost.kind, lost.entity, lost.attributes["probes"]) == (LOST, "GPU-1", 1)
    assert harvest.inventory is not None
    assert [one.gpu_uuid for one in harvest.inventory.gpus] == ["GPU-0", "GPU-1"]
    assert harvest.inventory.gpus[1].model == "NVIDIA H100 80GB HBM3"


def test_a_gpu_that_answers_after_a_reboot_is_told_back_and_checked(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    for _ in range(3):
        node.sees(gpu(0), gpu(1, code=15))
    node.restart("boot-2")
    assert [node.kinds(gpu(0), gpu(1)) for _ in range(3)] == [[BACK], [CHECK], []]
    node.restart("boot-3")
    assert [node.kinds(gpu(0), gpu(1)) for _ in range(2)] == [[], []]


def test_a_gpu_that_stays_away_after_a_reboot_is_missed_by_number_only(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    for _ in range(2):
        node.sees(gpu(0), gpu(1, code=15))
    node.restart("boot-2")
    assert node.kinds(gpu(0)) == []
    node.restart("boot-3")
    assert node.kinds(gpu(0), gpu(1)) == [BACK]


def test_what_was_found_but_perhaps_not_handed_over_is_told_again(node: Node) -> None:
    """An agent that is killed has written down what it found, not that it was delivered."""
    node.sees(gpu(0), gpu(1))
    node.sees(gpu(0), gpu(1, code=15))
    second = node.sees(gpu(0), gpu(1, code=15))
    node.restart()
    again = node.sees(gpu(0), gpu(1, code=15))
    assert again.events[0].attributes["probes"] == second.events[0].attributes["probes"] == 2
    node.sees(gpu(0), gpu(1))
    node.restart()
    assert node.kinds(gpu(0), gpu(1)) == [BACK]


def test_a_pending_remap_that_a_reboot_healed_is_checked_after_it(node: Node) -> None:
    pending = GpuAnswer(
        uuid="GPU-1", pci_bus_id=SLOTS[1], index=1, values={"gpu_row_remap_pending": 1.0}
    )
    node.sees(gpu(0), pending)
    node.restart("boot-2")
    node.sees(gpu(0), gpu(1))
    (check,) = node.sees(gpu(0), gpu(1)).events
    assert check.attributes["after"] == ["row_remap_pending"]


def test_a_look_writes_nothing_down(node: Node, tmp_path: Path) -> None:
    look = Rig(tmp_path, state_folder=tmp_path / "spool", keeps_state=False)
    look.probe.will_answer(gpu(0), gpu(1))
    look.collect()
    look.collector.close()
    assert not (tmp_path / "spool").exists()


VFIO = Notice(
    "bound to vfio-pci",
    "It is not lost, and not this node's either: no reading, no verdict. "
    "Bind it to nvidia to have it back.",
)


def test_a_gpu_handed_to_a_virtual_machine_is_neither_lost_nor_expected(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    node.rig.bind(1, "vfio-pci")
    harvest = node.sees(gpu(0))
    assert harvest.events == ()
    assert harvest.notices == {f"GPU {SLOTS[1]}": VFIO}
    row = node.rig.node(harvest)
    assert (row["node_gpus_visible"], row["node_gpus_on_pci"], row["node_gpus_expected"]) == (
        1.0,
        1.0,
        1,
    )
    assert harvest.inventory is not None
    assert [one.gpu_uuid for one in harvest.inventory.gpus] == ["GPU-0"]
    assert harvest.inventory.gpus_expected == 1
    assert harvest.inventory.gpus_elsewhere == (SLOTS[1],)
    node.restart()
    assert node.kinds(gpu(0)) == []
    node.rig.bind(1, "nvidia")
    harvest = node.sees(gpu(0), gpu(1))
    assert (harvest.events, harvest.notices) == ((), {})
    assert node.rig.node(harvest)["node_gpus_expected"] == 2


def test_a_gpu_met_between_two_drivers_is_taken_back_as_soon_as_it_is_handed_over(
    node: Node,
) -> None:
    node.sees(gpu(0), gpu(1))
    node.rig.bind(1, "")
    assert node.kinds(gpu(0)) == [LOST]
    node.rig.bind(1, "vfio-pci")
    (event,) = node.sees(gpu(0)).events
    assert event.kind is BACK
    assert event.text == "the GPU is not lost: it is bound to another driver"
    assert node.kinds(gpu(0)) == []


def test_a_loss_beside_a_gpu_handed_over_is_a_loss(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    node.rig.bind(1, "vfio-pci")
    node.sees(gpu(0))
    assert node.kinds(gpu(0, code=15)) == [LOST]


def test_a_gpu_that_nouveau_took_is_not_lost_but_missed(node: Node) -> None:
    node.sees(gpu(0), gpu(1))
    node.rig.bind(1, "nouveau")
    harvest = node.sees(gpu(0))
    assert harvest.events == ()
    assert harvest.notices[f"GPU {SLOTS[1]}"].reason == "bound to nouveau"
    assert node.rig.node(harvest)["node_gpus_expected"] == 2


def test_a_told_number_counts_what_is_built_in(tmp_path: Path) -> None:
    bus = pci_bus(tmp_path / "bus", SLOTS)
    rig = Rig(tmp_path, sys_root=bus, gpus_expected=2)
    rig.sys_root = bus
    rig.bind(1, "vfio-pci")
    rig.probe.will_answer(gpu(0))
    assert rig.node(rig.collect())["node_gpus_expected"] == 1


def test_a_driver_that_hung_before_the_agent_was_restarted_is_told_to_answer(node: Node) -> None:
    node.rig.probe.will_be(ProbeState.STUCK, call="nvmlDeviceGetPowerUsage", call_age_s=31.0)
    assert [event.kind for event in node.rig.collect().events] == [EventKind.DRIVER_STUCK]
    node.restart()
    assert node.kinds(gpu(0), gpu(1)) == [EventKind.DRIVER_RESPONDS]
    node.restart()  # killed before it was handed over for good: told again
    assert node.kinds(gpu(0), gpu(1)) == [EventKind.DRIVER_RESPONDS]
    assert node.kinds(gpu(0), gpu(1)) == []
    node.restart()
    assert node.kinds(gpu(0), gpu(1)) == []


def test_a_driver_that_still_hangs_after_a_restart_is_told_again(node: Node) -> None:
    for _ in range(2):
        node.rig.probe.will_be(ProbeState.STUCK, call="nvmlInit", call_age_s=31.0)
        assert [event.kind for event in node.rig.collect().events] == [EventKind.DRIVER_STUCK]
        node.restart()
