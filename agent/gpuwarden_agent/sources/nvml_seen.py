"""The most GPUs seen since boot, kept where a boot clears it."""

from __future__ import annotations

from pathlib import Path

_FILE = "gpus_seen"


class MostSeen:
    """Remembers a maximum across restarts of the agent within one boot.

    Args:
        folder: Folder for the file `gpus_seen` ("BOOT_ID NUMBER"); None remembers in memory only,
            as does a folder that cannot be written.
        boot_id: Present boot; a number from another boot is not taken over.
    """

    def __init__(self, folder: Path | None, boot_id: str) -> None:
        self._path = None if folder is None else folder / _FILE
        self._boot_id = boot_id
        self._most = self._read_file()

    def most(self, seen: int) -> int:
        """The most seen, `seen` included."""
        if seen > self._most:
            self._most = seen
            self._write_file()
        return self._most

    def _read_file(self) -> int:
        if self._path is None:
            return 0
        try:
            boot_id, number = self._path.read_text("ascii").split()
            return int(number) if boot_id == self._boot_id else 0
        except (OSError, ValueError):
            return 0

    def _write_file(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(f"{self._boot_id} {self._most}\n", "ascii")
            fresh.replace(self._path)
        except OSError:
            self._path = None
