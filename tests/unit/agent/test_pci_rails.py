from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuwarden_agent.sources.pci_rails import PciRails
from tests.builders.sysfs import Sysfs

SWITCH_A = "pci0000:16/0000:16:01.0/0000:17:00.0"
SWITCH_B = "pci0000:16/0000:16:03.0/0000:27:00.0"
FAR_ROOT = "pci0000:89/0000:89:01.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """Two switches under one root with a GPU and a NIC each, and a NIC alone under another root."""
    sysfs = Sysfs(tmp_path)
    sysfs.function(f"{SWITCH_A}/0000:18:00.0/0000:19:00.0")  # GPU A
    sysfs.function(f"{SWITCH_B}/0000:28:00.0/0000:29:00.0")  # GPU B
    for device, path in (
        ("mlx5_0", f"{SWITCH_A}/0000:18:01.0/0000:1a:00.0"),
        ("mlx5_1", f"{SWITCH_B}/0000:28:01.0/0000:2a:00.0"),
        ("mlx5_2", f"{FAR_ROOT}/0000:8a:00.0"),
    ):
        sysfs.function(path)
        sysfs.port(device, function=path)
    return sysfs


A, B = "0000:19:00.0", "0000:29:00.0"


def test_a_gpus_rail_is_the_nic_behind_its_own_switch(sysfs: Sysfs) -> None:
    assert PciRails(sysfs.root).nearest([A, B]) == {A: ("mlx5_0/1",), B: ("mlx5_1/1",)}


def test_without_one_behind_the_switch_those_under_the_same_root_are_nearest(sysfs: Sysfs) -> None:
    shutil.rmtree(sysfs.root / "class/infiniband/mlx5_0")
    sysfs.function("pci0000:16/0000:16:05.0/0000:37:00.0")
    sysfs.port("mlx5_5", function="pci0000:16/0000:16:05.0/0000:37:00.0")
    assert PciRails(sysfs.root).nearest([A])[A] == ("mlx5_1/1", "mlx5_5/1")


def test_several_ports_that_are_equally_near_are_all_named(sysfs: Sysfs) -> None:
    sysfs.port("mlx5_0", 2)
    assert PciRails(sysfs.root).nearest([A])[A] == ("mlx5_0/1", "mlx5_0/2")


def test_another_root_is_no_rail(sysfs: Sysfs) -> None:
    sysfs.function("pci0000:ba/0000:ba:01.0/0000:bb:00.0")
    assert PciRails(sysfs.root).nearest(["0000:bb:00.0"])["0000:bb:00.0"] == ()


def test_a_gpu_that_is_off_the_bus_has_none(sysfs: Sysfs) -> None:
    assert PciRails(sysfs.root).nearest(["0000:ff:00.0"])["0000:ff:00.0"] == ()


def test_a_nic_whose_driver_loads_later_is_found(sysfs: Sysfs) -> None:
    rails = PciRails(sysfs.root)
    shutil.rmtree(sysfs.root / "class")
    assert rails.nearest([A])[A] == ()
    path = f"{SWITCH_A}/0000:18:01.0/0000:1a:00.0"
    sysfs.port("mlx5_0", function=path)
    assert rails.nearest([A])[A] == ("mlx5_0/1",)


def test_a_device_without_a_pci_function_is_no_rail(sysfs: Sysfs) -> None:
    shutil.rmtree(sysfs.root / "class/infiniband/mlx5_0")
    sysfs.port("rxe0")  # software RoCE: no device behind it
    assert PciRails(sysfs.root).nearest([A])[A] == ("mlx5_1/1",)
