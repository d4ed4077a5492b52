from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.structure import SCAN_EVERY_S, StructureCollector
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from tests.builders.nvml import add_pci_device

MANAGER, DAEMON = "nv-fabricmanage", "nvidia-persiste"


class Rig:
    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.proc.mkdir()
        self.now = 1000.0
        self.collector = StructureCollector(self.proc, self.sys, 5.0, 4.0, lambda: self.now)

    def start(self, pid: int, comm: str) -> None:
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "comm").write_text(comm + "\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def load(self, version: str) -> None:
        """A module loaded anew is another folder."""
        fresh = self.sys / "module/fresh"
        fresh.mkdir(parents=True)
        (fresh / "version").write_text(version + "\n")
        shutil.rmtree(self.sys / "module/nvidia", ignore_errors=True)
        fresh.rename(self.sys / "module/nvidia")

    def row(self, after_s: float = 5.0) -> dict[str, Reading]:
        self.now += after_s
        return dict(self.collector.collect(self.now).rows[EntityKind.NODE][""])


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_node_without_any_of_it_supports_none_of_it(rig: Rig) -> None:
    row = rig.row()
    del row["node_collection_gap_seconds"]
    assert set(row.values()) == {NotSupported()}


def test_a_daemon_that_ran_and_ended_is_missed_at_once_and_found_again(rig: Rig) -> None:
    rig.start(811, DAEMON)
    assert rig.row()["node_persistence_daemon_running"] == 1.0
    rig.end(811)
    assert rig.row()["node_persistence_daemon_running"] == 0.0
    rig.start(912, DAEMON)
    assert rig.row(SCAN_EVERY_S)["node_persistence_daemon_running"] == 1.0


def test_a_pid_that_is_another_process_now_is_no_daemon(rig: Rig) -> None:
    rig.start(811, DAEMON)
    rig.row()
    rig.end(811)
    rig.start(811, "bash")
    assert rig.row()["node_persistence_daemon_running"] == 0.0


def test_threads_of_the_kernel_are_left_out_and_no_process_of_ours_is(rig: Rig) -> None:
    rig.start(2, "kthreadd")
    (rig.proc / "2/task/2").mkdir(parents=True)
    (rig.proc / "2/task/2/children").write_text("811 812 ")
    rig.start(811, DAEMON)  # what no kernel thread is called, so that it is seen to be left out
    rig.start(912, MANAGER)
    row = rig.row()
    assert row["node_persistence_daemon_running"] == NotSupported()
    assert row["node_fabric_manager_running"] == 1.0


def test_children_of_another_process_with_that_number_are_looked_at(rig: Rig) -> None:
    rig.start(2, "bash")  # in a process name space of our own
    (rig.proc / "2/task/2").mkdir(parents=True)
    (rig.proc / "2/task/2/children").write_text("811 ")
    rig.start(811, DAEMON)
    assert rig.row()["node_persistence_daemon_running"] == 1.0


def test_switches_without_their_manager_are_missed_though_it_was_never_seen(rig: Rig) -> None:
    add_pci_device(rig.sys, "0000:07:00.0", "0x10de", "0x068000", "nvidia-nvswitch")
    add_pci_device(rig.sys, "0000:1b:00.0", "0x10de", "0x030200", "nvidia")
    row = rig.row()
    assert (row["node_nvswitches"], row["node_fabric_manager_running"]) == (1.0, 0.0)
    assert row["node_imex_running"] == NotSupported()
    rig.start(700, MANAGER)
    assert rig.row(SCAN_EVERY_S)["node_fabric_manager_running"] == 1.0


def test_a_procfs_that_cannot_be_listed_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "proc").write_text("in the way")
    collector = StructureCollector(tmp_path / "proc", tmp_path / "sys", 5.0, 4.0, lambda: 1.0)
    row = collector.collect(0.0).rows[EntityKind.NODE][""]
    assert isinstance(row["node_imex_running"], Unavailable)


def test_a_driver_loaded_anew_is_counted_and_one_unloaded_is_told(rig: Rig) -> None:
    def module() -> tuple[Reading, Reading]:
        row = rig.row()
        return row["node_driver_loaded"], row["node_driver_reloads_total"]

    rig.load("580.95.05")
    assert module() == (1.0, 0.0)
    rig.load("580.95.05")
    assert module() == (1.0, 1.0)
    shutil.rmtree(rig.sys / "module/nvidia")
    assert module() == (0.0, 1.0)
    rig.load("590.10.01")
    assert module() == (1.0, 2.0)


def test_the_time_between_two_rounds_is_told(rig: Rig) -> None:
    assert rig.row()["node_collection_gap_seconds"] == Unavailable("first_round")
    assert rig.row(5.0)["node_collection_gap_seconds"] == 5.0
    assert rig.row(300.0)["node_collection_gap_seconds"] == 300.0
