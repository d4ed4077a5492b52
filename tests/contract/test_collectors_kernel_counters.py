"""Driver statistics by ioctl, memory controllers and NVMe's PCI errors, over trees of our own."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.ethtool import EthtoolCollector
from gpuwarden_agent.collectors.hardware_errors import HardwareErrorCollector
from gpuwarden_agent.sources.ethtool import EthtoolSocket
from gpuwarden_agent.sources.listings import RELIST_CYCLES
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME
from tests.builders.sysfs import Sysfs

NIC = "pci0000:16/0000:16:01.0/0000:19:00.0"
DISK = "pci0000:00/0000:00:1d.0/0000:03:00.0"
CONTROLLER = f"{DISK}/nvme/nvme0"


class Clock:
    def __call__(self) -> float:
        return 0.0


class FakeStatistics:
    """Statistics of a driver as the kernel would give them, by interface."""

    def __init__(self, **interfaces: dict[str, int]) -> None:
        self.interfaces = interfaces
        self.refusals: dict[str, int] = {}
        self.asked_names = 0

    def names(self, interface: str) -> tuple[str, ...]:
        self.asked_names += 1
        self._refuse(interface)
        return tuple(self.interfaces[interface])

    def values(self, interface: str, count: int) -> Sequence[int] | None:
        self._refuse(interface)
        values = list(self.interfaces[interface].values())
        return values if len(values) == count else None

    def close(self) -> None:
        self.interfaces = {}

    def _refuse(self, interface: str) -> None:
        number = self.refusals.get(interface, 0 if interface in self.interfaces else errno.ENODEV)
        if number:
            raise OSError(number, os.strerror(number))


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    sysfs = Sysfs(tmp_path)
    sysfs.function(NIC)
    sysfs.interface("eth0", NIC)
    sysfs.interface("eth1", NIC)
    return sysfs


def mlx5(**values: int) -> dict[str, int]:
    """Statistics as mlx5_core lists them: per-queue and software ones around those we name."""
    return {"rx_packets": 1, "ch0_poll": 2, **values, "rx0_packets": 3}


def ethtool(sysfs: Sysfs, source: FakeStatistics) -> EthtoolCollector:
    return EthtoolCollector(sysfs.root, source, 15.0, 4.0, Clock())


def read(collector: EthtoolCollector) -> dict[str, dict[str, Reading]]:
    found = collector.collect(0.0).rows[EntityKind.NIC]
    return {key: dict(row) for key, row in found.items()}


class TestEthtool:
    def test_only_the_named_statistics_are_read_in_base_units(self, sysfs: Sysfs) -> None:
        statistics = mlx5(
            rx_prio3_pause=7,
            rx_prio3_pause_duration=2_500_000,
            tx_prio0_pause=1,
            tx_prio7_pause_duration=4,
            rx_symbol_err_phy=11,
            rx_pcs_symbol_err_phy=12,
            rx_corrected_bits_phy=13,
            link_down_events_phy=14,
            rx_discards_phy=15,
            tx_discards_phy=16,
        )
        source = FakeStatistics(eth0=statistics, eth1={"rx_queue_0_packets": 1})
        found = read(ethtool(sysfs, source))
        assert found == {
            "eth0": {
                "nic_pause_received_priority3_total": 7,
                "nic_pause_received_priority3_seconds_total": pytest.approx(2.5),
                "nic_pause_sent_priority0_total": 1,
                "nic_pause_sent_priority7_seconds_total": pytest.approx(4e-6),
                "nic_phy_symbol_errors_total": 11,
                "nic_phy_pcs_symbol_errors_total": 12,
                "nic_phy_corrected_bits_total": 13,
                "nic_phy_link_downs_total": 14,
                "nic_phy_receive_discards_total": 15,
                "nic_phy_transmit_discards_total": 16,
            }
        }
        assert set(found["eth0"]) <= set(METRIC_BY_NAME)

    def test_names_are_asked_for_only_now_and_then(self, sysfs: Sysfs) -> None:
        source = FakeStatistics(eth0=mlx5(rx_discards_phy=1), eth1=mlx5(rx_discards_phy=1))
        collector = ethtool(sysfs, source)
        for _ in range(RELIST_CYCLES):
            collector.collect(0.0)
        assert source.asked_names == 2
        collector.collect(0.0)
        assert source.asked_names == 4

    def test_statistics_that_moved_are_not_taken_for_others(self, sysfs: Sysfs) -> None:
        source = FakeStatistics(eth0=mlx5(rx_discards_phy=1), eth1={})
        collector = ethtool(sysfs, source)
        collector.collect(0.0)
        source.interfaces["eth0"] = {"ch1_poll": 99, **mlx5(rx_discards_phy=5)}
        assert read(collector)["eth0"] == {
            "nic_phy_receive_discards_total": Unavailable("statistics_changed")
        }
        assert read(collector)["eth0"] == {"nic_phy_receive_discards_total": 5}

    def test_an_interface_that_refuses_does_not_take_the_others_along(self, sysfs: Sysfs) -> None:
        source = FakeStatistics(eth0=mlx5(rx_discards_phy=1), eth1=mlx5(rx_discards_phy=2))
        collector = ethtool(sysfs, source)
        collector.collect(0.0)
        source.refusals["eth0"] = errno.EIO
        assert read(collector) == {
            "eth0": {"nic_phy_receive_discards_total": Unavailable("io_error")},
            "eth1": {"nic_phy_receive_discards_total": 2},
        }

    def test_a_value_that_the_driver_could_not_read_is_no_number(self, sysfs: Sysfs) -> None:
        source = FakeStatistics(eth0=mlx5(rx_discards_phy=2**64 - 1, rx_symbol_err_phy=4), eth1={})
        row = read(ethtool(sysfs, source))["eth0"]
        assert row["nic_phy_receive_discards_total"] == Unavailable("implausible_value")
        assert row["nic_phy_symbol_errors_total"] == 4

    def test_nobody_who_answers_is_the_collectors_trouble(self, sysfs: Sysfs) -> None:
        source = FakeStatistics(eth0={}, eth1={})
        source.refusals = {"eth0": errno.EPERM, "eth1": errno.EPERM}
        collector = ethtool(sysfs, source)
        with pytest.raises(CollectorError) as caught:
            collector.collect(0.0)
        assert caught.value.reason == "permission_denied"
        assert "network namespace" in caught.value.mend
        source.refusals.clear()
        source.interfaces["eth0"] = mlx5(rx_discards_phy=3)
        assert read(collector)["eth0"] == {"nic_phy_receive_discards_total": 3}

    def test_a_machine_without_physical_interfaces_has_no_rows(self, tmp_path: Path) -> None:
        assert read(ethtool(Sysfs(tmp_path), FakeStatistics())) == {}


class TestEthtoolSocket:
    """The real kernel of this machine."""

    def test_every_interface_gives_as_many_values_as_names(self) -> None:
        source = EthtoolSocket()
        counts = {}
        for path in sorted(Path("/sys/class/net").iterdir()):
            if not path.is_dir():
                continue
            names = source.names(path.name)
            values = source.values(path.name, len(names)) if names else ()
            counts[path.name] = (len(names), None if values is None else len(values))
            assert all(name.isprintable() for name in names)
        source.close()
        assert counts.get("lo", (0, 0)) == (0, 0), "the loopback driver keeps none"
        assert {names == values for names, values in counts.values()} <= {True}

    def test_another_count_than_the_drivers_is_refused(self) -> None:
        source = EthtoolSocket()
        for path in Path("/sys/class/net").iterdir():
            if path.is_dir() and (names := source.names(path.name)):
                assert source.values(path.name, len(names) + 1) is None
                source.close()
                return
        source.close()
        pytest.skip("no driver with statistics here")

    @pytest.mark.parametrize("name", ["gpuwarden-none", "a-name-too-long-for-the-kernel"])
    def test_an_interface_that_is_not_there_is_no_device(self, name: str) -> None:
        source = EthtoolSocket()
        with pytest.raises(OSError) as caught:
            source.names(name)
        source.close()
        assert caught.value.errno == errno.ENODEV


def hardware_errors(sysfs: Sysfs) -> HardwareErrorCollector:
    return HardwareErrorCollector(sysfs.root, 5.0, 4.0, Clock())


def add_disk(sysfs: Sysfs) -> None:
    sysfs.function(DISK)
    sysfs.function(CONTROLLER)
    sysfs.errors(DISK, 5, 0, 1)
    sysfs.link("class/block/nvme0n1/device", f"devices/{CONTROLLER}")
    sysfs.link("class/block/nvme0n1p1/device", f"devices/{CONTROLLER}")


class TestHardwareErrors:
    def test_memory_errors_are_summed_over_controllers(self, tmp_path: Path) -> None:
        sysfs = Sysfs(tmp_path)
        for number, (corrected, uncorrected) in enumerate(((3, 0), (4, 1))):
            folder = f"devices/system/edac/mc/mc{number}"
            sysfs.write({f"{folder}/ce_count": corrected, f"{folder}/ue_count": uncorrected})
        sysfs.write({"devices/system/edac/mc/power/control": "auto"})
        collector = hardware_errors(sysfs)
        assert collector.collect(0.0).rows == {
            EntityKind.NODE: {
                "": {
                    "node_memory_corrected_errors_total": 7,
                    "node_memory_uncorrected_errors_total": 1,
                }
            },
            EntityKind.DISK: {},
        }

    def test_one_controller_that_cannot_be_read_makes_the_sum_unknown(self, tmp_path: Path) -> None:
        sysfs = Sysfs(tmp_path)
        for number, text in enumerate((3, "N/A")):
            folder = f"devices/system/edac/mc/mc{number}"
            sysfs.write({f"{folder}/ce_count": text, f"{folder}/ue_count": 0})
        row = hardware_errors(sysfs).collect(0.0).rows[EntityKind.NODE][""]
        assert row == {
            "node_memory_corrected_errors_total": Unavailable("not_available"),
            "node_memory_uncorrected_errors_total": 0,
        }

    def test_controllers_that_vanish_say_so(self, tmp_path: Path) -> None:
        sysfs = Sysfs(tmp_path)
        sysfs.write({"devices/system/edac/mc/mc0/ce_count": 3})
        collector = hardware_errors(sysfs)
        first = collector.collect(0.0).rows[EntityKind.NODE][""]
        assert first["node_memory_corrected_errors_total"] == 3
        assert first["node_memory_uncorrected_errors_total"] == Unavailable("no_such_file")
        (tmp_path / "devices/system/edac/mc/mc0/ce_count").unlink()
        row = collector.collect(5.0).rows[EntityKind.NODE][""]
        assert row["node_memory_corrected_errors_total"] == Unavailable("no_such_file")

    def test_a_machine_without_any_has_no_rows(self, tmp_path: Path) -> None:
        rows = hardware_errors(Sysfs(tmp_path)).collect(0.0).rows
        assert rows == {EntityKind.NODE: {}, EntityKind.DISK: {}}

    def test_pci_errors_stand_with_the_disk(self, tmp_path: Path) -> None:
        sysfs = Sysfs(tmp_path)
        add_disk(sysfs)
        assert hardware_errors(sysfs).collect(0.0).rows[EntityKind.DISK] == {
            "nvme0n1": {
                "disk_aer_correctable_total": 5,
                "disk_aer_nonfatal_total": 0,
                "disk_aer_fatal_total": 1,
            }
        }

    def test_a_multipath_disk_is_found_through_its_subsystem(self, tmp_path: Path) -> None:
        sysfs = Sysfs(tmp_path)
        sysfs.function(DISK)
        sysfs.function(f"{CONTROLLER}/device")
        sysfs.errors(DISK, 5, 0, 1)
        subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0"
        sysfs.write({f"{subsystem}/model": "SAMSUNG MZQL21T9HCJR-00A07"})
        sysfs.link(f"{subsystem}/nvme0", f"devices/{CONTROLLER}")
        sysfs.link("class/block/nvme0n1/device", subsystem)
        row = hardware_errors(sysfs).collect(0.0).rows[EntityKind.DISK]["nvme0n1"]
        assert row["disk_aer_fatal_total"] == 1

    def test_a_disk_that_leaves_the_bus_says_so(self, tmp_path: Path) -> None:
        sysfs = Sysfs(tmp_path)
        add_disk(sysfs)
        collector = hardware_errors(sysfs)
        collector.collect(0.0)
        (tmp_path / "class/block/nvme0n1/device").unlink()
        (tmp_path / "class/block/nvme0n1").rmdir()
        row = collector.collect(5.0).rows[EntityKind.DISK]["nvme0n1"]
        assert set(row.values()) == {Unavailable("no_such_device")}

    def test_this_machine_is_read(self) -> None:
        collector = HardwareErrorCollector(Path("/sys"), 5.0, 4.0, Clock())
        assert set(collector.collect(0.0).rows) == {EntityKind.NODE, EntityKind.DISK}
        collector.close()
