"""Keys: made once, shown once, stored as SHA-256."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass, replace
from threading import Lock

from sqlalchemy import Connection

from gpuwarden_server.access import repository
from gpuwarden_server.access.credentials import hash_key, is_key, new_key, secret_of
from gpuwarden_server.access.domain import AuditEntry, KeyRecord, audit_by, key_form
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.access.repository import StoredKey
from gpuwarden_server.access.scopes import WHOLE, PoolOf, Scope
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError, StartError
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

_MEND = "Send `Authorization: Bearer gw_…` with a key from `gpuwarden keys create`."


@dataclass(frozen=True, slots=True)
class KeyWish:
    """A key that somebody wants.

    Attributes:
        role: What it may do.
        node_id: Node of an agent's key, None else.
        name: For people and the audit.
        expires_at: Epoch seconds, None for never.
        scope: What it is narrowed to.
    """

    role: Role
    node_id: str | None
    name: str
    expires_at: float | None = None
    scope: Scope = WHOLE

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            ProblemError: 422, names the mend.
        """
        if (self.role is Role.AGENT) != (self.node_id is not None):
            raise ProblemError(
                422,
                "invalid_value",
                "a key of role agent is bound to one node; other keys to none",
                "Give --node with --role agent, and only then.",
            )
        if self.role is Role.AGENT and self.scope.names_nodes:
            raise ProblemError(
                422,
                "invalid_value",
                "a key of role agent is bound to its node already: it is not narrowed to others",
                "Leave scope.nodes and scope.pools out.",
            )


@dataclass(frozen=True, slots=True)
class _Held:
    """One secret of a key: until when it is taken, None for no end."""

    key_hash: str
    record: KeyRecord
    until: float | None
    is_former: bool


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
        self._pool_of: PoolOf = lambda node_id: ""

    def follow_pools(self, pool_of: PoolOf) -> None:
        """Take the names of nodes' pools, which scopes may ask for, from `pool_of`."""
        self._pool_of = pool_of

    def load(self) -> None:
        """Read the valid keys."""
        with self._database.read() as connection:
            found = repository.valid_keys(connection)
        valid = {h: held for stored in found for h, held in _by_hash(stored).items()}
        with self._lock:
            self._valid = valid

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal behind an Authorization header.

        Raises:
            ProblemError: 401 where there is no valid key; the answer says why not only to who
                holds a key that has expired.
        """
        held = self.find(authorization)
        if held is None:
            raise ProblemError(401, "no_valid_key", "the request carries no valid key", _MEND)
        return Principal(
            held.id, held.role, held.node_id, held.name, scope=held.scope, pool_of=self._pool_of
        )

    def find(self, authorization: str | None) -> KeyRecord | None:
        """The valid key in an Authorization header; None where there is none.

        Raises:
            ProblemError: 401 key_expired.
        """
        secret = secret_of(authorization)
        if secret is None:
            return None
        digest = hash_key(secret)
        held = self._valid.get(digest)
        if held is None or not hmac.compare_digest(held.key_hash, digest):
            return None
        if held.until is not None and self._clock.now() >= held.until:
            raise ProblemError(
                401,
                "key_expired",
                f"{held.record.id} has expired, or this secret of it was replaced",
                "Take its new secret, or have one made: gpuwarden keys rotate KEY.",
            )
        return held.record

    def create(self, wish: KeyWish, by: Principal) -> tuple[KeyRecord, str]:
        """Make a key; the second value is the key itself, which nobody can read again.

        Raises:
            ProblemError: 422 where the wish makes no sense; 403 where who asks is narrowed.
        """
        by.require_whole("make keys")
        wish.check()
        record = self.new_record(wish, by.name)
        key = new_key()
        entry = replace(
            audit_by(by, record.created_at, "create_key", record.id), after=key_form(record)
        )

        def write(connection: Connection) -> None:
            repository.insert_key(connection, record, hash_key(key))
            repository.record_audit(connection, entry)

        self._database.writer.call(write)
        self.admit(StoredKey(hash_key(key), None, record))
        return record, key

    def rotate(
        self, key_id: str, by: Principal, grace_s: float, expires_at: float | None
    ) -> tuple[KeyRecord, str]:
        """Give a key a new secret; the former one is taken for `grace_s` more seconds.

        A third, older secret ends at once. `expires_at` None leaves the key's end as it is.

        Raises:
            ProblemError: 404 where no valid key has this id; 403 where who asks is narrowed.
        """
        by.require_whole("rotate keys")
        before = self._present(key_id)
        key, now = new_key(), self._clock.now()
        after = replace(
            before.record,
            former_until=now + grace_s,
            expires_at=before.record.expires_at if expires_at is None else expires_at,
        )
        stored = StoredKey(hash_key(key), before.key_hash, after)
        entry = replace(
            audit_by(by, now, "rotate_key", key_id),
            before=key_form(before.record),
            after=key_form(after),
        )

        def write(connection: Connection) -> None:
            repository.replace_secret(connection, stored)
            repository.record_audit(connection, entry)

        self._database.writer.call(write)
        self.admit(stored)
        return after, key

    def revoke(self, key_id: str, by: Principal) -> KeyRecord:
        """Make a key invalid, at once and for ever.

        Raises:
            ProblemError: 404 where no valid key has this id; 409 for the key that asks; 403 where
                who asks is narrowed.
            WriteFailed: It is refused from now on, but that is not durable: to be repeated.
        """
        by.require_whole("revoke keys")
        if key_id == by.key_id:
            raise ProblemError(
                409, "own_key", "a key cannot revoke itself", "Revoke it with another admin key."
            )
        before = self._drop(key_id)
        now = self._clock.now()
        after = replace(before, revoked_at=now)
        entry = replace(
            audit_by(by, now, "revoke_key", key_id), before=key_form(before), after=key_form(after)
        )

        def write(connection: Connection) -> None:
            repository.mark_revoked(connection, key_id, now)
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

    def valid_records(self) -> list[KeyRecord]:
        """Keys that are not revoked, each once; expired ones too."""
        return list({held.record.id: held.record for held in self._valid.values()}.values())

    def new_record(self, wish: KeyWish, author: str) -> KeyRecord:
        """The record of a key that is about to be made."""
        return KeyRecord(
            id=new_id("key"),
            role=wish.role,
            node_id=wish.node_id,
            name=wish.name,
            created_at=self._clock.now(),
            created_by=author,
            expires_at=wish.expires_at,
            scope=wish.scope,
        )

    def admit(self, stored: StoredKey) -> None:
        """Let a stored key in; what was known of it before goes."""
        with self._lock:
            self._valid = self._without({stored.record.id}) | _by_hash(stored)

    def dismiss(self, key_ids: Collection[str]) -> None:
        """Let keys in no more."""
        with self._lock:
            self._valid = self._without(key_ids)

    def rename_node(self, old: str, new: str) -> None:
        """A node is called `new` from now on, as the rows of its keys have it already."""
        with self._lock:
            self._valid = {
                digest: replace(held, record=_of_renamed(held.record, old, new))
                for digest, held in self._valid.items()
            }

    def _without(self, key_ids: Collection[str]) -> dict[str, _Held]:
        return {h: held for h, held in self._valid.items() if held.record.id not in key_ids}

    def _present(self, key_id: str) -> _Held:
        """The present secret of a valid key.

        Raises:
            ProblemError: 404.
        """
        for held in self._valid.values():
            if held.record.id == key_id and not held.is_former:
                return held
        raise ProblemError(404, "not_found", f"no valid key {key_id!r}", "See GET /v1/keys.")

    def _drop(self, key_id: str) -> KeyRecord:
        """Take a key out of the ring before the write: better refused early than let in late.

        It is remembered until the write is done, so that a revocation that failed can be repeated.
        """
        with self._lock:
            if key_id in self._unwritten:
                return self._unwritten[key_id]
            record = self._present(key_id).record
            self._valid = self._without({key_id})
            self._unwritten[key_id] = record
            return record


def _by_hash(stored: StoredKey) -> dict[str, _Held]:
    record = stored.record
    found = {stored.key_hash: _Held(stored.key_hash, record, record.expires_at, is_former=False)}
    if stored.former_hash is not None and record.former_until is not None:
        until = min(record.former_until, record.expires_at or record.former_until)
        found[stored.former_hash] = _Held(stored.former_hash, record, until, is_former=True)
    return found


def _of_renamed(record: KeyRecord, old: str, new: str) -> KeyRecord:
    if record.node_id == old:
        return replace(record, node_id=new)
    if old not in record.scope.nodes:
        return record
    names = tuple(new if name == old else name for name in record.scope.nodes)
    return replace(record, scope=replace(record.scope, nodes=names))


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
    entry = AuditEntry(now, FIRST_AUTHOR, None, "create_key", record.id, after=key_form(record))
    repository.record_audit(connection, entry)
    return key if given is None else None
