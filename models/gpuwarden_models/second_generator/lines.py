"""Kernel lines: the driver's and the kernel's own wordings, filled with drawn numbers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np

BUSES = ("19", "2d", "44", "5b", "98", "ac", "c1", "db")
"""PCI bus of each GPU of a node."""

_PROGRAMS = ("python3", "torchrun", "pt_main_thread", "megatron")
_XIDS: Mapping[int, str] = MappingProxyType(
    {
        13: "Graphics SM Warp Exception on (GPC {a}, TPC {b}, SM 1): Out Of Range Address",
        31: "Ch {c:08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_{a} faulted"
        " @ 0x7f{c:02x}_{d:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
        43: "Ch {c:08x}",
        45: "Ch {c:08x}",
        48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
        " at partition {a}, subpartition {b}.",
        63: "Row Remapper: New row (0x{d:016x}) marked for remapping, reset gpu to activate.",
        64: "Row Remapper Error: (0x{d:016x}) - All reserved rows for bank are remapped",
        74: "NVLink: fatal error detected on link {e}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        79: "GPU has fallen off the bus.",
        94: "Contained: SM (0x{a:x}). RST: No, D-RST: No",
        95: "Uncontained: FBHUB. RST: Yes, D-RST: No",
        119: "Timeout after 6s of waiting for RPC response from GPU{a} GSP! Expected function 76"
        " (GSP_RM_CONTROL) (0x{d:x} 0x{c:x}).",
        120: "GSP task exception: load access fault (cause:0x5) @ pc:0x{d:x}, partition:4#0,"
        " task:{b}",
        154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    }
)
_WITHOUT_PROGRAM = frozenset({63, 64, 79, 154})


def xid_line(rng: np.random.Generator, part: int, code: int) -> str:
    """What the driver says of a GPU."""
    number = rng.integers
    said = _XIDS[code].format(
        a=int(number(8)), b=int(number(4)), c=int(number(1, 64)), d=int(number(2**24, 2**31)),
        e=int(number(18)),
    )  # fmt: skip
    who = f"pid={int(number(2_000, 4_000_000))}, name={_PROGRAMS[int(number(4))]}, "
    who = "" if code in _WITHOUT_PROGRAM else who
    return f"NVRM: Xid (PCI:0000:{BUSES[part]}:00): {code}, {who}{said}"


def bus_line(part: int) -> str:
    """A corrected error of a GPU's link, as the port above it tells."""
    return (
        f"nvidia 0000:{BUSES[part]}:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer,"
        " (Transmitter ID)"
    )


def lockup_line(rng: np.random.Generator, seconds: int) -> str:
    """A core that does not come back."""
    core, pid = int(rng.integers(192)), int(rng.integers(2_000, 90_000))
    return f"watchdog: BUG: soft lockup - CPU#{core} stuck for {seconds}s! [kworker/{core}:1:{pid}]"


def dimm_line(rng: np.random.Generator) -> str:
    """A corrected error of host memory."""
    page = int(rng.integers(2**24))
    return (
        "EDAC MC3: 1 CE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0"
        f" page:0x{page:x} offset:0x0 grain:32 syndrome:0x0)"
    )


def stamped(at: float, node: str, text: str) -> str:
    """A line as journalctl -o short-iso-precise writes it."""
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    return f"{moment} {node} kernel: {text}\n"
