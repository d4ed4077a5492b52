"""Mounts of node_exporter by where they are mounted, which series of their own say."""

from __future__ import annotations

from gpuwarden_exporters.gathering import Gatherer
from gpuwarden_wire.metrics import EntityKind

READ = 'node_mountstats_nfs_total_read_bytes_total{export="fs1:/a",protocol="tcp"} 100\n'
INFO = 'node_mountstats_nfs_mountpoint_info{export="fs1:/a",mountpoint="/scratch"} 1\n'
FILE_SYSTEM = 'node_filesystem_size_bytes{device="fs1:/a",mountpoint="/data",fstype="nfs4"} 9\n'
LOCAL = 'node_filesystem_size_bytes{device="/dev/sda",mountpoint="/",fstype="ext4"} 9\n'


def mounts(text: str) -> set[str]:
    return set(Gatherer().take(text, 0.0).rows.get(EntityKind.MOUNT, {}))


def test_a_mount_goes_by_its_point_where_a_series_says_it_in_whichever_order() -> None:
    assert mounts(READ + INFO) == mounts(INFO + READ) == {"/scratch"}
    assert mounts(READ + FILE_SYSTEM) == {"/data"}


def test_a_mount_goes_by_its_export_where_nothing_says_where_it_is() -> None:
    assert mounts(READ + LOCAL) == {"fs1:/a"}


def test_of_several_places_of_one_export_the_first_by_name_counts() -> None:
    assert mounts(READ + INFO + FILE_SYSTEM) == {"/data"}
