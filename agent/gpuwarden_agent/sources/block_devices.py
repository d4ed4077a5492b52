"""Which block devices are whole physical disks."""

from __future__ import annotations

import re

from gpuwarden_agent.sources.kernel_files import list_names

# Where sysfs is not to be had: "nvme0n1", "sda", "vdb" are whole; "nvme0n1p2", "sda1" are parts.
_WHOLE_NAME = re.compile(r"nvme\d+n\d+|(?:sd|vd|xvd|hd)[a-z]+|mmcblk\d+|pmem\d+")


def is_whole_disk(folder: str, name: str) -> bool:
    """Whether a block device is a whole physical one: no partition, array, mapping or loop.

    Args:
        folder: "/sys/class/block".
        name: Name of the device.
    """
    try:
        facts = list_names(f"{folder}/{name}")
    except OSError:
        facts = []
    if facts:
        # A physical device has a `device` link; md, dm, loop and zram have none.
        return "partition" not in facts and "device" in facts
    return _WHOLE_NAME.fullmatch(name) is not None
