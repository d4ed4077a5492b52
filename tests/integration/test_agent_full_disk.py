"""A whole agent whose spool lies on a disk that really runs full, and gets room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import EventKind
from tests.builders.agent import XID_79, agent_settings, running
from tests.fakes.ingest_server import FakeIngestServer, Scripted
from tests.fakes.waiting import wait_for


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all room that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            while _grow(file.fileno(), size):
                pass
    return ballast


def _grow(descriptor: int, size: int) -> bool:
    try:
        return os.write(descriptor, b"x" * size) == size
    except OSError:
        return False


@pytest.mark.serial
def test_a_full_disk_degrades_says_so_and_recovers(tmp_path: Path, small_disk: Path) -> None:
    log = tmp_path / "kern.log"
    log.touch()

    def fault(number: int) -> None:
        with log.open("a") as file:
            file.write(XID_79.replace("3b", f"{number:02x}") + "\n")

    with FakeIngestServer() as server:
        settings = agent_settings(
            tmp_path, server_url=server.url, spool_folder=small_disk / "spool", interval_s=0.1
        )

        def faults() -> list[str]:
            return [e.pci_bus_id or "" for e in server.events.values() if e.xid == 79]

        def told() -> list[EventKind]:
            own = [e for e in server.events.values() if e.attributes.get("source") == "spool"]
            return [event.kind for event in own]

        with running(settings) as agent:
            wait_for(lambda: server.seqs(Stream.TELEMETRY))
            fault(1)
            wait_for(lambda: len(faults()) == 1)
            server.when = lambda batch: Scripted(503)  # so that what is collected stays here
            ballast = fill(small_disk)
            wait_for(lambda: agent.spool.trouble == "disk_full")
            fault(2)
            wait_for(lambda: agent.spool.size().in_memory > 2)
            server.when = lambda batch: None
            wait_for(lambda: told() == [EventKind.COLLECTOR_TROUBLE])
            wait_for(lambda: len(faults()) == 2)  # from memory: the disk is full still
            assert agent.spool.trouble == "disk_full"
            fault(3)
            ballast.unlink()
            wait_for(lambda: agent.spool.trouble is None)
            wait_for(lambda: told() == [EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED])
            fault(4)
            wait_for(lambda: len(faults()) == 4)
            wait_for(lambda: agent.spool.size().in_memory == 0)
        assert faults() == [f"0000:{number:02x}:00.0" for number in range(1, 5)]
        assert server.duplicates == []
