"""Kernel lines of real shape for `gpuwarden inject`: what a fault's line says, without its wrapper.

The shapes are those of public logs, as the parser's tests hold them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpuwarden_kernel_log import xid_entry

_NOBODY = "pid='<unknown>', name=<unknown>"
# <3> is KERN_ERR, <4> KERN_WARNING, <6> KERN_INFO (include/linux/kern_levels.h).
_ERROR, _WARNING, _INFO = 3, 4, 6


@dataclass(frozen=True, slots=True)
class Place:
    """Where the fault is said to be.

    Attributes:
        pci_bus_id: Lower-case dddd:bb:dd.f of the GPU or NIC.
        interface: Net interface for NIC lines.
    """

    pci_bus_id: str
    interface: str

    @property
    def gpu(self) -> str:
        """The address as NVIDIA's driver writes it: without the function."""
        return self.pci_bus_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line to write.

    Attributes:
        level: printk level, 0..7.
        text: The message.
    """

    level: int
    text: str


Writer = Callable[[Place], tuple[KernelLine, ...]]


USUAL_GPU = "0000:3b:00.0"
USUAL_NIC = "0000:18:00.0"
"""The address that the default interface has its name from: ibp24s0 is bus 24, 0x18."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be written.

    Attributes:
        says: What it looks like, for the list.
        lines: Its lines at a place.
        usual_pci: The address where none is given: a GPU's or a NIC's, as the fault asks.
    """

    says: str
    lines: Writer
    usual_pci: str = USUAL_GPU


def _xid(place: Place, code: int, rest: str) -> KernelLine:
    # NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    return KernelLine(_WARNING, f"NVRM: Xid (PCI:{place.gpu}): {code}, {rest}")


def _off_bus(place: Place) -> tuple[KernelLine, ...]:
    return (
        _xid(place, 79, f"{_NOBODY}, GPU has fallen off the bus."),
        KernelLine(_WARNING, f"NVRM: GPU {place.pci_bus_id}: GPU has fallen off the bus."),
    )


def _row_remap_failure(place: Place) -> tuple[KernelLine, ...]:
    # … 64, pid='<unknown>', name=<unknown>, Row Remapper Error: (0x00000000a1b2c3d0) - All …
    rest = "Row Remapper Error: (0x00000000a1b2c3d0) - All reserved rows for bank are remapped"
    return (_xid(place, 64, f"{_NOBODY}, {rest}"),)


def _double_bit(place: Place) -> tuple[KernelLine, ...]:
    rest = (
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
        " at physAddr 0xa1b2c3d0 partition 3, subpartition 0."
    )
    return (_xid(place, 48, rest), _xid(place, 94, "pid=4242, name=python3, Ch 00000008"))


def _application(place: Place) -> tuple[KernelLine, ...]:
    fault = (
        "pid=4242, name=python3, Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS"
        " GPCCLIENT_T1_6 faulted @ 0x7f5a_a1b2c000. Fault is of type FAULT_PDE"
        " ACCESS_TYPE_VIRT_READ"
    )
    return (_xid(place, 31, fault), _xid(place, 43, "pid=4242, name=python3, Ch 00000008"))


def _gsp(place: Place) -> tuple[KernelLine, ...]:
    rest = (
        "pid=4242, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
        " Expected function 76 (GSP_RM_CONTROL) (0x20802096 0x14)."
    )
    return (_xid(place, 119, rest),)


def _nvlink(place: Place) -> tuple[KernelLine, ...]:
    rest = (
        "pid=4242, name=python3, NVLink: fatal error detected on link 6"
        "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    )
    return (_xid(place, 74, rest),)


def _nic_down(place: Place) -> tuple[KernelLine, ...]:
    # mlx5_core 0000:18:00.0 ibp24s0: Link down
    return (KernelLine(_INFO, f"mlx5_core {place.pci_bus_id} {place.interface}: Link down"),)


def _nic_up(place: Place) -> tuple[KernelLine, ...]:
    return (KernelLine(_INFO, f"mlx5_core {place.pci_bus_id} {place.interface}: Link up"),)


def _pcie(place: Place) -> tuple[KernelLine, ...]:
    # nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, …
    text = (
        f"nvidia {place.pci_bus_id}: PCIe Bus Error: severity=Uncorrected (Fatal),"
        " type=Transaction Layer, (Requester ID)"
    )
    return (KernelLine(_ERROR, text),)


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "off-bus": Fault("XID 79: the GPU fell off the bus", _off_bus),
        "row-remap-failure": Fault("XID 64: no spare memory row is left", _row_remap_failure),
        "uncorrected-ecc": Fault("XID 48 and 94: a contained double-bit error", _double_bit),
        "application": Fault("XID 31 and 43: a program's own fault", _application),
        "gsp-timeout": Fault("XID 119: the GPU's system processor does not answer", _gsp),
        "nvlink": Fault("XID 74: an NVLink error", _nvlink),
        "pcie-fatal": Fault("AER: a fatal PCIe error", _pcie),
        "nic-down": Fault("a ConnectX port loses its link", _nic_down, USUAL_NIC),
        "nic-up": Fault("a ConnectX port has its link again", _nic_up, USUAL_NIC),
    }
)


def fault_named(name: str) -> Fault | None:
    """A fault of the list, or "xid-N" for any code of NVIDIA's catalogue; None for neither."""
    if name in FAULTS:
        return FAULTS[name]
    _, prefix, code = name.rpartition("xid-")
    if not prefix or not code.isdecimal():
        return None
    entry = xid_entry(int(code))
    if entry is None:
        return None

    def lines(place: Place) -> tuple[KernelLine, ...]:
        return (_xid(place, entry.code, f"pid=4242, name=python3, {entry.name}"),)

    return Fault(f"XID {entry.code}: {entry.name}", lines)
