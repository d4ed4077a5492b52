"""Where kernel lines come from: the contract of both readers, and what they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from gpuwarden_wire.events import Backlog

MAX_LINE_BYTES = 65_536
"""A longer line is cut; printk's own records end at 1 KiB."""


class KmsgMark(msgspec.Struct, frozen=True, tag="kmsg"):
    """How far /dev/kmsg was read.

    Attributes:
        boot_id: Boot that the sequence belongs to.
        seq: Kernel's sequence of the last record read, -1 before the first.
    """

    boot_id: str
    seq: int


class FileMark(msgspec.Struct, frozen=True, tag="file"):
    """How far a log file was read.

    Attributes:
        device: st_dev of the file.
        inode: st_ino of the file.
        offset: First byte that was not read as part of a whole line.
        generation: How often the file was rotated or truncated under us; part of the ids, since
            inode numbers and offsets come again.
        head: CRC-32 of the first `head_bytes` bytes: tells a file that was replaced in place.
        head_bytes: At most 256, and at most `offset`.
    """

    device: int
    inode: int
    offset: int
    generation: int = 0
    head: int = 0
    head_bytes: int = 0


Mark = KmsgMark | FileMark


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line.

    Attributes:
        id: Natural id, the same whenever this line is read.
        text: Bytes without the line's end.
        observed_at: Epoch seconds that the source knows of itself, None where it knows none.
        backlog: How late it was read, None where the source cannot tell which boot wrote it.
        relayed: Written by a program through /dev/kmsg, not by the kernel.
    """

    id: str
    text: bytes
    observed_at: float | None = None
    backlog: Backlog | None = Backlog.NONE
    relayed: bool = False


class LineReader(Protocol):
    """Gives lines in order, each once."""

    def read(self, timeout_s: float) -> list[KernelLine]:
        """Some lines; empty where none came within `timeout_s`.

        Raises:
            OSError: The source is gone.
        """
        ...

    @property
    def caught_up(self) -> bool:
        """Whether all that was there at the opening has been returned."""
        ...

    def mark(self) -> Mark:
        """The position behind the last line returned."""
        ...

    def take_lost(self) -> int:
        """Lines that were overwritten before we could read them, since the last call."""
        ...

    def close(self) -> None:
        """Release the source."""
        ...
