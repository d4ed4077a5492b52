"""Every public file of storage and hosts is read without an exception.

Some were captured on real machines, some edited for the tests of other projects. What they say is
counted, not trusted; values are checked on trees of our own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.host import HostCollector
from gpuwarden_agent.collectors.mounts import MountCollector
from gpuwarden_agent.collectors.storage import StorageCollector
from gpuwarden_agent.collectors.storage_paths import count_degraded
from gpuwarden_agent.sources.kernel_clock import ClockState
from gpuwarden_agent.sources.mount_stats import parse_mounts
from gpuwarden_agent.sources.proc_files import number_behind
from gpuwarden_agent.sources.smart_log import SMART_METRICS, parse_nvme_cli, parse_smartctl
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

FOLDER = os.environ.get("GPUWARDEN_PUBLIC_DATA", "")
pytestmark = pytest.mark.skipif(
    not (Path(FOLDER) / "storage").is_dir() if FOLDER else True,
    reason="GPUWARDEN_PUBLIC_DATA does not name the folder of public data",
)
STORAGE = Path(FOLDER) / "storage"
PROC = Path(FOLDER) / "node_exporter" / "proc"
SYS = Path(FOLDER) / "node_exporter" / "sys"


def _is_number(reading: Reading) -> bool:
    return isinstance(reading, float | int)


def test_every_report_of_smartctl_is_read() -> None:
    reports = sorted((STORAGE / "smartctl_json").glob("*.json"))
    assert len(reports) > 100
    of_nvme = 0
    for path in reports:
        text = path.read_bytes()
        row = parse_smartctl(text)
        if json.loads(text).get("device", {}).get("protocol") != "NVMe":
            assert row is None, path.name
            continue
        if row is None:
            assert "nvme_smart_health_information_log" not in json.loads(text), path.name
            continue
        of_nvme += 1
        assert set(row) == set(SMART_METRICS)
        assert all(_is_number(reading) for reading in row.values()), (path.name, row)
        temperature = row["disk_temperature_celsius"]
        assert isinstance(temperature, float | int)
        assert 0 < temperature < 100, path.name
    assert of_nvme > 20


def test_reports_of_the_other_tool_and_of_none_are_no_log() -> None:
    others = [path for path in STORAGE.rglob("*") if path.is_file() and path.suffix != ".json"]
    for path in others:
        assert parse_nvme_cli(path.read_bytes()) is None, path.name
        assert parse_smartctl(path.read_bytes()) is None, path.name


def test_mounts_of_node_exporters_tree() -> None:
    mounts = {one.point: one for one in parse_mounts((PROC / "10" / "mountstats").read_bytes())}
    assert set(mounts) == {"/mnt/nfs/test", "/mnt/nfs/test-dupe"}
    first = mounts["/mnt/nfs/test"].counters
    assert all(_is_number(reading) for reading in first.values()), first
    spoilt = mounts["/mnt/nfs/test-dupe"].counters
    assert spoilt["mount_queue_seconds_total"] == Unavailable("implausible_value")
    assert _is_number(spoilt["mount_execute_seconds_total"])
    assert all(one.transports is not None for one in mounts.values())


def test_hosts_and_disks_of_node_exporters_tree(tmp_path: Path) -> None:
    kept = ClockState(synchronised=True, offset_s=0.0, error_s=0.0)
    host = HostCollector(PROC, SYS, 5.0, 4.0, lambda: kept).collect(0.0)
    row = host.rows[EntityKind.NODE][""]
    odd = {metric: reading for metric, reading in row.items() if not _is_number(reading)}
    # the tree has no uptime, and its vmstat and meminfo are of old kernels
    assert set(odd) <= {"node_uptime_seconds", "node_memory_available_bytes"}, odd
    storage = StorageCollector(PROC, tmp_path, 5.0, 4.0).collect(0.0)
    disks = storage.rows[EntityKind.DISK]
    assert {"sda", "vda", "nvme0n1", "mmcblk0", "sdb", "sdc"} <= set(disks)
    assert "sda1" not in disks
    assert disks["sdc"]["disk_flush_seconds_total"] == pytest.approx(1.944)
    assert "disk_flush_seconds_total" not in disks["sda"]
    paths = StorageCollector(PROC, SYS, 5.0, 4.0).collect(0.0).rows[EntityKind.NODE][""]
    assert paths["node_nvme_controllers_down"] == 0
    # md4 is inactive, md6 and md7 lack a member; md219 is a container
    assert paths["node_md_arrays_degraded"] == 3


def test_every_other_file_of_the_tree_is_read_by_every_parser() -> None:
    files = [path for path in (*PROC.rglob("*"), *STORAGE.rglob("*")) if path.is_file()]
    assert len(files) > 100
    for path in files:
        text = path.read_bytes()
        list(parse_mounts(text))
        assert count_degraded(text) >= 0
        for key in (b"intr ", b"MemTotal:", b"pgpgout "):
            number_behind(text, key)
        parse_smartctl(text)
        parse_nvme_cli(text)


def test_mounts_of_a_tree_are_collected(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountstats").symlink_to(PROC / "10" / "mountstats")
    rows = MountCollector(tmp_path, 5.0, 4.0).collect(0.0).rows
    assert rows[EntityKind.NODE][""]["node_nfs_mounts"] == 2
