"""What is remembered of a node's GPUs over restarts and reboots, in a file beside the spool.

A GPU that does not come up after a reboot is missed only by who remembers that it was there, and a
loss that was told is taken back only by who remembers having told it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

_FILE = "gpus.json"
_MOST_GPUS = 64
"""Most GPUs remembered; a node has 16 at most, the rest is what was replaced over the years."""


class KnownGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU as it was last seen.

    Attributes:
        uuid, pci_bus_id, index, serial, model, vbios_version: As in GpuAnswer.
        trouble: Trouble that was told and has not been followed by a passed check.
        missed_probes: Probes in a row at which it was missing, as far as they were told; 0 where
            it answered or was told to answer again.
    """

    uuid: str
    pci_bus_id: str
    index: int = 0
    serial: str = ""
    model: str = ""
    vbios_version: str = ""
    trouble: tuple[str, ...] = ()
    missed_probes: int = 0


class Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything remembered.

    Attributes:
        boot_id: Boot in which it was written; a GPU known in the present boot must still be there.
        most: Most GPUs ever seen, those bound to another driver included.
        gpus: GPUs ever seen, by UUID in order of first sight.
        stuck_call: Driver call that was told to hang and not to be over since; "" where none.
    """

    boot_id: str = ""
    most: int = 0
    gpus: tuple[KnownGpu, ...] = ()
    stuck_call: str = ""


class LedgerFile:
    """The ledger on disk.

    Args:
        folder: Folder of the file `gpus.json`; None remembers nothing.
        writable: False reads only, as for a look that must leave no trace.
    """

    def __init__(self, folder: Path | None, *, writable: bool = True) -> None:
        self._path = None if folder is None else folder / _FILE
        self._writable = writable

    def read(self) -> Ledger:
        """What was written last; an empty ledger where nothing, or nothing readable, is there."""
        if self._path is None:
            return Ledger()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Ledger)
        except (OSError, msgspec.DecodeError):
            return Ledger()

    def write(self, ledger: Ledger) -> None:
        """Replace the file; a disk that takes nothing leaves the former content."""
        if self._path is None or not self._writable:
            return
        fresh = self._path.with_suffix(".new")
        kept = msgspec.structs.replace(ledger, gpus=ledger.gpus[-_MOST_GPUS:])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(kept))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
