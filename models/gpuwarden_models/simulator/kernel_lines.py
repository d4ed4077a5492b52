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


def port_changed(pci_bus_id: str, device: str, *, up: bool) -> str:
    """An InfiniBand port of a device by its own name lost or got its link."""
    # mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
    return f"mlx5_core {pci_bus_id} {device}: Port: 1 Link {'ACTIVE' if up else 'DOWN'}"


def sram_detail(pci_bus_id: str) -> str:
    """XID 172: where an uncorrectable error was, in SRAM."""
    return _xid(pci_bus_id, 172, f"{_NOBODY}, Uncorrectable SRAM error in L2 slice 3")


def correctable(pci_bus_id: str) -> str:
    """A correctable PCIe error of a GPU."""
    # nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
    return (
        f"nvidia {pci_bus_id}: PCIe Bus Error: severity=Corrected, type=Physical Layer,"
        " (Receiver ID)"
    )


def bus_fatal(pci_bus_id: str) -> tuple[str, ...]:
    """A fatal PCIe error of a GPU, as the port and the device tell it."""
    return (
        f"pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: {pci_bus_id}",
        f"nvidia {pci_bus_id}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction"
        " Layer, (Requester ID)",
    )


def link_fault(pci_bus_id: str, link: int) -> str:
    """XID 74: a fatal error of an NVLink."""
    return _xid(
        pci_bus_id,
        74,
        f"{_NOBODY}, NVLink: fatal error detected on link {link}"
        "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    )


def switch_fault(link: int) -> str:
    """SXid 20034: a link of an NVSwitch failed for good."""
    # nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 35 LTSSM Fault Up
    return f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link {link} LTSSM Fault Up"


def gsp_timeout(pci_bus_id: str, pid: int, index: int) -> str:
    """XID 119: the GSP does not answer."""
    return _xid(
        pci_bus_id,
        119,
        f"pid={pid}, name=python3, Timeout after 6s of waiting for RPC response from GPU{index}"
        " GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080014b 0x5).",
    )


def gsp_error(pci_bus_id: str, pid: int) -> str:
    """XID 120: the firmware of the GSP faulted."""
    return _xid(pci_bus_id, 120, f"pid={pid}, name=python3, GSP task exception: cause 0x5")


def pmu_read_failed(pci_bus_id: str) -> str:
    """XID 122: the power-management unit did not answer."""
    return _xid(pci_bus_id, 122, f"{_NOBODY}, SPI RPC read failure")


def pmu_halted(pci_bus_id: str) -> str:
    """XID 62: the power-management controller halted."""
    return _xid(pci_bus_id, 62, f"{_NOBODY}, 2027(4c40) 00000000 00000000")


def switch_timeout(pci_bus_id: str, pid: int) -> str:
    """XID 109: a context switch timed out."""
    return _xid(
        pci_bus_id,
        109,
        f"pid={pid}, name=python3, Ch 00000010, errorString CTX SWITCH TIMEOUT, Info 0x5c00f",
    )


def drive_down(controller: str) -> str:
    """An NVMe controller does not answer."""
    return f"nvme {controller}: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"


def drive_removed(controller: str) -> str:
    """An NVMe controller is given up."""
    return f"nvme {controller}: Removing after probe failure status: -19"


def medium_error(disk: str, sector: int) -> str:
    """A block could not be read."""
    return (
        f"critical medium error, dev {disk}, sector {sector} op 0x0:(READ) flags 0x80700"
        " phys_seg 4 prio class 2"
    )


def read_only(disk: str) -> str:
    """A file system gave up writing."""
    return f"EXT4-fs ({disk}): Remounting filesystem read-only"


def memory_corrected(channel: int) -> str:
    """Host memory: a corrected error."""
    return (
        f"EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#{channel}_DIMM#0 (channel:"
        f"{channel} slot:0 page:0x7f4210 offset:0x40 grain:32 syndrome:0x0)"
    )


def memory_uncorrected(channel: int) -> str:
    """Host memory: an uncorrected error."""
    return (
        f"EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#{channel}_DIMM#0 (channel:"
        f"{channel} slot:0 page:0x7f4210 offset:0x40 grain:32 syndrome:0x0)"
    )


def soft_lockup(processor: int, pid: int) -> str:
    """A processor has not scheduled for long."""
    return f"watchdog: BUG: soft lockup - CPU#{processor} stuck for 26s! [python3:{pid}]"


def hung_task(pid: int) -> str:
    """A program has waited for long."""
    return f"INFO: task python3:{pid} blocked for more than 120 seconds."


def out_of_memory(pid: int) -> str:
    """The machine ran out of memory."""
    return f"Out of memory: Killed process {pid} (python3) total-vm:1834522344kB"
