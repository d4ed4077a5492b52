"""A real node_exporter and our native collectors over the same procfs and sysfs."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpuwarden_agent.agent import build_sources, make_context
from gpuwarden_agent.precedence import Kinds
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable
from tests.builders.agent import BOOT, agent_settings
from tests.builders.host_tree import EXPORT, MOUNT_POINT, UPTIME_S, host_tree
from tests.builders.processes import started
from tests.fakes.waiting import wait_for

PROGRAM = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(PROGRAM is None, reason="prometheus-node-exporter is not on PATH"),
]

COLLECTORS = (
    *("loadavg", "meminfo", "stat", "time", "vmstat", "pressure", "edac"),
    *("diskstats", "netdev", "netclass", "infiniband", "mountstats"),
)
NATIVE = "host,storage,rdma,net,hardware_errors,mounts"
Key = tuple[EntityKind, str, str]

# What both have; the release of node_exporter that Debian ships has no hw_counters.
NODE = {
    *("node_load1", "node_uptime_seconds", "node_memory_available_bytes"),
    *("node_memory_total_bytes", "node_swap_used_bytes", "node_processes_running"),
    *("node_processes_blocked", "node_interrupts_total", "node_context_switches_total"),
    *("node_pages_out_bytes_total", "node_pressure_cpu_seconds_total"),
    *("node_pressure_io_seconds_total", "node_pressure_io_full_seconds_total"),
    *("node_pressure_memory_seconds_total", "node_pressure_memory_full_seconds_total"),
    *("node_memory_corrected_errors_total", "node_memory_uncorrected_errors_total"),
}
DISK = {
    *("disk_reads_completed_total", "disk_read_bytes_total", "disk_read_seconds_total"),
    *("disk_writes_completed_total", "disk_written_bytes_total", "disk_write_seconds_total"),
    *("disk_in_flight", "disk_io_seconds_total", "disk_io_weighted_seconds_total"),
    *("disk_flushes_completed_total", "disk_flush_seconds_total"),
}
PORT = {
    *("nic_port_state", "nic_port_physical_state", "nic_rate_bytes_per_second"),
    *("nic_received_bytes_total", "nic_transmitted_bytes_total", "nic_link_downed_total"),
    *("nic_link_error_recovery_total", "nic_receive_errors_total"),
    *("nic_transmit_discards_total", "nic_transmit_wait_total"),
    *("nic_receive_constraint_errors_total", "nic_transmit_constraint_errors_total"),
}
INTERFACE = {
    *("nic_carrier", "nic_rate_bytes_per_second", "nic_carrier_changes_total"),
    *("nic_received_bytes_total", "nic_transmitted_bytes_total"),
    *("nic_receive_errors_total", "nic_transmit_discards_total"),
}
MOUNT = {
    *("mount_age_seconds", "mount_read_bytes_total", "mount_written_bytes_total"),
    *("mount_operations_total", "mount_queue_seconds_total", "mount_round_trip_seconds_total"),
    *("mount_execute_seconds_total", "mount_retransmits_total", "mount_major_timeouts_total"),
}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return host_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def url(trees: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a node_exporter over the trees."""
    proc, sysfs = trees
    log = tmp_path_factory.mktemp("log") / "node_exporter.log"
    command = [
        str(PROGRAM),
        f"--path.procfs={proc}",
        f"--path.sysfs={sysfs}",
        "--web.listen-address=127.0.0.1:0",
        "--collector.disable-defaults",
        "--no-collector.netdev.netlink",
        *(f"--collector.{name}" for name in COLLECTORS),
    ]
    with started(command, log):
        listening = re.compile(r'Listening on" address=(127\.0\.0\.1:\d+)')
        address = wait_for(lambda: listening.search(log.read_text()), what=str(log))
        yield f"http://{address[1]}/metrics"


def readings(folder: Path, trees: tuple[Path, Path], **flags: object) -> Mapping[Key, Reading]:
    """One call of each collector that the flags name."""
    proc, sysfs = trees
    settings = agent_settings(folder, proc_root=proc, sys_root=sysfs, **flags)
    sources = build_sources(make_context(settings, BOOT, time.time(), NoPositions()))
    found: dict[Key, Reading] = {}
    for collector in sources.collectors:
        rows: Kinds = collector.collect(time.time()).rows
        for kind, table in rows.items():
            for entity, row in table.items():
                found |= {(kind, entity, metric): one for metric, one in row.items()}
        collector.close()
    return found


class NoPositions:
    """Collectors keep none."""

    def load_position(self, follower: str) -> bytes | None:
        return None

    def commit_position(self, follower: str, position: bytes, events: object) -> None:
        return


@pytest.fixture
def both(
    tmp_path: Path, trees: tuple[Path, Path], url: str
) -> tuple[Mapping[Key, Reading], Mapping[Key, Reading]]:
    port = url.rpartition(":")[2].partition("/")[0]
    native = readings(tmp_path, trees, collectors=NATIVE)
    flags = {"exporters": f"node={url}", "collectors": f"exporter_{port}"}
    exported = readings(tmp_path, trees, exporter_deadline_s=30, **flags)
    return native, {_where_mounted(key): reading for key, reading in exported.items()}


def _where_mounted(key: Key) -> Key:
    """Releases without mountpoint_info name the export alone."""
    kind, entity, metric = key
    return kind, MOUNT_POINT if entity == EXPORT else entity, metric


def test_node_exporter_gives_what_our_collectors_give(
    both: tuple[Mapping[Key, Reading], Mapping[Key, Reading]],
) -> None:
    native, exported = both
    uptime = (EntityKind.NODE, "", "node_uptime_seconds")
    assert exported[uptime] == pytest.approx(UPTIME_S, abs=600)  # goes on while we look
    for key, reading in exported.items():
        if key == uptime:
            continue
        if isinstance(reading, float | int):
            assert reading == pytest.approx(native[key], rel=1e-9), key
        else:
            assert reading == native[key], key


def test_the_same_metrics_of_the_same_entities(
    both: tuple[Mapping[Key, Reading], Mapping[Key, Reading]],
) -> None:
    native, exported = both
    expected = {(EntityKind.NODE, "", metric) for metric in NODE}
    expected |= {(EntityKind.DISK, disk, m) for disk in ("nvme0n1", "sda") for m in DISK}
    expected |= {(EntityKind.NIC, port, m) for port in ("mlx5_0/1", "mlx5_1/1") for m in PORT}
    expected |= {(EntityKind.NIC, name, m) for name in ("eth0", "eth1") for m in INTERFACE}
    expected |= {(EntityKind.MOUNT, MOUNT_POINT, metric) for metric in MOUNT}
    assert expected <= native.keys()
    assert expected <= exported.keys()
    assert exported.keys() <= native.keys()


def test_a_link_that_is_down_or_off_is_no_different(
    both: tuple[Mapping[Key, Reading], Mapping[Key, Reading]],
) -> None:
    _, exported = both
    assert exported[EntityKind.NIC, "eth1", "nic_carrier"] == 0
    off = Unavailable("administratively_down")
    assert exported[EntityKind.NIC, "eth2", "nic_carrier"] == off
    unknown = Unavailable("speed_unknown")
    assert exported[EntityKind.NIC, "eth1", "nic_rate_bytes_per_second"] == unknown
