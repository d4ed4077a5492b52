"""Taking a spool folder and finding out how its last run ended."""

from __future__ import annotations

import fcntl
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpuwarden_agent.spool.entry import Entry, SpoolUnusable
from gpuwarden_agent.spool.store import BatchStore, StoreFailed, set_aside
from gpuwarden_wire.batches import Stream


@dataclass(frozen=True, slots=True)
class OpenedSpool:
    """A spool folder taken by this process.

    Attributes:
        store: The database on disk.
        spool_id: Random name of the spool.
        next_seq: Next sequence of each stream.
        set_aside: Where an unreadable database was moved, None where all was well.
    """

    store: BatchStore
    spool_id: str
    next_seq: dict[Stream, int]
    set_aside: Path | None


def take_folder(folder: Path) -> BinaryIO:
    """Make the folder and lock it; the lock lasts as long as the returned file is open.

    Raises:
        SpoolUnusable: It cannot be made or written, or another agent has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("ab")
    except OSError as error:
        raise SpoolUnusable(
            f"spool folder {folder}: {error.strerror}. "
            "Make it writable for the agent, or set GPUWARDEN_AGENT_SPOOL_FOLDER."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise SpoolUnusable(
            f"spool folder {folder} belongs to another running agent. "
            "Stop it, or set GPUWARDEN_AGENT_SPOOL_FOLDER."
        ) from error
    return lock


def sound_marker(folder: Path) -> Path:
    """A file that is there unless batches were numbered in memory; removing it needs no space."""
    return folder / "sound"


def open_spool(folder: Path, boot_id: str, now: float) -> OpenedSpool:
    """Open or create the database in a folder that this process has taken.

    Raises:
        SpoolUnusable: The disk is full or not writable.
    """
    path = folder / "spool.db"
    aside: Path | None = None
    try:
        try:
            store = BatchStore(path)
        except StoreFailed as failure:
            if failure.reason != "spool_corrupt":
                raise
            aside = set_aside(path, now)
            store = BatchStore(path)
        return _resume(store, folder, boot_id, aside)
    except (StoreFailed, OSError) as failure:
        raise SpoolUnusable(
            f"spool {path}: {failure}. Free space on that disk, or set another "
            "GPUWARDEN_AGENT_SPOOL_FOLDER."
        ) from failure


def _resume(store: BatchStore, folder: Path, boot_id: str, aside: Path | None) -> OpenedSpool:
    marker = sound_marker(folder)
    spool_id = store.fact("spool_id")
    next_seq = {stream: int(store.fact(f"next_seq.{stream}") or 1) for stream in Stream}
    host_crashed = store.fact("closed") != "yes" and store.fact("boot_id") != boot_id
    with store.transaction(durable=True):
        if spool_id is None:
            spool_id = secrets.token_hex(16)
        elif host_crashed or not marker.exists():
            # After a power cut the last numbers given to telemetry may be forgotten; without the
            # marker the last run numbered batches in memory. A number used twice would look like a
            # replay and lose what it now names: the spool starts a new life under a new id.
            spool_id = secrets.token_hex(16)
            next_seq = _renumber(store)
        store.set_fact("spool_id", spool_id)
        store.set_fact("boot_id", boot_id)
        store.set_fact("closed", "no")
        for stream, seq in next_seq.items():
            store.set_fact(f"next_seq.{stream}", str(seq))
    marker.touch()
    return OpenedSpool(store, spool_id, next_seq, aside)


def _renumber(store: BatchStore) -> dict[Stream, int]:
    entries, lost, positions = store.entries(), store.count_shed(), store.positions()
    store.clear()
    next_seq = {Stream.EVENTS: 1, Stream.TELEMETRY: 1 + lost}
    if lost:
        store.add_shed(Stream.TELEMETRY, 1, lost)
    for name, content in positions:
        store.set_position(name, content)
    for entry in entries:
        seq = None
        if entry.stream is Stream.EVENTS:
            seq = next_seq[Stream.EVENTS]
            next_seq[Stream.EVENTS] += 1
        store.insert(Entry(entry.id, entry.stream, seq, entry.body))
    return next_seq
