"""The node's bearer key, from the settings or from a file that may change while we run."""

from __future__ import annotations

from pathlib import Path

from gpuwarden_wire.keys import KEY_MEND, key_fault


class KeyUnavailable(Exception):
    """There is no key to send; the message says why and names the mend."""


class KeySource:
    """Gives the present key; reads the file again whenever it changed."""

    def __init__(self, key: str, key_file: Path | None) -> None:
        self._key = key
        self._file = key_file
        self._stamp: tuple[int, int, int] | None = None

    def current(self) -> str:
        """The key.

        Raises:
            KeyUnavailable: The file is missing, unreadable, empty or holds what cannot be a key,
                or no key was set.
        """
        if self._file is None:
            if not self._key:
                raise KeyUnavailable(
                    "no key is set: make one with `gpuwarden keys create --role agent --node NODE` "
                    "and set GPUWARDEN_AGENT_KEY_FILE"
                )
            return self._key
        stamp = self.stamp()
        if stamp is None or stamp != self._stamp:
            self._key = _read_key(self._file)
            self._stamp = stamp
        return self._key

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does; None where there is no file to look at."""
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def _read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyUnavailable(
            f"key file {path}: {error}. Write the key into it, readable for the agent"
        ) from error
    if not key:
        raise KeyUnavailable(f"key file {path} is empty: write the key of this node into it")
    fault = key_fault(key)
    if fault:
        raise KeyUnavailable(f"key file {path}: {fault}: {KEY_MEND}, and nothing else")
    return key
