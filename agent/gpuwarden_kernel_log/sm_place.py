"""XID 13: which processing cluster raised the exception."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["SmPlace", "parse_sm_place"]

# 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal
# Instruction Parameter      13, Graphics SM Warp Exception on (GPC 0, TPC 1): Out Of Range Address
_PLACE = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})(?:, SM (\d{1,3}))?\)")


@dataclass(frozen=True, slots=True)
class SmPlace:
    """A place on the chip.

    Attributes:
        gpc: Graphics processing cluster.
        tpc: Texture processing cluster in it.
        sm: Streaming multiprocessor in that; None where the line does not say (old drivers).
    """

    gpc: int
    tpc: int
    sm: int | None


def parse_sm_place(text: str) -> SmPlace | None:
    """The place that a line of XID 13 names; None where it names none (its ESR lines)."""
    found = _PLACE.search(text)
    if found is None:
        return None
    return SmPlace(int(found[1]), int(found[2]), int(found[3]) if found[3] else None)
