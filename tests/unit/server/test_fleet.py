from __future__ import annotations

from dataclasses import replace

from gpuwarden_verdict.context import Shortfall
from gpuwarden_verdict.engine.fleet import (
    GpuRecord,
    NodeRecord,
    apply_boot,
    apply_inventory,
    expected_of,
    gpu_in_slot,
    place_gpus,
    shortfall_of,
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
    node = apply_inventory(NodeRecord("n1", 1.0, nics=("eth0",)), inventory, 5.0, known=0)
    assert (node.nics, node.disks, node.gpus_expected, node.inventory_at) == (
        ("mlx5_0/1",),
        ("nvme0n1",),
        8,
        5.0,
    )


def after(node: NodeRecord, inventory: Inventory, known: int) -> int | None:
    return apply_inventory(node, inventory, 5.0, known).gpus_expected


def test_what_was_here_together_is_expected_though_the_agent_forgot() -> None:
    full = apply_inventory(NodeRecord("n1", 1.0), Inventory(gpus=(A, B), gpus_expected=2), 1.0, 2)
    forgetful = Inventory(gpus=(A,), gpus_expected=1)
    assert after(full, forgetful, known=2) == 2
    assert after(full, forgetful, known=1) == 1, "the other was seen in another node since"
    assert after(full, Inventory(gpus=(A,), gpus_expected=3), known=2) == 3
    assert after(full, Inventory(gpus=(A, B)), known=3) == 2, "a board that was exchanged"


def test_an_operators_number_holds_and_is_remembered_once_it_is_no_longer_set() -> None:
    full = apply_inventory(NodeRecord("n1", 1.0), Inventory(gpus=(A, B)), 1.0, 2)
    told = Inventory(gpus=(A,), gpus_expected=1, gpus_expected_set=True)
    smaller = apply_inventory(full, told, 2.0, 2)
    assert smaller.gpus_expected == 1
    assert after(smaller, Inventory(gpus=(A,), gpus_expected=1), known=2) == 1


def test_a_gpu_with_another_driver_on_purpose_is_not_expected() -> None:
    full = apply_inventory(NodeRecord("n1", 1.0), Inventory(gpus=(A, B)), 1.0, 2)
    handed = Inventory(gpus=(A,), gpus_expected=1, gpus_elsewhere=("0000:86:00.0",))
    node = apply_inventory(full, handed, 2.0, 2)
    assert node.gpus_expected == 1
    gone = replace(placed(B)["GPU-b"], present=False)
    assert shortfall_of(node, [gone], 0, {}) == Shortfall(released=("GPU-b",))


def test_what_is_missing_is_named_latest_first_and_a_finished_repair_releases_it() -> None:
    node = NodeRecord("n1", 1.0, gpus_expected=4)
    early = replace(placed(A, at=2.0)["GPU-a"], present=False)
    late = replace(placed(B, at=3.0)["GPU-b"], present=False)
    assert shortfall_of(node, [early, late], 1, {}) == Shortfall(("GPU-b", "GPU-a"), (), 1)
    repaired = shortfall_of(node, [early, late], 0, {"GPU-a": 4.0, "GPU-b": 1.0})
    assert repaired == Shortfall(("GPU-b",), ("GPU-a",), 1)


def test_what_left_for_good_is_not_expected() -> None:
    node = NodeRecord("n1", 1.0, gpus_expected=4)
    assert expected_of(node, 3, Shortfall(left=1)) == 3
    assert expected_of(node, 4, Shortfall(left=1)) == 4
    assert expected_of(node, 3, Shortfall(absent=("GPU-b",), left=1)) == 4
    assert expected_of(replace(node, gpus_expected_set=True), 3, Shortfall(left=1)) == 4
    assert expected_of(replace(node, gpus_expected=None), 3, Shortfall()) is None
