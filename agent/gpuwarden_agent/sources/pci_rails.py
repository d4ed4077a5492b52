"""Which NICs are nearest to a GPU on the PCI bus: its rails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuwarden_agent.sources.kernel_files import list_names
from gpuwarden_agent.sources.pci_functions import function_behind

_Bridges = tuple[str, ...]


class PciRails:
    """Nearest InfiniBand or RoCE ports by GPU address, from the folders of sysfs.

    The folder of a PCI function lies inside that of the bridge above it:
    devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0 is a GPU behind a switch.
    The deeper the folder that a GPU and a NIC share, the nearer they are.

    Args:
        sys_root: Where sysfs is mounted.
    """

    def __init__(self, sys_root: Path) -> None:
        self._devices = sys_root / "bus/pci/devices"
        self._infiniband = sys_root / "class/infiniband"
        self._looked_at: tuple[object, ...] = ()
        self._rails: Mapping[str, tuple[str, ...]] = {}

    def nearest(self, addresses: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Ports "device/port" that share the lowest bridge with each GPU.

        () where none is under the same PCI root: a port on another socket is nobody's rail. The
        folders are looked at anew where a GPU or an RDMA device came or went.
        """
        wanted = tuple(addresses)
        try:
            present = tuple(list_names(self._infiniband))
        except OSError:
            present = ()
        if (wanted, present) != self._looked_at:
            ports = [port for device in present for port in self._ports(device)]
            self._rails = {
                one: _nearest(self._bridges(self._devices / one), ports) for one in wanted
            }
            self._looked_at = (wanted, present)
        return self._rails

    def _ports(self, device: str) -> list[tuple[str, _Bridges]]:
        folder = self._infiniband / device
        bridges = self._bridges(folder / "device")
        try:
            return [(f"{device}/{port}", bridges) for port in list_names(folder / "ports")]
        except OSError:
            return []

    @staticmethod
    def _bridges(link: Path) -> _Bridges:
        """From the PCI root down to the bridge right above a function; () where unknown."""
        parts = Path(function_behind(link)).parts[:-1]
        roots = [n for n, part in enumerate(parts) if part.startswith("pci") and ":" in part]
        return parts[roots[0] :] if roots else ()


def _nearest(bridges: _Bridges, ports: Iterable[tuple[str, _Bridges]]) -> tuple[str, ...]:
    shared = {port: _in_common(bridges, above) for port, above in ports}
    most = max(shared.values(), default=0)
    return tuple(port for port, count in shared.items() if count == most) if most else ()


def _in_common(one: _Bridges, other: _Bridges) -> int:
    """How many bridges two functions share, the root counted."""
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count
