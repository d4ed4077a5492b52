"""Levels of history and how each is laid out in time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

MINUTE_S = 60
QUARTER_S = 900

PACKS = 256
"""Groups of nodes whose steps lie in one row; a node's pack is in its rows for ever."""


class Level(IntEnum):
    """How fine a piece of history is."""

    RAW = 0
    MINUTE = 1
    QUARTER = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """How a level lies in the database.

    Attributes:
        step_s: What one slab holds, seconds.
        window_s: What one segment holds, seconds.
        settle_s: Wait after a window's end before its slabs become segments, seconds.
    """

    step_s: int
    window_s: int
    settle_s: int

    def window_of(self, at: float) -> int:
        """Beginning of the window that a time lies in, epoch seconds."""
        return int(at // self.window_s) * self.window_s


SHAPES = MappingProxyType(
    {
        Level.RAW: Shape(MINUTE_S, 1800, 120),
        Level.MINUTE: Shape(MINUTE_S, 1800, 120),
        Level.QUARTER: Shape(QUARTER_S, 21600, 3600),
    }
)


def pack_of(node_id: str) -> int:
    """The pack of a node."""
    return zlib.crc32(node_id.encode()) % PACKS
