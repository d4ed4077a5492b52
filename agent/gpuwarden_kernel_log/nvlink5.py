"""XIDs 144-150: the words of an NVLink 5 line, looked up in NVIDIA's decode table.

A line reads ``145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000040 ...)``: unit, its own
word for the severity, cross-containment, injected, link, then intrInfo, errorStatus and debug
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from gpuwarden_kernel_log.catalog import read_table

__all__ = ["NVLINK5_CODES", "NvLink5Row", "NvLink5Words", "nvlink5_decode", "parse_nvlink5_words"]

NVLINK5_CODES = range(144, 151)
_FIRST_V2_MAJOR = 575  # the layout of intrInfo changed with R575: Xid-Catalog.xlsx, decode sheet
_BITMASK_CODES = range(144, 149)  # errorStatus is a set of bits; 149 and 150 carry plain values
_RANK = {"IGNORE": 0, "XID_154_EVAL": 1, "RESET_GPU": 2}
# 149, NETIR_LINK_EVT/NETIR_LINK_DOWN Fatal XC0 i0 Link -1 (0x02500011 0x00000000 ...)
_WORDS = re.compile(
    r"([A-Z][A-Z0-9_]{1,31}(?:/[A-Z0-9_]{1,32})?)\s{1,4}(Fatal|Non-?fatal)\b"
    r"[^(]{0,60}\((0x[0-9A-Fa-f]{1,8})(?:[ ,]{1,3}(0x[0-9A-Fa-f]{1,8})(?=[ ,)]))?",
    re.IGNORECASE,
)
# RLW_REMAP Nonfatal XC1 i0 Link 10 (...       RLW_CTRL Nonfatal XC 1 i 01 Link 10 (...
_INJECTED = re.compile(r"\sXC ?\d{1,2} i ?0?1\b")


@dataclass(frozen=True, slots=True)
class NvLink5Words:
    """The fields of a line that the table needs.

    Attributes:
        unit: reporting unit, such as RLW_REMAP or TLW_RX/TLW_RX_PIPE0.
        says_fatal: the line's own word.
        intr_info: first word.
        error_bits: second word (errorStatus); None where the line ends before it.
        injected: a person or a test injected the error (the line's i flag).
    """

    unit: str
    says_fatal: bool
    intr_info: int
    error_bits: int | None
    injected: bool = False


@dataclass(frozen=True, slots=True)
class NvLink5Row:
    """What the table says about such a line.

    Attributes:
        action: immediate bucket: RESET_GPU, IGNORE or XID_154_EVAL.
        investigation: investigatory bucket.
        severity: nonfatal, fatal or link_fatal.
        origin: hw, sw, hw_sw, fw or none.
    """

    action: str
    investigation: str
    severity: str
    origin: str


@dataclass(frozen=True, slots=True)
class _Pattern:
    xid: int
    units: frozenset[str]
    layouts: tuple[tuple[int, int], tuple[int, int]]
    error_bits: int | None
    row: NvLink5Row


def parse_nvlink5_words(text: str) -> NvLink5Words | None:
    """Unit and words of a 144-150 line; None where the line is cut short or of another form."""
    found = _WORDS.search(text)
    if found is None:
        return None
    return NvLink5Words(
        unit=found[1].upper(),
        says_fatal=found[2].lower() == "fatal",
        intr_info=int(found[3], 16),
        error_bits=int(found[4], 16) if found[4] else None,
        injected=_INJECTED.search(found[0]) is not None,
    )


def nvlink5_decode(
    code: int,
    unit: str,
    intr_info: int,
    error_bits: int | None,
    driver_version: str | None = None,
) -> NvLink5Row | None:
    """Look an NVLink 5 fault up in NVIDIA's table.

    Args:
        code: XID 144-150.
        unit: reporting unit; one of the two names of a row is enough.
        intr_info: first word.
        error_bits: second word; None if unknown.
        driver_version: picks the layout of intrInfo; None tries both.

    Returns:
        The row; of several error bits the gravest row, if each bit is known. None where nothing
        matches, a bit is unknown, or the two layouts disagree: an unknown fault is never fatal.
    Source: Xid-Catalog.xlsx, sheet "Xid 144-150 Decode".
    """
    answers = {
        row
        for layout in _layouts(driver_version)
        if (row := _in_layout(code, unit, intr_info, error_bits, layout)) is not None
    }
    if len({row.action for row in answers}) != 1:
        return None
    return min(answers, key=lambda row: (row.severity, row.origin))


def _layouts(driver_version: str | None) -> tuple[int, ...]:
    major = (driver_version or "").split(".", 1)[0]
    if not (major.isascii() and major.isdigit()):
        return (0, 1)
    return (1,) if int(major[:6]) >= _FIRST_V2_MAJOR else (0,)


def _in_layout(
    code: int, unit: str, intr_info: int, error_bits: int | None, layout: int
) -> NvLink5Row | None:
    named = set(unit.upper().split("/"))
    rows = [
        pattern
        for pattern in _patterns()
        if pattern.xid == code
        and _same_unit(named, pattern.units)
        and intr_info & pattern.layouts[layout][0] == pattern.layouts[layout][1]
    ]
    exact = [p.row for p in rows if p.error_bits is None or p.error_bits == error_bits]
    if exact:
        return _gravest(exact)
    if code not in _BITMASK_CODES or not error_bits:
        return None
    known = {p.error_bits: p.row for p in rows if p.error_bits}
    bits = [1 << n for n in range(32) if error_bits >> n & 1]
    if any(bit not in known for bit in bits):
        return None
    return _gravest(known[bit] for bit in bits)


def _same_unit(named: set[str], units: frozenset[str]) -> bool:
    return bool(named & units) or any(
        unit.startswith(f"{name}_") for name in named for unit in units
    )


def _gravest(rows: Iterable[NvLink5Row]) -> NvLink5Row:
    return max(rows, key=lambda row: _RANK.get(row.action, 0))


@cache
def _patterns() -> tuple[_Pattern, ...]:
    return tuple(
        pattern for row in read_table("nvlink5_decode.csv") for pattern in _row_patterns(row)
    )


def _row_patterns(row: dict[str, str]) -> list[_Pattern]:
    """The pattern of a table row and, where the row has one, its second pattern and bucket."""
    made = [_pattern(row, "", row["action"])]
    if row["other_action"]:
        made.append(_pattern(row, "other_", row["other_action"]))
    return made


def _pattern(row: dict[str, str], prefix: str, action: str) -> _Pattern:
    def pair(version: str) -> tuple[int, int]:
        return int(row[f"{prefix}mask_{version}"], 16), int(row[f"{prefix}value_{version}"], 16)

    return _Pattern(
        xid=int(row["xid"]),
        units=frozenset(row["units"].split()),
        layouts=(pair("v1"), pair("v2")),
        error_bits=int(row["error_bits"], 16) if row["error_bits"] else None,
        row=NvLink5Row(action, row["investigation"], row["severity"], row["origin"]),
    )
