"""XID 74: the seven registers of an NVLink line (Ampere and Hopper), by NVIDIA's published table.

A line reads ``74, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)``.
The first, third, fourth and fifth register count; what the table does not name is to be reported.
Source: Xid-Catalog.xlsx, guidance class WORKFLOW_NVLINK_ERR.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["NvLink4Words", "NvLinkFault", "nvlink4_fault", "parse_nvlink4_words"]

# NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)
_WORDS = re.compile(
    r"\blink {0,2}(?P<link>\d{1,2}) {0,2}\((?P<words>0x[0-9A-Fa-f]{1,8}"
    r"(?:[ ,]{1,3}0x[0-9A-Fa-f]{1,8}){0,6})\)",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[ ,]+")


class NvLinkFault(StrEnum):
    """What the registers of an XID 74 mean, the mildest first."""

    IGNORED = "ignored"  # "can be safely ignored"
    ECC_THRESHOLD = "ecc_threshold"  # corrected errors beyond a threshold: "continue operation"
    SYMPATHETIC = "sympathetic"  # secondary: follow the other errors; alone, report it
    SYMPATHETIC_FABRIC = "sympathetic_fabric"  # the same, and the fabric needs a reset
    REPORT = "report"  # to be reported, if seen repeatedly or at all
    SIGNAL = "signal"  # marginal signal integrity: check the mechanical connections
    MECHANICAL = "mechanical"  # possibly hardware: check the connections, re-seat
    ECC_PARITY = "ecc_parity"  # likely hardware, if seen more than twice on the same link


_RANK = {fault: rank for rank, fault in enumerate(NvLinkFault)}
_BITS: dict[int, tuple[tuple[NvLinkFault, tuple[int, ...]], ...]] = {
    1: (
        (NvLinkFault.IGNORED, (0, 23, 30)),
        (NvLinkFault.SYMPATHETIC, (1, 20)),
        (NvLinkFault.ECC_PARITY, (4, 5)),
        (NvLinkFault.MECHANICAL, (8, 9, 12, 16, 17, 24, 28)),
        (NvLinkFault.SIGNAL, (21, 22)),
        (NvLinkFault.REPORT, (27, 29)),
    ),
    3: (
        (NvLinkFault.ECC_PARITY, (0, 1, 2, 6)),
        (NvLinkFault.REPORT, (13, 16, 17, 18, 19)),
    ),
    4: (
        (NvLinkFault.SYMPATHETIC, (16, 17)),
        (NvLinkFault.SYMPATHETIC_FABRIC, (18,)),
    ),
    5: (
        (NvLinkFault.ECC_PARITY, (18, 19, 21, 22, 24, 25, 27, 28)),
        (NvLinkFault.ECC_THRESHOLD, (20, 23, 26, 29)),
    ),
}
"""Bits by register, counted from 1, and what they mean."""


@dataclass(frozen=True, slots=True)
class NvLink4Words:
    """The fields of an XID 74 line.

    Attributes:
        link: Number of the link.
        registers: The words in order, seven where the line was not cut short.
    """

    link: int
    registers: tuple[int, ...]


def parse_nvlink4_words(text: str) -> NvLink4Words | None:
    """Link and registers of an XID 74 line; None where it has none."""
    found = _WORDS.search(text)
    if found is None:
        return None
    words = tuple(int(word, 16) for word in _SEPARATOR.split(found["words"]))
    return NvLink4Words(int(found["link"]), words)


def nvlink4_fault(words: NvLink4Words) -> NvLinkFault | None:
    """The gravest that any set bit means; None where no bit that counts is set.

    A bit that the table does not name is REPORT.
    """
    meant: set[NvLinkFault] = set()
    for number, rows in _BITS.items():
        if number > len(words.registers):
            break
        left = words.registers[number - 1]
        for fault, bits in rows:
            mask = sum(1 << bit for bit in bits)
            if left & mask:
                meant.add(fault)
            left &= ~mask
        if left:
            meant.add(NvLinkFault.REPORT)
    return max(meant, key=_RANK.__getitem__, default=None)
