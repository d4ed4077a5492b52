"""A disk of a few megabytes that a test can fill to its last byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted tmpfs.

    Attributes:
        folder: Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take every byte that is free."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def free(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """A disk for the length of the block; skips where one cannot be mounted."""
    folder.mkdir()
    size = f"size={mebibytes}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "gpuwarden-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk: root, outside a locked container")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
