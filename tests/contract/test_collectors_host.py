"""Host and storage paths over a small node of our own: what is missing, odd or gone."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.host import HostCollector
from gpuwarden_agent.collectors.storage import StorageCollector
from gpuwarden_agent.sources.kernel_clock import ClockState, KernelClock
from gpuwarden_agent.sources.proc_files import ProcFile, number_behind, whole_number
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(NODE, tmp_path / "node"))


class Kept:
    """A clock that is kept, or as the test says."""

    state: ClockState | OSError = ClockState(synchronised=True, offset_s=0.001, error_s=0.002)

    def __call__(self) -> ClockState:
        if isinstance(self.state, OSError):
            raise self.state
        return self.state


def host_row(node: Path, clock: Kept | None = None) -> Mapping[str, Reading]:
    collector = HostCollector(node / "proc", node / "sys", 5.0, 4.0, clock or Kept())
    return collector.collect(0.0).rows[EntityKind.NODE][""]


def storage(node: Path) -> StorageCollector:
    return StorageCollector(node / "proc", node / "sys", 5.0, 4.0)


def paths_row(node: Path) -> Mapping[str, Reading]:
    return storage(node).collect(0.0).rows[EntityKind.NODE][""]


def test_a_clock_that_nobody_keeps_has_no_offset(node: Path) -> None:
    clock = Kept()
    clock.state = ClockState(synchronised=False, offset_s=0.0, error_s=16.0)
    row = host_row(node, clock)
    assert row["node_clock_synchronised"] == 0.0
    assert row["node_clock_offset_seconds"] == Unavailable("clock_unsynchronised")
    assert row["node_clock_error_seconds"] == Unavailable("clock_unsynchronised")


def test_a_clock_that_may_not_be_asked_costs_its_own_readings(node: Path) -> None:
    clock = Kept()
    clock.state = OSError(errno.EPERM, "Operation not permitted")
    row = host_row(node, clock)
    assert row["node_clock_synchronised"] == Unavailable("permission_denied")
    assert row["node_load1"] == 12.34


def test_this_machines_clock_answers() -> None:
    state = KernelClock()()
    assert abs(state.offset_s) < 1.0
    assert state.error_s >= 0.0


def test_what_a_kernel_does_not_have_is_left_out(node: Path) -> None:
    (node / "proc/sys/kernel/hung_task_detect_count").unlink()
    (node / "proc/mdstat").unlink()
    shutil.rmtree(node / "sys/class/nvme")
    assert "node_hung_tasks_total" not in host_row(node)
    assert paths_row(node) == {}


def test_odd_numbers_say_so_and_cost_nothing_else(node: Path) -> None:
    proc = node / "proc"
    (proc / "stat").write_text(
        f"ctxt {2**64 - 1}\nintr {'9' * 60}\nprocs_running \nprocs_blocked 1\n"
    )
    (proc / "meminfo").write_text("MemAvailable: 5 kB\nSwapTotal: 1 kB\nSwapFree: 2 kB\n")
    (proc / "sys/kernel/hung_task_detect_count").write_text("many\n")
    (proc / "pressure/cpu").write_text(f"some avg10=0.00 total={2**65}\n")
    row = host_row(node)
    assert row["node_context_switches_total"] == Unavailable("implausible_value")
    assert row["node_interrupts_total"] == Unavailable("implausible_value")
    assert row["node_processes_running"] == Unavailable("not_a_number")
    assert row["node_processes_blocked"] == 1
    assert row["node_memory_available_bytes"] == 5 * 1024
    assert row["node_memory_total_bytes"] == Unavailable("no_such_line")
    assert row["node_swap_used_bytes"] == Unavailable("implausible_value")
    assert row["node_hung_tasks_total"] == Unavailable("not_a_number")
    assert row["node_pressure_cpu_seconds_total"] == Unavailable("implausible_value")


def test_arrays_short_of_members_and_controllers_off_the_path_are_counted(node: Path) -> None:
    assert paths_row(node) == {
        # md1 lacks one of three, md3 is inactive; md127 is a container and never active
        "node_md_arrays_degraded": 2,
        "node_nvme_controllers_down": 1,
    }
    (node / "sys/class/nvme/nvme1/state").write_text("live\n")
    (node / "proc/mdstat").write_text("Personalities : \nunused devices: <none>\n")
    assert paths_row(node) == {"node_md_arrays_degraded": 0, "node_nvme_controllers_down": 0}


def test_a_controller_that_vanishes_is_no_longer_counted(node: Path) -> None:
    collector = storage(node)
    collector.collect(0.0)
    shutil.rmtree(node / "sys/class/nvme/nvme1")
    row = collector.collect(5.0).rows[EntityKind.NODE][""]
    assert row["node_nvme_controllers_down"] == 0
    collector.close()


def test_a_line_of_an_older_kernel_has_no_flushes(node: Path) -> None:
    path = node / "proc/diskstats"
    path.write_text(
        " 259 0 nvme0n1 1 0 8 1 1 0 8 1 0 1 2\n"  # until 4.17
        " 259 1 nvme1n1 1 0 8 1 1 0 8 1 0 1 2 5 0 40 3\n"  # with discards, until 5.4
        f" 259 2 nvme2n1 {2**64 - 1} 0 8 1 1 0 8 1 4294967295 1 2 5 0 40 3 9 7\n"
    )
    rows = StorageCollector(node / "proc", Path("/nowhere"), 5.0, 4.0).collect(0.0)
    disks = rows.rows[EntityKind.DISK]
    for name in ("nvme0n1", "nvme1n1"):
        assert not [metric for metric in disks[name] if "flush" in metric]
        assert disks[name]["disk_io_weighted_seconds_total"] == 0.002
    assert disks["nvme2n1"]["disk_flush_seconds_total"] == 0.007
    assert disks["nvme2n1"]["disk_reads_completed_total"] == Unavailable("implausible_value")
    assert disks["nvme2n1"]["disk_in_flight"] == Unavailable("implausible_value"), "fell below 0"


def test_diskstats_that_cannot_be_read_is_the_collectors_trouble(node: Path) -> None:
    collector = storage(node)
    collector.collect(0.0)
    (node / "proc/diskstats").unlink()
    with pytest.raises(CollectorError) as caught:
        collector.collect(5.0)
    assert caught.value.reason == "no_such_file"
    assert "diskstats" in caught.value.mend


def test_a_file_of_procfs_stays_open_and_gives_what_holds_now() -> None:
    file = ProcFile("/proc/self/stat")
    first = file.read()
    assert first.startswith(b"%d (" % os.getpid())
    assert file.read().partition(b")")[0] == first.partition(b")")[0]
    file.close()
    assert file.read(), "opened again"
    file.close()


def test_a_file_longer_than_a_read_is_read_whole_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 300_000)
    assert len(ProcFile(str(path)).read()) == 300_000
    assert len(ProcFile(str(path), limit_bytes=10_000).read()) == 10_000
    with pytest.raises(FileNotFoundError):
        ProcFile(str(tmp_path / "gone")).read()


def test_numbers_stand_behind_keys_at_the_beginning_of_a_line() -> None:
    text = b"first 1\nnot ctxt 5\nctxt 7\nempty \nlast: 9 kB"
    assert number_behind(text, b"first ") == 1
    assert number_behind(text, b"ctxt ") == 7
    assert number_behind(text, b"last:") == 9
    assert number_behind(text, b"empty ") == Unavailable("not_a_number")
    assert number_behind(text, b"irst ") == Unavailable("no_such_line")
    assert number_behind(b"", b"first ") == Unavailable("no_such_line")
    assert whole_number(b"-3") == -3
    assert whole_number(b"") == Unavailable("not_a_number")
