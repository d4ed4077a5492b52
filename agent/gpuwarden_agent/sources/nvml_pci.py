"""NVIDIA GPUs on the PCI bus, read from sysfs; works without a driver."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.pci_functions import AER_FILES, read_error_total
from gpuwarden_wire.readings import Reading, Unavailable

_NVIDIA = "0x10de"
_GPU_CLASSES = ("0x0302", "0x0300")  # PCI class codes: 3D controller, VGA controller
_OURS = "nvidia"
_FOR_GRAPHICS = frozenset({"nouveau", "nova_core"})
"""Drivers that take a GPU by mistake: it is not lost, but it is missed."""


class PciBus:
    """The PCI bus of a node.

    Vendor and class of an address are read once and remembered for as long as the address stays.

    Args:
        sys_root: Where sysfs is mounted.
    """

    def __init__(self, sys_root: Path) -> None:
        self._devices = sys_root / "bus/pci/devices"
        self._folder = str(self._devices)
        self._files = CounterFiles()
        self._is_gpu: dict[str, bool] = {}
        self.elsewhere: dict[str, str] = {}
        """At the last count: driver by address of GPUs that another driver than nvidia holds."""

    @property
    def away(self) -> tuple[str, ...]:
        """At the last count: addresses of GPUs given away on purpose (vfio-pci and the like)."""
        held = self.elsewhere.items()
        return tuple(sorted(name for name, driver in held if driver not in _FOR_GRAPHICS))

    @property
    def handed_over(self) -> int:
        """How many they are."""
        return len(self.away)

    def count_gpus(self) -> Reading:
        """GPUs on the bus; Unavailable where sysfs shows no PCI bus.

        A GPU bound to vfio-pci was handed to a virtual machine and is not this node's. One without
        any driver is: its probe may have failed.
        """
        try:
            present = os.listdir(self._folder)  # noqa: PTH208 - all the time; Path costs thrice
        except FileNotFoundError:
            return Unavailable("no_such_file")
        except PermissionError:
            return Unavailable("permission_denied")
        except OSError:
            return Unavailable("read_error")
        former = self._is_gpu
        if former.keys() != set(present):
            self._is_gpu = {
                name: former[name] if name in former else self._looks_like_gpu(name)
                for name in present
            }
        drivers = {name: self._driver(name) for name, is_gpu in self._is_gpu.items() if is_gpu}
        self.elsewhere = {name: held for name, held in drivers.items() if held not in ("", _OURS)}
        return float(len(drivers) - self.handed_over)

    def error_totals(self, pci_bus_id: str) -> dict[str, Reading]:
        """PCIe errors that a GPU counted of itself, by metric; works while NVML does not."""
        folder = f"{self._folder}/{pci_bus_id}"
        return {
            f"gpu_aer_{severity}_total": read_error_total(self._files, f"{folder}/{name}")
            for severity, name in AER_FILES.items()
        }

    def close(self) -> None:
        """Close the counter files."""
        self._files.close()

    def _looks_like_gpu(self, name: str) -> bool:
        device = self._devices / name
        if (device / "physfn").exists():  # a virtual function of a GPU that counts itself
            return False
        return _read_word(device / "vendor") == _NVIDIA and _read_word(device / "class").startswith(
            _GPU_CLASSES
        )

    def _driver(self, name: str) -> str:
        try:
            link = os.readlink(f"{self._folder}/{name}/driver")  # noqa: PTH115 - as above
            return link.rpartition("/")[2]
        except OSError:
            return ""


def _read_word(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
