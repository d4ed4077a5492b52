from __future__ import annotations

from dataclasses import replace

from gpuwarden_server.fleet.domain import (
    GpuRecord,
    NodeRecord,
    apply_boot,
    apply_inventory,
    gpu_in_slot,
    place_gpus,
)
from gpuwarden_wire.events import GpuIdentity, Inventory

A = GpuIdentity(gpu_uuid="GPU-a", pci_bus_id="00000000:3B:00.0", serial="S-a", index=0)
B = GpuIdentity(gpu_uuid="GPU-b", pci_bus_id="0000:86:00.0", serial="S-b", index=1)


def placed(*gpus: GpuIdentity, at: float = 1.0) -> dict[str, GpuRecord]:
    return place_gpus("n1", Inventory(gpus=gpus), {}, (), at)


def test_an_address_is_kept_in_the_one_spelling() -> None:
    assert placed(A)["GPU-a"].pci_bus_id == "0000:3b:00.0"


def test_a_gpu_that_is_not_named_any_more_keeps_its_slot_but_is_not_present() -> None:
    known = placed(A, B)
    changed = place_gpus("n1", Inventory(gpus=(A,)), known, (), 2.0)
    assert changed["GPU-b"] == replace(known["GPU-b"], present=False)
    assert changed["GPU-a"].first_seen_at == 1.0
    assert changed["GPU-a"].last_seen_at == 2.0


def test_a_gpu_held_elsewhere_is_left_there() -> None:
    assert set(place_gpus("n1", Inventory(gpus=(A, B)), {}, ["GPU-a"], 1.0)) == {"GPU-b"}


def test_a_gpu_of_another_node_that_is_not_named_does_not_change() -> None:
    other = replace(placed(B)["GPU-b"], node_id="n2")
    assert place_gpus("n1", Inventory(gpus=(A,)), {"GPU-b": other}, (), 2.0).keys() == {"GPU-a"}


def test_a_serial_that_the_driver_forgets_is_remembered() -> None:
    known = placed(A)
    again = replace_serial(A, "")
    assert place_gpus("n1", Inventory(gpus=(again,)), known, (), 2.0)["GPU-a"].serial == "S-a"


def replace_serial(gpu: GpuIdentity, serial: str) -> GpuIdentity:
    return GpuIdentity(gpu_uuid=gpu.gpu_uuid, pci_bus_id=gpu.pci_bus_id, serial=serial, index=0)


def test_the_present_gpu_of_a_slot_wins_then_the_latest() -> None:
    here = placed(A)["GPU-a"]
    gone = replace(here, gpu_uuid="GPU-old", present=False, last_seen_at=99.0)
    older = replace(here, gpu_uuid="GPU-older", present=False, last_seen_at=50.0)
    address = "00000000:3B:00"
    assert gpu_in_slot([gone, here, older], address) == here
    assert gpu_in_slot([older, gone], address) == gone
    assert gpu_in_slot([here], "0000:99:00.0") is None
    assert gpu_in_slot([here], "nonsense") is None


def test_a_boot_known_before_is_not_the_newest_again() -> None:
    node = apply_boot(apply_boot(NodeRecord("n1", 1.0), "boot-1"), "boot-2")
    assert node.boot_id == "boot-2"
    assert apply_boot(node, "boot-1") == node
    assert apply_boot(node, "") == node


def test_an_inventory_replaces_what_the_node_has() -> None:
    inventory = Inventory(nics=("mlx5_0/1",), disks=("nvme0n1",), gpus_expected=8)
    node = apply_inventory(NodeRecord("n1", 1.0, nics=("eth0",)), inventory, 5.0)
    assert (node.nics, node.disks, node.gpus_expected, node.inventory_at) == (
        ("mlx5_0/1",),
        ("nvme0n1",),
        8,
        5.0,
    )
