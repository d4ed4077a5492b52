"""Folders of devices in sysfs, looked into closely only now and then."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpuwarden_agent.sources.kernel_files import list_names

RELIST_CYCLES = 60
"""Looks at which what a device supports is found out anew: every 5 minutes at the usual 5 s."""


class DeviceListing:
    """Names in one folder of device links.

    Args:
        folder: /sys/class/infiniband and the like.
        relist_cycles: See `RELIST_CYCLES`.
    """

    def __init__(self, folder: Path, relist_cycles: int = RELIST_CYCLES) -> None:
        self._folder = folder
        self._relist_cycles = relist_cycles
        self._names: list[str] | None = None
        self._looks = 0

    def look(self) -> list[str] | None:
        """The names where devices came or went, or where it is time; None where all is as it was.

        Raises:
            OSError: The folder is there and cannot be listed.
        """
        names = list_names(self._folder)
        self._looks += 1
        if names == self._names and self._looks < self._relist_cycles:
            return None
        self._names = names
        self._looks = 0
        return names


def supported(folder: Path, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the wanted files that a folder has; all of them where it cannot be listed.

    A folder that is not there has none: the driver does not count.
    """
    wanted = frozenset(wanted)
    try:
        return wanted.intersection(list_names(folder))
    except OSError:
        return wanted  # each file says for itself why it cannot be read


def is_physical(interface: Path) -> bool:
    """A device is behind a net interface, and no SR-IOV virtual function (`physfn` link)."""
    device = interface / "device"
    return device.exists() and not (device / "physfn").exists()
