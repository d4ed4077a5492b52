"""Where the files of model versions are: the model folder, and what was added over the API."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_server.learning.models import (
    default_folder,
    manifest_in,
    promoted_home,
    read_files,
)
from gpuwarden_server.learning.registry import repository
from gpuwarden_server.learning.registry.domain import Chosen
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.fusion import FusionModel, ModelError, decode_model
from gpuwarden_verdict.fusion.artifact import MANIFEST
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Listed:
    """A version that may be promoted.

    Attributes:
        version: Its name.
        digest: SHA-256 of its MANIFEST.json.
        source: "folder" or "added".
        added_at: Epoch seconds, None for one of the folder.
        author: Who added it, "" for one of the folder.
    """

    version: str
    digest: str
    source: str
    added_at: float | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that was read and checked.

    Attributes:
        model: It.
        digest: SHA-256 of its MANIFEST.json.
    """

    model: FusionModel
    digest: str


class Library:
    """All versions that this server can use."""

    def __init__(self, folder: Path | None, state: Database) -> None:
        """Make a library.

        Args:
            folder: The operator's model folder, None for the shipped models.
            state: state.db, which keeps what was added.
        """
        self._folder = folder if folder is not None else default_folder()
        self._state = state

    @property
    def folder(self) -> Path:
        """The model folder."""
        return self._folder

    def listed(self, kind: EntityKind) -> list[Listed]:
        """Versions of a kind: of the folder by name, then those added, newest first."""
        homes = self._homes(kind)
        found = [Listed(name, _digest_in(home), "folder") for name, home in sorted(homes.items())]
        with self._state.read() as connection:
            added = repository.read_added(connection, kind)
        return found + [
            Listed(one.version, one.digest, "added", one.added_at, one.author)
            for one in added
            if one.version not in homes
        ]

    def files(self, kind: EntityKind, version: str) -> dict[str, bytes]:
        """The files of a version by name, unchecked.

        Raises:
            KeyError: There is no such version.
            ModelError: One of them cannot be a model's.
            OSError: The folder cannot be read.
        """
        home = self._homes(kind).get(version)
        if home is not None:
            return read_files(home)
        with self._state.read() as connection:
            files = repository.read_files(connection, kind, version)
        if files is None:
            raise KeyError(version)
        return files

    def load(self, kind: EntityKind, version: str) -> Loaded:
        """A version, every byte of it checked.

        Raises:
            KeyError: There is no such version.
            ModelError: It must not be used; says why and what to do.
        """
        try:
            return checked(kind, self.files(kind, version))
        except OSError as error:
            raise ModelError(f"model {version} cannot be read: {error}") from error

    def load_chosen(self, kind: EntityKind, chosen: Chosen) -> Loaded:
        """The very model that was chosen.

        Raises:
            ModelError: It is gone, must not be used, or is another one by now.
        """
        try:
            loaded = self.load(kind, chosen.version)
        except KeyError:
            raise ModelError(
                f"model {chosen.version} is gone: restore it in the model folder, add it again with"
                " `gpuwarden models add`, or promote another version"
            ) from None
        if loaded.digest != chosen.digest:
            raise ModelError(
                f"model {chosen.version} is not the one that was promoted, its {MANIFEST} is"
                " another: restore the folder, or promote this one anew"
            )
        return loaded

    def load_default(self, kind: EntityKind) -> Loaded | None:
        """What the model folder itself names for a kind, None where it names nothing.

        Raises:
            ModelError: It must not be used.
            OSError: The folder cannot be read.
        """
        home = promoted_home(self._folder, kind)
        return None if home is None else checked(kind, read_files(home))

    def _homes(self, kind: EntityKind) -> dict[str, Path]:
        """Folders of the versions of a kind in the model folder, by version."""
        places = [self._folder, *_folders(self._folder), *_folders(self._folder / kind.value)]
        homes: dict[str, Path] = {}
        for place in places:
            manifest = manifest_in(place)
            if manifest is not None and manifest.kind == kind.value:
                homes.setdefault(manifest.version, place)
        return homes


def checked(kind: EntityKind, files: Mapping[str, bytes]) -> Loaded:
    """A model of a kind from its files.

    Raises:
        ModelError: It must not be used, or is of another kind.
    """
    return Loaded(decode_model(files, kind), digest_of(files[MANIFEST]))


def digest_of(manifest: bytes) -> str:
    """What a version is recognised by: its manifest holds the hashes of all else."""
    return hashlib.sha256(manifest).hexdigest()


def _folders(place: Path) -> list[Path]:
    try:
        return [path for path in place.iterdir() if path.is_dir()]
    except OSError:
        return []


def _digest_in(home: Path) -> str:
    return digest_of((home / MANIFEST).read_bytes())
