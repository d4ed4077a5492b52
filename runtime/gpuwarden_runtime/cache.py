"""The last exclusion set on disk, for when the server is away."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwarden_runtime.records import ExclusionSet

MAX_AGE_S = 24 * 3600.0
"""An older set says nothing any more: exclusions are renewed or end within a day."""

# Clocks of a cluster differ by seconds; a set "from tomorrow" would never grow old.
_CLOCK_TOLERANCE_S = 300.0


class CachedSet(msgspec.Struct, frozen=True, kw_only=True):
    """Form of the cache file.

    Attributes:
        saved_at: Epoch seconds when the server last confirmed the set.
        url: Server that it came from.
        content: The set.
    """

    saved_at: float
    url: str
    content: ExclusionSet


@dataclass(frozen=True, slots=True)
class NoCache:
    """Why there is no usable set.

    Attributes:
        reason: In words, with the file named.
    """

    reason: str


class SetCache:
    """One file a server in a folder.

    Args:
        folder: Made when first needed.
        url: Server's address; sets of different servers never mix.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._url = url
        name = hashlib.sha256(url.encode()).hexdigest()[:12]
        self.path = folder.expanduser() / f"exclusions-{name}.json"

    def save(self, content: ExclusionSet, now: float) -> str:
        """Write the set with its time, atomically.

        Returns:
            "" or why it could not be written: a missing cache must not stop a training job.
        """
        body = msgspec.json.encode(CachedSet(saved_at=now, url=self._url, content=content))
        try:
            write_atomically(self.path, body)
        except OSError as error:
            return f"{self.path}: {error.strerror or error}"
        return ""

    def load(self, now: float) -> CachedSet | NoCache:
        """The set if it is of this server and not older than MAX_AGE_S."""
        try:
            cached = msgspec.json.decode(self.path.read_bytes(), type=CachedSet)
        except FileNotFoundError:
            return NoCache(f"no cached set in {self.path}")
        except (OSError, msgspec.DecodeError) as error:
            return NoCache(f"{self.path} cannot be used: {error}")
        age_s = now - cached.saved_at
        if cached.url != self._url:
            return NoCache(f"{self.path} is of {cached.url}")
        if age_s > MAX_AGE_S:
            return NoCache(f"{self.path} is {age_s / 3600:.0f} h old")
        if age_s < -_CLOCK_TOLERANCE_S:
            return NoCache(f"{self.path} is dated {-age_s:.0f} s in the future")
        return cached


def write_atomically(path: Path, body: bytes) -> None:
    """Replace a file so that a reader sees the old or the new content, never a part.

    Raises:
        OSError: Not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
