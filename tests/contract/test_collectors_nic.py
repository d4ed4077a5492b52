"""InfiniBand and RoCE ports and net interfaces, over small trees of our own, oddities included."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwarden_agent.collectors import rdma as rdma_module
from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.net import NetCollector
from gpuwarden_agent.collectors.rdma import RdmaCollector
from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.listings import RELIST_CYCLES
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME
from tests.builders.sysfs import Sysfs

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"
SWITCH = "pci0000:16/0000:16:01.0/0000:17:00.0"
NIC = f"{SWITCH}/0000:18:00.0/0000:19:00.0"

Rows = Mapping[str, Mapping[str, Reading]]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(NODE, tmp_path / "node"))


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path / "sys")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rdma(root: Path) -> RdmaCollector:
    return RdmaCollector(root, 5.0, 4.0, Clock())


def net(root: Path) -> NetCollector:
    return NetCollector(root, 5.0, 4.0, Clock())


def rows(collector: RdmaCollector | NetCollector) -> Rows:
    return collector.collect(0.0).rows[EntityKind.NIC]


def nics(node: Path) -> Rows:
    return {**rows(rdma(node / "sys")), **rows(net(node / "sys"))}


def test_a_port_that_works(node: Path) -> None:
    assert nics(node)["mlx5_0/1"] == {
        "nic_port_state": 4,
        "nic_port_physical_state": 5,
        "nic_rate_bytes_per_second": 50e9,
        "nic_received_bytes_total": 576349687 * 4,
        "nic_transmitted_bytes_total": 400,
        "nic_link_downed_total": 1,
        "nic_link_error_recovery_total": 0,
        "nic_symbol_errors_total": 3,
        "nic_receive_errors_total": 0,
        "nic_transmit_discards_total": 2,
        "nic_transmit_wait_total": 4294967296000,
    }


def test_each_odd_counter_of_a_port_says_why_and_the_others_are_read(node: Path) -> None:
    assert nics(node)["mlx5_1/1"] == {
        "nic_port_state": 1,
        "nic_port_physical_state": 2,
        "nic_rate_bytes_per_second": 2.5e9 / 8,
        "nic_received_bytes_total": Unavailable("no_pma"),
        "nic_transmitted_bytes_total": Unavailable("implausible_value"),
        "nic_link_downed_total": Unavailable("saturated"),
        "nic_symbol_errors_total": Unavailable("not_a_number"),
        "nic_receive_errors_total": Unavailable("empty_file"),
    }


def test_an_odd_port_does_not_take_the_others_along(node: Path) -> None:
    shutil.rmtree(node / "sys/class/infiniband/mlx5_1/ports/1/counters")
    (node / "sys/class/infiniband/mlx5_1/ports/1/counters").write_text("a file, of all things")
    found = nics(node)
    assert found["mlx5_0/1"]["nic_link_downed_total"] == 1
    assert found["mlx5_2/1"] == {"nic_port_state": 4}
    assert found["mlx5_1/1"]["nic_link_downed_total"] == Unavailable("no_such_file")


def test_only_physical_interfaces_are_read(node: Path) -> None:
    assert {name for name in nics(node) if "/" not in name} == {"eth0", "eth1", "eth2", "eth3"}


def test_an_interface_with_a_link(node: Path) -> None:
    assert nics(node)["eth0"] == {
        "nic_carrier": 1,
        "nic_rate_bytes_per_second": 12.5e9,
        "nic_received_bytes_total": 412991106,
        "nic_transmitted_bytes_total": 730575,
        "nic_receive_errors_total": 0,
        "nic_transmit_discards_total": 4,
        "nic_carrier_changes_total": 2,
    }


def test_links_down_off_and_of_drivers_that_do_not_say(node: Path) -> None:
    found = nics(node)
    assert found["eth1"]["nic_carrier"] == 0
    assert found["eth1"]["nic_rate_bytes_per_second"] == Unavailable("speed_unknown")
    assert found["eth2"]["nic_carrier"] == Unavailable("administratively_down")
    assert found["eth3"]["nic_carrier"] == 1


def test_a_file_that_answers_einval_costs_one_reading(node: Path) -> None:
    if not Path("/sys/class/net/lo/speed").exists():
        pytest.skip("no sysfs of the loopback interface here")
    (node / "sys/class/net/eth0/speed").unlink()
    (node / "sys/class/net/eth0/speed").symlink_to("/sys/class/net/lo/speed")
    row = nics(node)["eth0"]
    assert row["nic_rate_bytes_per_second"] == Unavailable("invalid_argument")
    assert row["nic_received_bytes_total"] == 412991106


def test_a_counter_that_vanishes_says_so(node: Path) -> None:
    collector = rdma(node / "sys")
    collector.collect(0.0)
    (node / "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed").unlink()
    row = collector.collect(5.0).rows[EntityKind.NIC]["mlx5_0/1"]
    assert row["nic_link_downed_total"] == Unavailable("no_such_file")
    assert row["nic_symbol_errors_total"] == 3


def test_a_port_that_vanishes_says_so(node: Path) -> None:
    collector = rdma(node / "sys")
    collector.collect(0.0)
    shutil.rmtree(node / "sys/class/infiniband/mlx5_0")
    harvest = collector.collect(5.0)
    assert set(harvest.rows[EntityKind.NIC]["mlx5_0/1"].values()) == {Unavailable("no_such_device")}
    assert harvest.inventory is not None
    assert "mlx5_0/1" not in harvest.inventory.nics


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(node: Path) -> None:
    (node / "sys/class/infiniband/mlx5_0/ports/1/state").chmod(0)
    assert nics(node)["mlx5_0/1"]["nic_port_state"] == Unavailable("permission_denied")


def test_a_machine_without_infiniband_has_no_ports(node: Path) -> None:
    shutil.rmtree(node / "sys/class/infiniband")
    assert set(nics(node)) == {"eth0", "eth1", "eth2", "eth3"}


@pytest.mark.parametrize("make", [rdma, net], ids=["rdma", "net"])
def test_each_keeps_the_contract(node: Path, make: type) -> None:
    collector = make(node / "sys")
    harvest = collector.collect(1000.0)
    for row in harvest.rows[EntityKind.NIC].values():
        for metric, reading in row.items():
            assert METRIC_BY_NAME[metric].entity_kind is EntityKind.NIC, metric
            assert not isinstance(reading, NotSupported), "left out instead"
    assert harvest.inventory is not None
    assert harvest.inventory.nics == tuple(harvest.rows[EntityKind.NIC])
    assert collector.collect(1005.0).inventory is None, "unchanged"
    collector.close()


@pytest.mark.parametrize("make", [rdma, net], ids=["rdma", "net"])
def test_each_reads_this_machine(make: type) -> None:
    collector = make(Path("/sys"))
    first, second = rows(collector), rows(collector)
    assert first.keys() == second.keys()
    collector.close()


def test_every_counter_of_a_port_comes_under_its_own_name(sysfs: Sysfs) -> None:
    counters = dict.fromkeys(rdma_module._COUNTERS, 1)
    hardware = dict.fromkeys(rdma_module._HARDWARE_COUNTERS, 1)
    sysfs.port("mlx5_0", counters=counters | {"port_rcv_data": 25}, hardware=hardware)
    row = rows(rdma(sysfs.root))["mlx5_0/1"]
    assert row["nic_received_bytes_total"] == 100
    assert row["nic_out_of_sequence_total"] == 1
    assert len(row) == 3 + len(counters) + len(hardware)
    assert set(row) <= set(METRIC_BY_NAME)


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("N/A (no PMA)", Unavailable("no_pma")),
        ("18446744073709551615", Unavailable("implausible_value")),
        ("9" * 4000, Unavailable("implausible_value")),
        ("-1", Unavailable("implausible_value")),
        ("", Unavailable("empty_file")),
        ("\x00\xff\xfe", Unavailable("not_a_number")),
        ("12 packets", Unavailable("not_a_number")),
        ("9223372036854775807", 9223372036854775807),
    ],
)
def test_an_odd_hardware_counter_costs_itself_only(
    sysfs: Sysfs, text: str, reading: Reading
) -> None:
    sysfs.port("mlx5_0", hardware={"out_of_sequence": text, "packet_seq_err": 7})
    row = rows(rdma(sysfs.root))["mlx5_0/1"]
    assert row["nic_out_of_sequence_total"] == reading
    assert row["nic_packet_sequence_errors_total"] == 7


def test_a_counter_that_has_no_bits_left_is_no_number(sysfs: Sysfs) -> None:
    stuck = {
        "link_downed": 255,
        "port_xmit_discards": 65535,
        "port_xmit_wait": 4294967295,
        "excessive_buffer_overrun_errors": 15,
    }
    sysfs.port("mlx5_0", counters=stuck | {"symbol_error": 255, "VL15_dropped": 15})
    row = rows(rdma(sysfs.root))["mlx5_0/1"]
    saturated = {metric for metric, value in row.items() if value == Unavailable("saturated")}
    assert saturated == {
        "nic_link_downed_total",
        "nic_transmit_discards_total",
        "nic_transmit_wait_total",
        "nic_buffer_overruns_total",
    }
    assert (row["nic_symbol_errors_total"], row["nic_vl15_dropped_total"]) == (255, 15)


def test_a_counter_that_goes_back_is_reported_as_it_is(sysfs: Sysfs) -> None:
    sysfs.port("mlx5_0", counters={"symbol_error": 40})
    collector = rdma(sysfs.root)
    collector.collect(0.0)
    sysfs.write({"class/infiniband/mlx5_0/ports/1/counters/symbol_error": 2})
    assert rows(collector)["mlx5_0/1"]["nic_symbol_errors_total"] == 2


def test_a_port_that_is_down_by_design_is_only_reported(sysfs: Sysfs) -> None:
    sysfs.port("mlx5_0", state="1: DOWN", physical="3: Disabled", rate="10 Gb/sec (4X SDR)")
    harvest = rdma(sysfs.root).collect(0.0)
    row = harvest.rows[EntityKind.NIC]["mlx5_0/1"]
    assert (row["nic_port_state"], row["nic_port_physical_state"]) == (1, 3)
    assert harvest.events == ()


def test_the_pci_side_stands_with_the_first_port_of_a_function(sysfs: Sysfs) -> None:
    sysfs.function(NIC)
    sysfs.pcie(NIC, 8, "16.0 GT/s PCIe", 16, "32.0 GT/s PCIe")
    sysfs.errors(NIC, 12, 3, 1)
    sysfs.port("mlx4_0", 1, function=NIC)
    sysfs.port("mlx4_0", 2, function=NIC)
    sysfs.interface("ib0", NIC)
    found = {**rows(rdma(sysfs.root)), **rows(net(sysfs.root))}
    with_link = {key for key, row in found.items() if "nic_pcie_link_width" in row}
    assert with_link == {"mlx4_0/1"}
    pci = {metric: value for metric, value in found["mlx4_0/1"].items() if _is_pci(metric)}
    assert pci == {
        "nic_pcie_link_width": 8,
        "nic_pcie_link_width_max": 16,
        "nic_pcie_link_generation": 4,
        "nic_pcie_link_generation_max": 5,
        "nic_aer_correctable_total": 12,
        "nic_aer_nonfatal_total": 3,
        "nic_aer_fatal_total": 1,
    }


def test_an_interface_without_an_rdma_port_tells_its_own_pci_side(sysfs: Sysfs) -> None:
    sysfs.function("pci0000:00/0000:00:03.0/virtio2")
    sysfs.write({"devices/pci0000:00/0000:00:03.0/current_link_width": 4})
    sysfs.interface("eth0", "pci0000:00/0000:00:03.0/virtio2")
    assert rows(net(sysfs.root))["eth0"]["nic_pcie_link_width"] == 4


@pytest.mark.parametrize(
    ("width", "speed", "readings"),
    [
        (0, "Unknown", (Unavailable("width_unknown"), Unavailable("speed_unknown"))),
        (255, "2.5 GT/s PCIe", (Unavailable("width_unknown"), 1)),
        (16, "8 GT/s", (16, 3)),
        (16, "7.0 GT/s PCIe", (16, Unavailable("speed_unknown"))),
        ("", "", (Unavailable("empty_file"), Unavailable("speed_unknown"))),
    ],
)
def test_odd_links_say_why(
    sysfs: Sysfs, width: object, speed: str, readings: tuple[Reading, Reading]
) -> None:
    sysfs.function(NIC)
    sysfs.pcie(NIC, width, speed, 16, "32.0 GT/s PCIe")
    sysfs.port("mlx5_0", function=NIC)
    row = rows(rdma(sysfs.root))["mlx5_0/1"]
    assert (row["nic_pcie_link_width"], row["nic_pcie_link_generation"]) == readings
    assert row["nic_pcie_link_width_max"] == 16


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("RxErr 3\nBadTLP 1\nTOTAL_ERR_COR 4", 4),
        ("TOTAL_ERR_COR 4\nNewLine 9", 4),
        ("RxErr 3", Unavailable("no_such_line")),
        ("", Unavailable("no_such_line")),
        ("TOTAL_ERR_COR many", Unavailable("not_a_number")),
        ("TOTAL_ERR_COR 99999999999999999999", Unavailable("not_a_number")),
    ],
)
def test_odd_error_files_say_why(sysfs: Sysfs, text: str, reading: Reading) -> None:
    sysfs.function(NIC)
    sysfs.errors(NIC, 0, 0, 0)
    sysfs.write({f"devices/{NIC}/aer_dev_correctable": text})
    sysfs.port("mlx5_0", function=NIC)
    row = rows(rdma(sysfs.root))["mlx5_0/1"]
    assert row["nic_aer_correctable_total"] == reading
    assert row["nic_aer_fatal_total"] == 0


def test_a_device_that_comes_is_seen_at_once_and_a_counter_at_the_next_close_look(
    sysfs: Sysfs,
) -> None:
    sysfs.port("mlx5_0", counters={"symbol_error": 1})
    collector = rdma(sysfs.root)
    collector.collect(0.0)
    sysfs.port("mlx5_1", counters={"symbol_error": 1})
    assert rows(collector)["mlx5_1/1"]["nic_symbol_errors_total"] == 1
    sysfs.write({"class/infiniband/mlx5_0/ports/1/counters/link_downed": 3})
    assert "nic_link_downed_total" not in rows(collector)["mlx5_0/1"]
    for _ in range(RELIST_CYCLES):
        found = rows(collector)
    assert found["mlx5_0/1"]["nic_link_downed_total"] == 3


def test_a_counter_that_vanished_says_so_after_the_next_close_look_too(sysfs: Sysfs) -> None:
    sysfs.port("mlx5_0", counters={"symbol_error": 1, "link_downed": 0})
    collector = rdma(sysfs.root)
    collector.collect(0.0)
    (sysfs.root / "class/infiniband/mlx5_0/ports/1/counters/symbol_error").unlink()
    for _ in range(RELIST_CYCLES + 1):
        row = rows(collector)["mlx5_0/1"]
        assert row["nic_symbol_errors_total"] == Unavailable("no_such_file")


def test_a_folder_that_cannot_be_listed_is_the_collectors_trouble(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for name, collector in (("infiniband", rdma(tmp_path)), ("net", net(tmp_path))):
        (tmp_path / "class" / name).write_text("a file, of all things")
        with pytest.raises(CollectorError) as caught:
            collector.collect(0.0)
        assert name in caught.value.mend


class TestCounterFiles:
    def test_an_attribute_of_sysfs_is_kept_open_and_read_anew(self) -> None:
        path = "/sys/class/net/lo/carrier_changes"
        if not Path(path).exists():
            pytest.skip("no sysfs of the loopback interface here")
        files = CounterFiles()
        assert [files.number(path), files.number(path)] == [0, 0]
        assert files.kept_open == 1
        files.retain(())
        assert files.kept_open == 0
        assert files.number(path) == 0
        files.close()
        assert files.kept_open == 0

    def test_an_attribute_that_answers_einval_is_not_kept(self) -> None:
        path = "/sys/class/net/lo/speed"
        if not Path(path).exists():
            pytest.skip("no sysfs of the loopback interface here")
        files = CounterFiles()
        assert files.number(path) == Unavailable("invalid_argument")
        assert files.kept_open == 0

    def test_a_file_that_stopped_answering_is_opened_anew(self, tmp_path: Path) -> None:
        path = "/sys/class/net/lo/carrier_changes"
        if not Path(path).exists():
            pytest.skip("no sysfs of the loopback interface here")
        link = tmp_path / "link"
        link.symlink_to(path)
        files = CounterFiles()
        assert files.number(str(link)) == 0
        unreadable, other_end = os.pipe()
        os.dup2(unreadable, files._open[str(link)])  # from now on reading it is an error
        os.close(unreadable)
        os.close(other_end)
        link.unlink()
        link.write_text("5\n")  # the device is back under its name
        assert files.number(str(link)) == 5

    def test_other_files_are_opened_for_each_read(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("1\n")
        files = CounterFiles()
        assert files.number(str(tmp_path / "file")) == 1
        (tmp_path / "file").unlink()
        assert files.number(str(tmp_path / "file")) == NotSupported()
        assert files.kept_open == 0

    def test_no_more_are_kept_open_than_it_may(self) -> None:
        folder = Path("/sys/class/net/lo/statistics")
        if not folder.exists():
            pytest.skip("no sysfs of the loopback interface here")
        files = CounterFiles(open_at_most=3)
        readings = [files.number(str(path)) for path in sorted(folder.iterdir())]
        assert all(isinstance(reading, int) for reading in readings)
        assert len(readings) > 3
        assert files.kept_open == 3
        files.close()


def _is_pci(metric: str) -> bool:
    return metric.startswith(("nic_pcie", "nic_aer"))
