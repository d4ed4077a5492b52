"""Every file-reading collector over a small node of our own, its oddities included."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import Collector, CollectorError
from gpuwarden_agent.collectors.host import HostCollector
from gpuwarden_agent.collectors.seen import FORGET_AFTER_S
from gpuwarden_agent.collectors.storage import StorageCollector
from gpuwarden_agent.sources.kernel_clock import ClockState
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(NODE, tmp_path / "node"))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def kept_clock() -> ClockState:
    return ClockState(synchronised=True, offset_s=-0.00025, error_s=0.004)


def collectors(node: Path, clock: Clock | None = None) -> list[Collector]:
    proc, sys = node / "proc", node / "sys"
    clock = clock or Clock()
    return [
        HostCollector(proc, sys, 5.0, 4.0, kept_clock),
        StorageCollector(proc, sys, 5.0, 4.0, clock),
    ]


@pytest.mark.parametrize("index", range(2), ids=["host", "storage"])
def test_every_collector_keeps_the_contract(node: Path, index: int) -> None:
    collector = collectors(node)[index]
    harvest = collector.collect(1000.0)
    for kind, rows in harvest.rows.items():
        for entity, row in rows.items():
            assert (entity == "") == (kind is EntityKind.NODE)
            for metric, reading in row.items():
                assert METRIC_BY_NAME[metric].entity_kind is kind, metric
                assert not isinstance(reading, NotSupported), "left out instead"
                assert isinstance(reading, float | int | Unavailable)
    assert harvest.inventory is not None
    assert collector.collect(1005.0).inventory is None, "unchanged"
    assert collector.interval_s == 5.0
    collector.close()


@pytest.mark.parametrize("index", range(2), ids=["host", "storage"])
def test_every_collector_reads_this_machine(index: int) -> None:
    harvest = collectors(Path("/"))[index].collect(1000.0)
    assert set(harvest.rows) <= set(EntityKind)


def test_host_readings_are_in_base_units(node: Path) -> None:
    row = collectors(node)[0].collect(0.0).rows[EntityKind.NODE][""]
    assert row == {
        "node_interrupts_total": 3600123456,
        "node_context_switches_total": 9876543210,
        "node_processes_running": 7,
        "node_processes_blocked": 2,
        "node_pages_out_bytes_total": 2048 * 1024,
        "node_memory_available_bytes": 1900000000 * 1024,
        "node_memory_total_bytes": 2113527168 * 1024,
        "node_swap_used_bytes": 262144 * 1024,
        "node_hung_tasks_total": 3,
        "node_clock_synchronised": 1.0,
        "node_clock_offset_seconds": -0.00025,
        "node_clock_error_seconds": 0.004,
        "node_load1": 12.34,
        "node_uptime_seconds": 86400.50,
        "node_pressure_cpu_seconds_total": pytest.approx(4.623501),
        "node_pressure_io_seconds_total": pytest.approx(5.307014),
        "node_pressure_io_full_seconds_total": pytest.approx(5.160217),
        "node_pressure_memory_seconds_total": 0.0,
        "node_pressure_memory_full_seconds_total": 0.0,
    }


def test_host_labels_name_kernel_and_product(node: Path) -> None:
    inventory = collectors(node)[0].collect(0.0).inventory
    assert inventory is not None
    assert inventory.labels == {
        "kernel_release": "6.8.0-51-generic",
        "product_name": "DGX H100",
        "product_vendor": "NVIDIA",
    }


def test_a_kernel_without_pressure_files_has_no_pressure_readings(node: Path) -> None:
    shutil.rmtree(node / "proc" / "pressure")
    row = collectors(node)[0].collect(0.0).rows[EntityKind.NODE][""]
    assert not [metric for metric in row if "pressure" in metric]
    assert row["node_load1"] == 12.34


def test_odd_host_files_cost_only_their_own_readings(node: Path) -> None:
    (node / "proc" / "stat").write_text("ctxt many\n")
    (node / "proc" / "loadavg").write_text("")
    (node / "proc" / "vmstat").unlink()
    (node / "proc" / "pressure" / "io").write_text("some avg10=0.00 total=x\n")
    row = collectors(node)[0].collect(0.0).rows[EntityKind.NODE][""]
    assert row["node_context_switches_total"] == Unavailable("not_a_number")
    assert row["node_interrupts_total"] == Unavailable("no_such_line")
    assert row["node_load1"] == Unavailable("not_a_number")
    assert row["node_pages_out_bytes_total"] == Unavailable("no_such_file")
    assert row["node_pressure_io_seconds_total"] == Unavailable("not_a_number")
    assert row["node_pressure_io_full_seconds_total"] == Unavailable("no_such_line")
    assert row["node_uptime_seconds"] == 86400.50


def test_no_procfs_is_the_collectors_trouble(tmp_path: Path) -> None:
    for collector in collectors(tmp_path):
        with pytest.raises(CollectorError) as caught:
            collector.collect(0.0)
        assert str(tmp_path) in caught.value.mend


def test_only_whole_physical_disks_are_read(node: Path) -> None:
    harvest = collectors(node)[1].collect(0.0)
    assert set(harvest.rows[EntityKind.DISK]) == {"nvme0n1", "sda"}
    assert harvest.inventory is not None
    assert harvest.inventory.disks == ("nvme0n1", "sda")
    assert harvest.rows[EntityKind.DISK]["nvme0n1"] == {
        "disk_reads_completed_total": 8512,
        "disk_read_bytes_total": 1048576 * 512,
        "disk_read_seconds_total": 0.931,
        "disk_writes_completed_total": 7700,
        "disk_written_bytes_total": 61600 * 512,
        "disk_write_seconds_total": 1.204,
        "disk_in_flight": 3,
        "disk_io_seconds_total": pytest.approx(0.943),
        "disk_io_weighted_seconds_total": pytest.approx(2.135),
        "disk_flushes_completed_total": 15,
        "disk_flush_seconds_total": 0.04,
    }


def test_a_disk_line_cut_short_says_so(node: Path) -> None:
    row = collectors(node)[1].collect(0.0).rows[EntityKind.DISK]["sda"]
    assert row["disk_write_seconds_total"] == 0.005
    assert row["disk_in_flight"] == Unavailable("line_cut_short")


def test_without_sysfs_names_tell_whole_disks(node: Path) -> None:
    shutil.rmtree(node / "sys" / "class" / "block")
    assert set(collectors(node)[1].collect(0.0).rows[EntityKind.DISK]) == {"nvme0n1", "sda"}


def test_a_disk_that_vanishes_says_so_for_an_hour_and_leaves_the_inventory(node: Path) -> None:
    clock = Clock()
    storage = collectors(node, clock)[1]
    storage.collect(0.0)
    lines = (node / "proc" / "diskstats").read_text().splitlines()
    kept = [line for line in lines if "nvme0n1" not in line]
    (node / "proc" / "diskstats").write_text("\n".join(kept))
    harvest = storage.collect(5.0)
    gone = harvest.rows[EntityKind.DISK]["nvme0n1"]
    assert set(gone.values()) == {Unavailable("no_such_device")}
    assert len(gone) == 11
    assert harvest.inventory is not None
    assert harvest.inventory.disks == ("sda",)
    clock.now = FORGET_AFTER_S + 1
    assert "nvme0n1" not in storage.collect(4000.0).rows[EntityKind.DISK]
