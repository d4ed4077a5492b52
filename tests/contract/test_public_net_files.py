"""Every public file of ports, drivers and PCI functions is read without an exception.

Some were captured on real machines, some edited for the tests of other projects. What they say is
counted, not trusted; values are checked on trees of our own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.ethtool import EthtoolCollector
from gpuwarden_agent.collectors.hardware_errors import HardwareErrorCollector
from gpuwarden_agent.collectors.net import NetCollector
from gpuwarden_agent.collectors.rdma import RdmaCollector
from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.pci_functions import parse_error_total
from gpuwarden_agent.sources.pci_rails import PciRails
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable
from tests.builders.sysfs import Sysfs

FOLDER = os.environ.get("GPUWARDEN_PUBLIC_DATA", "")
pytestmark = pytest.mark.skipif(
    not (Path(FOLDER) / "net_ib").is_dir() if FOLDER else True,
    reason="GPUWARDEN_PUBLIC_DATA does not name the folder of public data",
)
SYS = Path(FOLDER) / "node_exporter" / "sys"


def rdma_rows(infiniband: Path, tmp_path: Path) -> dict[str, dict[str, Reading]]:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "infiniband").symlink_to(infiniband)
    found = RdmaCollector(tmp_path, 5.0, 4.0).collect(0.0).rows[EntityKind.NIC]
    return {key: dict(row) for key, row in found.items()}


def test_the_ports_of_a_real_h100_node(tmp_path: Path) -> None:
    rows = rdma_rows(Path(FOLDER) / "net_ib" / "sys_class_infiniband_h100", tmp_path)
    assert set(rows) == {f"mlx5_{n}/1" for n in (0, 1, 4, 5, 6, 7)}
    for row in rows.values():
        assert row["nic_port_state"] in range(1, 6)
        assert "nic_out_of_sequence_total" in row
    missing = {
        (key, metric, reading)
        for key, row in rows.items()
        for metric, reading in row.items()
        if not _is_number(reading)
    }
    assert {reading for _, _, reading in missing} == {Unavailable("saturated")}, missing


def test_the_ports_of_node_exporters_tree(tmp_path: Path) -> None:
    rows = rdma_rows(SYS / "class" / "infiniband", tmp_path)
    assert {"mlx4_0/1", "mlx4_0/2", "i40iw0/1"} <= set(rows)
    assert rows["i40iw0/1"]["nic_received_bytes_total"] == Unavailable("no_pma")
    assert _is_number(rows["mlx4_0/1"]["nic_received_bytes_total"])


def test_a_saturated_port_of_a_public_report(tmp_path: Path) -> None:
    text = (Path(FOLDER) / "net_ib" / "text" / "ib_counters_saturated_gpud943.txt").read_text()
    counters = dict(line.split() for line in text.splitlines() if line.strip())
    sysfs = Sysfs(tmp_path)
    sysfs.port("mlx5_0", counters=counters)
    row = RdmaCollector(tmp_path, 5.0, 4.0).collect(0.0).rows[EntityKind.NIC]["mlx5_0/1"]
    saturated = {metric for metric, value in row.items() if value == Unavailable("saturated")}
    assert saturated == {
        "nic_link_downed_total",
        "nic_transmit_discards_total",
        "nic_transmit_wait_total",
        "nic_buffer_overruns_total",
    }
    assert row["nic_received_bytes_total"] == int(counters["port_rcv_data"]) * 4


def test_interfaces_memory_and_disks_of_node_exporters_tree() -> None:
    net = NetCollector(SYS, 5.0, 4.0)
    assert set(net.collect(0.0).rows) == {EntityKind.NIC}
    errors = HardwareErrorCollector(SYS, 5.0, 4.0)
    row = errors.collect(0.0).rows[EntityKind.NODE][""]
    assert _is_number(row["node_memory_corrected_errors_total"])
    assert _is_number(row["node_memory_uncorrected_errors_total"])
    assert PciRails(SYS).nearest(["0000:45:00.0"]) == {"0000:45:00.0": ()}
    for one in (net, errors):
        one.close()


def test_every_error_file_has_its_total() -> None:
    texts = [path.read_text() for path in SYS.rglob("aer_dev_*")]
    assert texts
    assert all(_is_number(parse_error_total(text)) for text in texts)


def test_every_file_is_a_number_or_says_why() -> None:
    files = CounterFiles()
    read = 0
    for path in _files(Path(FOLDER) / "net_ib", SYS):
        reading = files.number(str(path))
        assert _is_number(reading) or isinstance(reading, Unavailable), path
        files.text(str(path))
        parse_error_total(path.read_text(errors="replace"))
        read += 1
    assert read > 1_000
    assert files.kept_open == 0


class TextStatistics:
    """What `ethtool -S` printed, given as the kernel gives it: "     rx_packets: 1260062"."""

    def __init__(self, text: str) -> None:
        pairs = [line.rpartition(":") for line in text.splitlines()]
        self._pairs = [(name.strip(), value) for name, _, value in pairs if value.strip()]

    def names(self, interface: str) -> tuple[str, ...]:
        return tuple(name for name, _ in self._pairs)

    def values(self, interface: str, count: int) -> Sequence[int] | None:
        return [int(value) for _, value in self._pairs]

    def close(self) -> None:
        self._pairs = []


def test_driver_statistics_that_people_posted(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path)
    sysfs.function("pci0000:00/0000:00:1f.6")
    sysfs.interface("eth0", "pci0000:00/0000:00:1f.6")
    folder = Path(FOLDER) / "net_ib"
    texts = [*folder.glob("ethtool/*/statistics"), *folder.glob("text/ethtool_S_*")]
    assert len(texts) == 3
    for path in texts:
        source = TextStatistics(path.read_text())
        assert source.names("eth0") or path.parent.name == "bond0", path
        rows = EthtoolCollector(tmp_path, source, 15.0, 4.0).collect(0.0).rows[EntityKind.NIC]
        assert all(_is_number(reading) for row in rows.values() for reading in row.values())


def _files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted(folder.rglob("*")) if path.is_file())


def _is_number(reading: Reading) -> bool:
    return isinstance(reading, int | float)
