"""NFS mounts over a mountstats of our own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.mounts import WATCHED_AT_MOST, MountCollector
from gpuwarden_agent.collectors.seen import FORGET_AFTER_S
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable
from gpuwarden_wire.registry import metrics_of

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"
METRICS = {metric.name for metric in metrics_of(EntityKind.MOUNT)}
SHARED, SCRATCH = "/mnt/shared", "/mnt/fast scratch"


class Mounts:
    """A mountstats that a test may change, and its collector."""

    def __init__(self, folder: Path) -> None:
        self.proc = Path(shutil.copytree(NODE / "proc", folder / "proc"))
        self.path = self.proc / "self" / "mountstats"
        self.now = 0.0
        self.collector = MountCollector(self.proc, 5.0, 4.0, lambda: self.now)

    def rows(self) -> dict[str, dict[str, Reading]]:
        rows = self.collector.collect(self.now).rows[EntityKind.MOUNT]
        return {key: dict(row) for key, row in rows.items()}

    def counts(self) -> list[Reading]:
        row = self.collector.collect(self.now).rows[EntityKind.NODE][""]
        return [row["node_nfs_mounts"], row["node_nfs_mounts_left_out"]]

    def replace(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path)


def test_a_mount_is_summed_over_its_operations_and_transports(mounts: Mounts) -> None:
    rows = mounts.rows()
    assert set(rows) == {SHARED, SCRATCH}, "one a super block, none of other file systems"
    assert rows[SHARED] == {
        "mount_read_bytes_total": 4096000,
        "mount_written_bytes_total": 8192000,
        "mount_operations_total": 351,
        "mount_round_trip_seconds_total": pytest.approx(1.94),
        "mount_queue_seconds_total": pytest.approx(9.055),
        "mount_execute_seconds_total": pytest.approx(11.146),
        "mount_retransmits_total": 5,
        "mount_major_timeouts_total": 1,
        "mount_slots_in_use_ratio": Unavailable("first_look"),
        "mount_backlog_requests": Unavailable("first_look"),
        "mount_age_seconds": 86400,
    }
    assert set(rows[SHARED]) == METRICS
    assert mounts.counts() == [2, 0]


def test_a_number_beyond_reason_spoils_its_own_series_only(mounts: Mounts) -> None:
    row = mounts.rows()[SCRATCH]
    assert row["mount_queue_seconds_total"] == Unavailable("implausible_value")
    assert row["mount_read_bytes_total"] == Unavailable("implausible_value")
    assert row["mount_written_bytes_total"] == 64
    assert row["mount_operations_total"] == 7
    assert row["mount_execute_seconds_total"] == pytest.approx(0.02)


def test_slots_and_backlog_are_means_since_the_last_look(mounts: Mounts) -> None:
    mounts.rows()
    # 10 more sends on each transport, with 16 slots in use and 3 waiting at each of them
    mounts.replace(
        "tcp 871 0 1 0 3 100 99 0 500 40 32 10 20", "tcp 871 0 1 0 3 110 99 0 660 70 32 1 2"
    )
    mounts.replace("tcp 872 0 1 0 3 60 60 0 220 0 32 4 5", "tcp 872 0 1 0 3 70 60 0 380 30 32 4 5")
    mounts.replace("rdma 0 0 1 0 0 10 10 0 10 0", "rdma 0 0 1 0 0 12 10 0 14 1")
    rows = mounts.rows()
    assert rows[SHARED]["mount_slots_in_use_ratio"] == pytest.approx(16 / 64)
    assert rows[SHARED]["mount_backlog_requests"] == pytest.approx(3)
    assert "mount_slots_in_use_ratio" not in rows[SCRATCH], "RDMA does not say how many slots"
    assert rows[SCRATCH]["mount_backlog_requests"] == pytest.approx(0.5)
    assert mounts.rows()[SHARED]["mount_backlog_requests"] == Unavailable("no_requests")
    mounts.replace("tcp 871 0 1 0 3 110 99 0 660 70", "tcp 871 0 1 0 3 2 2 0 3 0")
    assert mounts.rows()[SHARED]["mount_backlog_requests"] == Unavailable("counter_went_back")


def test_retransmits_do_not_fall_unless_the_mount_began_anew(mounts: Mounts) -> None:
    assert mounts.rows()[SHARED]["mount_retransmits_total"] == 5
    mounts.replace("READ: 100 103 1", "READ: 102 103 1")  # two ended before they were sent
    assert mounts.rows()[SHARED]["mount_retransmits_total"] == 5
    mounts.replace("WRITE: 200 202", "WRITE: 10 11")  # mounted again
    assert mounts.rows()[SHARED]["mount_retransmits_total"] == 2


def test_odd_lines_of_one_mount_do_not_take_the_other_along(mounts: Mounts) -> None:
    mounts.replace("       WRITE: 200 202 0 8200000", "       WRITE: 200 many 0 8200000")
    mounts.replace("xprt:\ttcp 872 0 1 0 3 60 60 0 220 0 32 4 5", "xprt:\ttcp 872 0 1")
    mounts.replace("\tage:\t86400", "\tage:\told")
    rows = mounts.rows()
    assert rows[SHARED]["mount_operations_total"] == Unavailable("not_a_number")
    assert rows[SHARED]["mount_retransmits_total"] == Unavailable("not_a_number")
    assert rows[SHARED]["mount_backlog_requests"] == Unavailable("no_such_line")
    assert rows[SHARED]["mount_age_seconds"] == Unavailable("not_a_number")
    assert rows[SHARED]["mount_written_bytes_total"] == 8192000
    assert rows[SCRATCH]["mount_operations_total"] == 7


def test_every_way_of_being_cut_short_is_read(mounts: Mounts) -> None:
    text = mounts.path.read_bytes()
    for length in range(0, len(text), 7):
        mounts.path.write_bytes(text[:length])
        for row in mounts.rows().values():
            assert set(row) <= METRICS
    mounts.path.write_bytes(bytes(range(256)) * 64)
    assert mounts.counts() == [0, 0]


def test_a_mount_that_vanishes_says_so_for_an_hour(mounts: Mounts) -> None:
    mounts.rows()
    mounts.path.write_text("device proc mounted on /proc with fstype proc\n")
    assert set(mounts.rows()[SHARED].values()) == {Unavailable("no_such_device")}
    assert mounts.counts() == [0, 0]
    mounts.now = FORGET_AFTER_S + 1
    assert mounts.rows() == {}


def test_more_mounts_than_are_watched_are_counted_and_the_watched_ones_stay(mounts: Mounts) -> None:
    one = (
        mounts.path.read_text().partition("device 10.1.0.11:/scratch")[2].partition("\ndevice ")[0]
    )
    blocks = [
        f"device 10.1.0.11:/home/{n}" + one.replace("/mnt/fast\\040scratch", f"/home/{n}")
        for n in range(300)
    ]
    mounts.path.write_text("\n".join(blocks[100:]))
    watched = set(mounts.rows())
    assert len(watched) == WATCHED_AT_MOST
    assert mounts.counts() == [200, 200 - WATCHED_AT_MOST]
    mounts.path.write_text("\n".join(blocks))
    assert set(mounts.rows()) == watched
    assert mounts.counts() == [300, 300 - WATCHED_AT_MOST]


def test_a_mount_point_longer_than_a_key_keeps_a_name_of_its_own(mounts: Mounts) -> None:
    deep = "/mnt/" + "x" * 600
    mounts.replace("/mnt/fast\\040scratch", deep)
    mounts.replace("/mnt/shared", deep + "y")
    keys = set(mounts.rows())
    assert len(keys) == 2
    assert all(len(key) <= 255 for key in keys)


def test_the_first_process_tells_where_it_may_be_read(mounts: Mounts) -> None:
    (mounts.proc / "1").mkdir()
    (mounts.proc / "1/mountstats").write_text("device proc mounted on /proc with fstype proc\n")
    assert mounts.counts() == [0, 0]
    (mounts.proc / "1/mountstats").unlink()
    with pytest.raises(CollectorError):
        mounts.counts()
    assert mounts.counts() == [2, 0], "another one is tried at the next look"
    mounts.path.unlink()
    with pytest.raises(CollectorError) as caught:
        mounts.counts()
    assert "mountstats" in caught.value.mend


def test_this_machine_is_read() -> None:
    collector = MountCollector(Path("/proc"), 5.0, 4.0)
    assert "node_nfs_mounts" in collector.collect(0.0).rows[EntityKind.NODE][""]
    collector.close()
