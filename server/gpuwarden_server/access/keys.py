"""Keys: made once, shown once, stored as SHA-256."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any

from sqlalchemy import Connection

from gpuwarden_server.access import repository
from gpuwarden_server.access.domain import AuditEntry, KeyRecord, audit_by
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError, StartError
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

# "gw_" and 32 random bytes as base64url without padding.
_FORM = re.compile(r"gw_[A-Za-z0-9_-]{43}")
_SCHEME = "bearer "
_MEND = "Send `Authorization: Bearer gw_…` with a key from `gpuwarden keys create`."


def new_key() -> str:
    """A key of 256 random bits: "gw_" and 43 base64url characters."""
    return "gw_" + secrets.token_urlsafe(32)


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key."""
    return _FORM.fullmatch(text) is not None


def hash_key(key: str) -> str:
    """SHA-256 in hex. A random key of 256 bits needs neither salt nor stretching."""
    return hashlib.sha256(key.encode()).hexdigest()


def public_form(record: KeyRecord) -> dict[str, Any]:
    """What may be shown of a key."""
    return asdict(record)


@dataclass(frozen=True, slots=True)
class _Held:
    key_hash: str
    record: KeyRecord


class KeyRing:
    """All valid keys, in memory; this process is the only one that changes them.

    A lookup costs one hash; a revoked key is out of the ring before the revocation is answered.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = Lock()
        self._valid: dict[str, _Held] = {}
        self._unwritten: dict[str, KeyRecord] = {}

    def load(self) -> None:
        """Read the valid keys."""
        with self._database.read() as connection:
            valid = {h: _Held(h, record) for h, record in repository.valid_keys(connection)}
        with self._lock:
            self._valid = valid

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal behind an Authorization header.

        Raises:
            ProblemError: 401 where there is no valid key; the answer never says why not.
        """
        if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
            digest = hash_key(authorization[len(_SCHEME) :].strip())
            held = self._valid.get(digest)
            if held is not None and hmac.compare_digest(held.key_hash, digest):
                return held.record.principal
        raise ProblemError(401, "no_valid_key", "the request carries no valid key", _MEND)

    def create(
        self, role: Role, node_id: str | None, name: str, by: Principal
    ) -> tuple[KeyRecord, str]:
        """Make a key; the second value is the key itself, which nobody can read again.

        Raises:
            ProblemError: 422 where an agent key has no node, or another key has one.
        """
        if (role is Role.AGENT) != (node_id is not None):
            raise ProblemError(
                422,
                "invalid_value",
                "a key of role agent is bound to one node; other keys to none",
                "Give --node with --role agent, and only then.",
            )
        key = new_key()
        record = KeyRecord(new_id("key"), role, node_id, name, self._clock.now(), by.name)
        entry = replace(
            audit_by(by, record.created_at, "create_key", record.id), after=public_form(record)
        )

        def write(connection: Connection) -> None:
            repository.insert_key(connection, record, hash_key(key))
            repository.record_audit(connection, entry)

        self._database.writer.call(write)
        with self._lock:
            self._valid = {**self._valid, hash_key(key): _Held(hash_key(key), record)}
        return record, key

    def revoke(self, key_id: str, by: Principal) -> KeyRecord:
        """Make a key invalid, at once and for ever.

        Raises:
            ProblemError: 404 where no valid key has this id; 409 for the key that asks.
            WriteFailed: It is refused from now on, but that is not durable: to be repeated.
        """
        if key_id == by.key_id:
            raise ProblemError(
                409, "own_key", "a key cannot revoke itself", "Revoke it with another admin key."
            )
        before = self._drop(key_id)
        after = replace(before, revoked_at=self._clock.now())
        entry = replace(
            audit_by(by, self._clock.now(), "revoke_key", key_id),
            before=public_form(before),
            after=public_form(after),
        )

        def write(connection: Connection) -> None:
            repository.mark_revoked(connection, key_id, self._clock.now())
            repository.record_audit(connection, entry)

        try:
            self._database.writer.call(write)
        except WriteFailed as error:
            raise WriteFailed(
                f"{error}; {key_id} is refused from now on all the same, but only until a restart"
            ) from error
        with self._lock:
            self._unwritten.pop(key_id, None)
        return after

    def records(self) -> list[KeyRecord]:
        """All keys, revoked ones too, oldest first."""
        with self._database.read() as connection:
            return repository.all_keys(connection)

    def _drop(self, key_id: str) -> KeyRecord:
        """Take a key out of the ring before the write: better refused early than let in late.

        It is remembered until the write is done, so that a revocation that failed can be repeated.
        """
        with self._lock:
            if key_id in self._unwritten:
                return self._unwritten[key_id]
            for key_hash, held in self._valid.items():
                if held.record.id == key_id:
                    self._valid = {h: v for h, v in self._valid.items() if h != key_hash}
                    self._unwritten[key_id] = held.record
                    return held.record
        raise ProblemError(404, "not_found", f"no valid key {key_id!r}", "See GET /v1/keys.")


FIRST_AUTHOR = "gpuwarden"


def ensure_admin_key(connection: Connection, given: str | None, now: float) -> str | None:
    """Make the admin key where the database has no key at all.

    Args:
        connection: Writing connection of state.db.
        given: Key from the settings, None to generate one.
        now: Epoch seconds.

    Returns:
        The generated key, to be shown once; None where nothing was generated.

    Raises:
        StartError: The given key has not the form of a key.
    """
    if given is not None and not is_key(given):
        raise StartError(
            "GPUWARDEN_ADMIN_KEY is not a key",
            "It must be gw_ and 43 base64url characters; leave it out to have one generated.",
        )
    if repository.count_keys(connection):
        return None
    key = given if given is not None else new_key()
    record = KeyRecord(new_id("key"), Role.ADMIN, None, "first admin", now, FIRST_AUTHOR)
    repository.insert_key(connection, record, hash_key(key))
    entry = AuditEntry(now, FIRST_AUTHOR, None, "create_key", record.id, after=public_form(record))
    repository.record_audit(connection, entry)
    return key if given is None else None
