"""The XID and SXid catalogues: what a code means and whether it may decide alone.

The tables are files of this package. Codes, mnemonics and bucket names are NVIDIA's
(Xid-Catalog.xlsx and the Fabric Manager user guide, appendix D); the short names are ours.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gpuwarden_kernel_log.vocabulary import FaultClass, Severity

__all__ = [
    "SxidEntry",
    "XidEntry",
    "acts_alone",
    "read_table",
    "sxid_entry",
    "xid_codes",
    "xid_entry",
]

_ALONE_ACTIONS = frozenset({"RESET_GPU", "RESTART_BM"})
_ALONE_CLASSES = frozenset({FaultClass.MEMORY, FaultClass.BUS})


@dataclass(frozen=True, slots=True)
class XidEntry:
    """One row of the XID catalogue.

    Attributes:
        code: the XID.
        mnemonic: NVIDIA's constant; empty where the sheet has none.
        name: what it means, in our words.
        severity: catalogue severity, fatal written as critical.
        action: immediate bucket, first word as in NVIDIA's sheet; None where the sheet leaves it
        open. investigation: investigatory bucket; None where the sheet leaves it open.
        application_possible: an application can cause it on sound hardware.
        echo: follows another fault and is never a cause.
        acts_alone: may decide without waiting for other evidence.
        fault_class: part of the machine it points at.
        applies_to: GPU generations, of a100, h100, b100, gb200.
    """

    code: int
    mnemonic: str
    name: str
    severity: Severity
    action: str | None
    investigation: str | None
    application_possible: bool
    echo: bool
    acts_alone: bool
    fault_class: FaultClass
    applies_to: frozenset[str]


@dataclass(frozen=True, slots=True)
class SxidEntry:
    """One row of the SXid catalogue.

    Attributes:
        code: the SXid.
        name: what it means, in our words.
        fatal: NVIDIA lists it as fatal.
        fabric_wide: NVIDIA lists it as always fatal, to the whole fabric.
        fault_class: part of the machine it points at.
    """

    code: int
    name: str
    fatal: bool
    fabric_wide: bool
    fault_class: FaultClass


def acts_alone(
    severity: Severity,
    action: str | None,
    fault_class: FaultClass,
    *,
    application_possible: bool,
    echo: bool,
) -> bool:
    """Whether a fault may decide by itself, on one line.

    All must hold: the catalogue calls it fatal; NVIDIA's immediate bucket is a GPU reset or a
    reboot; no application can cause it; it is not an echo; and it points at the memory or the bus,
    that is at a part. Timeouts of firmware and driver (46, 62, 109, 119, 120, 143, 158) and NVLink
    faults (74, 136, most of 144-150) fail the last test on purpose: a hung driver or the far end
    of a link looks the same, so they wait for the settle window, within which a driver since R565
    states the verdict as XID 154. 48 waits too, because its bucket depends on the 63 or 64 beside
    it. What passes among the plain codes is 64, 79, 95 and 140. XID 154 and SXids have rules of
    their own.

    Args:
        severity: severity of the fault.
        action: its immediate bucket.
        fault_class: where it points.
        application_possible: an application can cause it.
        echo: it follows another fault.
    """
    return (
        severity is Severity.CRITICAL
        and action in _ALONE_ACTIONS
        and fault_class in _ALONE_CLASSES
        and not application_possible
        and not echo
    )


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of one of this package's own CSV files, as text."""
    text = files("gpuwarden_kernel_log").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def xid_entry(code: int) -> XidEntry | None:
    """The catalogue row of an XID; None for a code that the catalogue does not know."""
    return _xid_catalog().get(code)


def xid_codes() -> tuple[int, ...]:
    """All XIDs that the catalogue knows, ascending."""
    return tuple(sorted(_xid_catalog()))


def sxid_entry(code: int) -> SxidEntry | None:
    """The catalogue row of an SXid; None for a code outside NVIDIA's lists, which is never fatal.

    Its ``fatal`` serves lines that do not say Fatal or Non-fatal themselves.
    Source: Fabric Manager user guide DU-09883-001, appendices D.4 to D.7.
    """
    return _sxid_catalog().get(code)


@cache
def _xid_catalog() -> dict[int, XidEntry]:
    return {int(row["code"]): _entry(row) for row in read_table("xid_catalog.csv")}


@cache
def _sxid_catalog() -> dict[int, SxidEntry]:
    return {
        int(row["code"]): SxidEntry(
            code=int(row["code"]),
            name=row["name"],
            fatal=row["fatal"] != "no",
            fabric_wide=row["fatal"] == "always",
            fault_class=FaultClass(row["fault_class"]),
        )
        for row in read_table("sxid_catalog.csv")
    }


def _entry(row: dict[str, str]) -> XidEntry:
    return XidEntry(
        code=int(row["code"]),
        mnemonic=row["mnemonic"],
        name=row["name"],
        severity=Severity(row["severity"]),
        action=row["action"] or None,
        investigation=row["investigation"] or None,
        application_possible=row["application_possible"] == "yes",
        echo=row["echo"] == "yes",
        acts_alone=row["acts_alone"] == "yes",
        fault_class=FaultClass(row["fault_class"]),
        applies_to=frozenset(row["applies_to"].split()),
    )
