"""What people do with models; each write is audited, and in use before it is answered."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock

import msgspec
from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.learning.registry import domain, repository
from gpuwarden_server.learning.registry.domain import NAME, Choice, ChoiceError, Chosen
from gpuwarden_server.learning.registry.library import Library, Listed, Loaded, digest_of
from gpuwarden_server.learning.registry.repository import AddedVersion
from gpuwarden_server.learning.registry.shelf import ModelShelf, Standing
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.fusion import ModelError, decode_model
from gpuwarden_verdict.fusion.artifact import MANIFEST
from gpuwarden_wire.metrics import EntityKind

MOST_ADDED = 20
"""Added versions of a kind that are kept beside those in use or that a rollback leads to."""
LARGEST_UNPACKED = 64 << 20
"""Bytes of a model's arrays; ours have about 1 MB."""
_SEE = "See GET /v1/models, or `gpuwarden models list`."
_STAYS = "What is in use stays in use. " + _SEE
_Move = Callable[[Choice], Choice]


class ModelDesk:
    """Promotes, rolls back, challenges and adds; one at a time."""

    def __init__(
        self,
        shelf: ModelShelf,
        library: Library,
        state: Database,
        clock: Clock,
        gone: Callable[[Connection, tuple[EntityKind, str]], None],
    ) -> None:
        """Make a desk.

        Args:
            shelf: The models in use.
            library: All versions.
            state: state.db.
            clock: Time.
            gone: Told of a version that is kept no longer, in that transaction.
        """
        self._gone = gone
        self._shelf = shelf
        self._library = library
        self._state = state
        self._clock = clock
        self._lock = Lock()

    def choice(self, kind: EntityKind) -> Choice:
        """What is chosen for a kind; where nobody chose, what the model folder names."""
        with self._state.read() as connection:
            return self._or_default(kind, repository.read_choice(connection, kind))

    def standing(self, kind: EntityKind) -> Standing:
        """What is in use for a kind."""
        return self._shelf.standing(kind)

    def listed(self, kind: EntityKind) -> list[Listed]:
        """Versions of a kind that may be promoted."""
        return self._library.listed(kind)

    def files(self, kind: EntityKind, version: str) -> tuple[str, Mapping[str, bytes]]:
        """Digest and files of a version.

        Raises:
            ProblemError: 404; 409 it must not be used.
        """
        loaded = self._load(kind, version)
        return loaded.digest, self._library.files(kind, version)

    def promote(self, kind: EntityKind, version: str, reason: str, caller: Principal) -> None:
        """Let a version judge from now on.

        Raises:
            ProblemError: 404 no such version; 409 it must not be used: the former one stays.
        """
        with self._lock:
            loaded = self._load(kind, version)
            wanted = self._chosen(loaded, caller)
            self._move(
                kind, "promote_model", reason, caller, lambda now: domain.promoted(now, wanted)
            )
            stands = self._shelf.standing(kind)
            keeps = stands.challenger
            if keeps is not None and keeps.digest == loaded.digest:
                keeps = None
            self._shelf.put(kind, Standing(loaded, keeps))

    def roll_back(self, kind: EntityKind, reason: str, caller: Principal) -> None:
        """Let the version judge that did before.

        Raises:
            ProblemError: 409 there is none, or it must not be used any more.
        """
        with self._lock:
            before = self.choice(kind)
            if not before.former:
                raise _nothing_before(kind)
            try:
                loaded = self._library.load_chosen(kind, before.former[-1])
            except ModelError as error:
                raise _refused(error) from error
            at = self._clock.now()
            self._move(
                kind,
                "roll_back_model",
                reason,
                caller,
                lambda now: domain.rolled_back(now, at, caller.name),
            )
            self._shelf.put(kind, Standing(loaded, self._shelf.standing(kind).challenger))

    def challenge(
        self, kind: EntityKind, version: str | None, reason: str, caller: Principal
    ) -> None:
        """Score a version in shadow beside the promoted one; None ends that.

        Raises:
            ProblemError: 404 no such version; 409 it must not be used, or is the promoted one.
        """
        with self._lock:
            loaded = None if version is None else self._load(kind, version)
            wanted = None if loaded is None else self._chosen(loaded, caller)
            action = "challenge_model" if wanted is not None else "end_challenger"
            self._move(kind, action, reason, caller, lambda now: domain.challenged(now, wanted))
            self._shelf.put(kind, replace(self._shelf.standing(kind), challenger=loaded))

    def add(self, files: Mapping[str, bytes], reason: str, caller: Principal) -> tuple[str, str]:
        """Keep a version that was trained elsewhere; the same one again changes nothing.

        Returns:
            Kind and version.

        Raises:
            ProblemError: 409 it must not be used, or another one has its name.
        """
        loaded, kind = _checked(files)
        added = AddedVersion(loaded.model.version, loaded.digest, self._clock.now(), caller.name)
        with self._lock:
            known = {one.version: one.digest for one in self._library.listed(kind)}
            if added.version in known:
                if known[added.version] != added.digest:
                    raise _taken(kind, added.version)
                return kind.value, added.version
            kept = self.choice(kind).versions
            entry = AuditEntry(
                added.added_at,
                caller.name,
                caller.key_id,
                "add_model",
                f"{kind.value}:{added.version}",
                reason,
                None,
                {"kind": kind.value, "version": added.version, "digest": added.digest},
            )

            def write(connection: Connection) -> None:
                repository.add_version(connection, kind, added, files)
                free = [
                    one.version
                    for one in repository.read_added(connection, kind)
                    if one.version not in kept
                ]
                for version in free[MOST_ADDED:]:
                    repository.delete_version(connection, kind, version)
                    self._gone(connection, (kind, version))
                record_audit(connection, entry)

            self._state.writer.call(write)
        return kind.value, added.version

    def _move(
        self, kind: EntityKind, action: str, reason: str, caller: Principal, move: _Move
    ) -> None:
        """Write a choice and what it was before; nothing where it stays.

        What the model folder names is chosen by nobody: a move that leaves it in use does not bind
        the kind to it, so that the next release's model takes its place.
        """

        def write(connection: Connection) -> None:
            stored = repository.read_choice(connection, kind)
            before = self._or_default(kind, stored)
            try:
                after = move(before)
            except ChoiceError as error:
                raise ProblemError(409, "wrong_choice", str(error), _SEE) from error
            if after == before:
                return
            unbound = stored is None or stored.promoted is None
            stays = unbound and after.promoted == before.promoted
            kept = replace(after, promoted=None) if stays else after
            repository.write_choice(connection, kind, kept)
            entry = AuditEntry(
                self._clock.now(),
                caller.name,
                caller.key_id,
                action,
                kind.value,
                reason,
                _form(before),
                _form(after),
            )
            record_audit(connection, entry)

        self._state.writer.call(write)

    def _or_default(self, kind: EntityKind, choice: Choice | None) -> Choice:
        if choice is not None and choice.promoted is not None:
            return choice
        used = self._shelf.standing(kind).promoted
        promoted = None if used is None else Chosen(used.model.version, used.digest, 0.0)
        return replace(choice or Choice(), promoted=promoted)

    def _load(self, kind: EntityKind, version: str) -> Loaded:
        try:
            return self._library.load(kind, version)
        except KeyError:
            raise ProblemError(
                404,
                "not_found",
                f"no version {version!r} of the {kind.value} model",
                f"{_SEE} `gpuwarden models add FOLDER` brings one here.",
            ) from None
        except ModelError as error:
            raise _refused(error) from error

    def _chosen(self, loaded: Loaded, caller: Principal) -> Chosen:
        return Chosen(loaded.model.version, loaded.digest, self._clock.now(), caller.name)


def _checked(files: Mapping[str, bytes]) -> tuple[Loaded, EntityKind]:
    """A model of any kind that a model may have, from its files."""
    _refuse_bloated(files)
    try:
        model = decode_model(files)
    except ModelError as error:
        raise _refused(error) from error
    if re.fullmatch(NAME, model.version) is None:
        raise ProblemError(
            409, "model_refused", f"{model.version!r} is no name of a version", _STAYS
        )
    return Loaded(model, digest_of(files[MANIFEST])), model.kind


def _refuse_bloated(files: Mapping[str, bytes]) -> None:
    """Refuse arrays that are small as they travel and would fill the memory when they are read."""
    for name, content in files.items():
        if not zipfile.is_zipfile(io.BytesIO(content)):
            continue  # what must be one and is none is refused when it is decoded
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > LARGEST_UNPACKED:
            said = f"{name} holds {size} bytes unpacked, at most {LARGEST_UNPACKED} are taken"
            raise ProblemError(409, "model_refused", said, _STAYS)


def _refused(error: ModelError) -> ProblemError:
    return ProblemError(409, "model_refused", str(error), _STAYS)


def _nothing_before(kind: EntityKind) -> ProblemError:
    return ProblemError(
        409,
        "nothing_before",
        f"no version of the {kind.value} model was promoted before the one in use",
        _SEE,
    )


def _taken(kind: EntityKind, version: str) -> ProblemError:
    return ProblemError(
        409,
        "version_taken",
        f"another {kind.value} model is called {version}",
        "Train it anew: a version is named after what it is made of.",
    )


def _form(choice: Choice) -> dict[str, object]:
    form: dict[str, object] = msgspec.to_builtins(choice)
    return form
