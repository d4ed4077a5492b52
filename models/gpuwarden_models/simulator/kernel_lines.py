"""Kernel lines as drivers write them, without the logger's wrapper.

Each function gives the message; the shapes are those of public logs, quoted beside them.
"""

from __future__ import annotations


def _xid(pci_bus_id: str, code: int, rest: str) -> str:
    # NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    return f"NVRM: Xid (PCI:{pci_bus_id.rsplit('.', 1)[0]}): {code}, {rest}"


_NOBODY = "pid='<unknown>', name=<unknown>"


def double_bit_error(pci_bus_id: str, address: int) -> str:
    """XID 48: an uncorrectable ECC error."""
    return _xid(
        pci_bus_id,
        48,
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
        f" at physAddr {address:#x} partition 3, subpartition 0.",
    )


def row_marked(pci_bus_id: str, pid: int, address: int) -> str:
    """XID 63: a row is marked for remapping at the next reset."""
    return _xid(
        pci_bus_id,
        63,
        f"pid={pid}, name=python3, Row Remapper: New row ({address:#018x}) marked for remapping,"
        " reset gpu to activate.",
    )


def row_remap_failed(pci_bus_id: str, address: int) -> str:
    """XID 64: no spare row is left."""
    return _xid(
        pci_bus_id,
        64,
        f"{_NOBODY}, Row Remapper Error: ({address:#018x}) -"
        " All reserved rows for bank are remapped",
    )


def contained(pci_bus_id: str, pid: int) -> str:
    """XID 94: a contained error; the application ends, the GPU goes on."""
    return _xid(pci_bus_id, 94, f"pid={pid}, name=python3, Ch 00000008")


def uncontained(pci_bus_id: str, pid: int) -> str:
    """XID 95: an uncontained error."""
    return _xid(pci_bus_id, 95, f"pid={pid}, Uncontained: FBHUB. RST: Yes, D-RST: No")


def fallen_off(pci_bus_id: str) -> tuple[str, ...]:
    """XID 79, the driver's sentence without a code, and XID 154 that asks for a reboot."""
    return (
        _xid(pci_bus_id, 79, f"{_NOBODY}, GPU has fallen off the bus."),
        f"NVRM: GPU {pci_bus_id}: GPU has fallen off the bus.",
        recovery_action(pci_bus_id, "0x2 (Node Reboot Required)"),
    )


def recovery_action(pci_bus_id: str, action: str) -> str:
    """XID 154: what the driver asks for."""
    return _xid(pci_bus_id, 154, f"GPU recovery action changed from 0x0 (None) to {action}")


def memory_fault(pci_bus_id: str, pid: int, address: int) -> str:
    """XID 31: a program touched memory that is not mapped."""
    return _xid(
        pci_bus_id,
        31,
        f"pid={pid}, name=pt_main_thread, Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS"
        f" GPCCLIENT_T1_6 faulted @ 0x7f5a_{address & 0xFFFFF000:08x}. Fault is of type FAULT_PDE"
        " ACCESS_TYPE_VIRT_READ",
    )


def channel_stopped(pci_bus_id: str, pid: int) -> str:
    """XID 43: the channel of a faulting program was stopped."""
    return _xid(pci_bus_id, 43, f"pid={pid}, name=pt_main_thread, Ch 00000008")


def graphics_exception(pci_bus_id: str, pid: int) -> str:
    """XID 13: a program did what the GPU does not allow."""
    return _xid(
        pci_bus_id,
        13,
        f"pid={pid}, name=pt_main_thread, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0):"
        " Out Of Range Address",
    )


def preempted(pci_bus_id: str, pid: int) -> str:
    """XID 45: the channels of a program that ended were removed."""
    return _xid(pci_bus_id, 45, f"pid={pid}, name=pt_main_thread, Ch 00000012")


def nfs_not_responding(server: str) -> str:
    """A client waits for its NFS server."""
    return f"nfs: server {server} not responding, still trying"


def nfs_responding(server: str) -> str:
    """The NFS server answers again."""
    return f"nfs: server {server} OK"


def port_down(pci_bus_id: str, interface: str) -> str:
    """A ConnectX port lost its link."""
    # mlx5_core enp1s0f0np0: Link down
    return f"mlx5_core {pci_bus_id} {interface}: Link down"


def port_up(pci_bus_id: str, interface: str) -> str:
    """A ConnectX port has its link again."""
    return f"mlx5_core {pci_bus_id} {interface}: Link up"
