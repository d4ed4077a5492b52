"""Enrolment: tokens with which nodes fetch a key of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from sqlalchemy import Connection

from gpuwarden_server.access import repository
from gpuwarden_server.access.credentials import hash_key, new_enrolment_token, new_key
from gpuwarden_server.access.domain import (
    AuditEntry,
    KeyRecord,
    TokenRecord,
    audit_by,
    key_form,
    token_form,
)
from gpuwarden_server.access.keys import KeyRing, KeyWish
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.access.repository import StoredKey
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.store.database import Database

_MEND = "Have a token made: gpuwarden enrolment create."


@dataclass(frozen=True, slots=True)
class TokenWish:
    """A token that somebody wants.

    Attributes:
        name: For people and the audit.
        nodes: Pattern of the nodes that may enrol with it.
        uses: How often it may be used.
        life_s: Seconds until it is refused.
        re_enrol: Whether it may replace the key that a node has.
    """

    name: str
    nodes: str
    uses: int
    life_s: float
    re_enrol: bool


@dataclass(frozen=True, slots=True)
class _Enrolled:
    stored: StoredKey
    former: tuple[KeyRecord, ...]


class EnrolmentDesk:
    """Makes tokens, and keys for who brings one."""

    def __init__(self, ring: KeyRing, database: Database, clock: Clock) -> None:
        self._ring = ring
        self._database = database
        self._clock = clock

    def create(self, wish: TokenWish, by: Principal) -> tuple[TokenRecord, str]:
        """Make a token; the second value is the token itself, which nobody can read again.

        Raises:
            ProblemError: 403 where who asks is narrowed.
        """
        by.require_whole("make enrolment tokens")
        token, now = new_enrolment_token(), self._clock.now()
        record = TokenRecord(
            id=new_id("enrol"),
            name=wish.name,
            nodes=wish.nodes,
            uses=wish.uses,
            used=0,
            re_enrol=wish.re_enrol,
            created_at=now,
            created_by=by.name,
            expires_at=now + wish.life_s,
        )
        entry = replace(
            audit_by(by, now, "create_enrolment_token", record.id), after=token_form(record)
        )

        def write(connection: Connection) -> None:
            repository.insert_token(connection, record, hash_key(token))
            repository.record_audit(connection, entry)

        self._database.writer.call(write)
        return record, token

    def revoke(self, token_id: str, by: Principal) -> TokenRecord:
        """Make a token invalid; keys that were made with it stay.

        Raises:
            ProblemError: 404 where there is no such token; 403 where who asks is narrowed.
        """
        by.require_whole("revoke enrolment tokens")
        now = self._clock.now()

        def write(connection: Connection) -> TokenRecord:
            before = repository.token_by_id(connection, token_id)
            if before is None or before.revoked_at is not None:
                raise ProblemError(
                    404, "not_found", f"no token {token_id!r}", "See GET /v1/enrolment-tokens."
                )
            after = replace(before, revoked_at=now)
            repository.update_token(connection, after)
            entry = audit_by(by, now, "revoke_enrolment_token", token_id)
            told = replace(entry, before=token_form(before), after=token_form(after))
            repository.record_audit(connection, told)
            return after

        return self._database.writer.call(write)

    def records(self) -> list[TokenRecord]:
        """All tokens, ended ones too, oldest first."""
        with self._database.read() as connection:
            return repository.all_tokens(connection)

    def enrol(self, token: str, node_id: str) -> tuple[KeyRecord, str]:
        """A key for a node whose agent brings a token; the second value is the key itself.

        Raises:
            ProblemError: 401 for a token that is none, or none any more; 403 for a node that it is
                not meant for; 409 for a node that has a key, where the token may not replace it.
        """
        digest = hash_key(token)
        with self._database.read() as connection:  # who guesses makes no work for the writer
            self._check(repository.token_by_hash(connection, digest), node_id)
        key = new_key()
        done = self._database.writer.call(lambda writes: self._enrol(writes, digest, node_id, key))
        self._ring.dismiss([record.id for record in done.former])
        self._ring.admit(done.stored)
        return done.stored.record, key

    def _enrol(self, connection: Connection, digest: str, node_id: str, key: str) -> _Enrolled:
        now = self._clock.now()
        token = self._check(repository.token_by_hash(connection, digest), node_id)
        former = repository.agent_keys_of(connection, node_id, now)
        if former and not token.re_enrol:
            raise ProblemError(
                409,
                "node_enrolled",
                f"node {node_id!r} has a key already ({former[0].id})",
                "Use a token made with --re-enrol, or revoke that key: gpuwarden keys delete KEY.",
            )
        author = f"enrolment token {token.name or token.id}"
        wish = KeyWish(Role.AGENT, node_id, f"agent of {node_id}")
        stored = StoredKey(hash_key(key), None, self._ring.new_record(wish, author))
        repository.insert_key(connection, stored.record, stored.key_hash)
        repository.update_token(connection, replace(token, used=token.used + 1))
        for entry in self._entries(token, stored.record, former, author):
            repository.record_audit(connection, entry)
        for record in former:
            repository.mark_revoked(connection, record.id, now)
        return _Enrolled(stored, tuple(former))

    def _check(self, token: TokenRecord | None, node_id: str) -> TokenRecord:
        now = self._clock.now()
        if token is None or token.revoked_at is not None:
            raise ProblemError(401, "no_valid_token", "this is no valid enrolment token", _MEND)
        if now >= token.expires_at or token.used >= token.uses:
            why = "has expired" if now >= token.expires_at else "is used up"
            raise ProblemError(401, "token_ended", f"token {token.id} {why}", _MEND)
        if not fnmatchcase(node_id, token.nodes):
            raise ProblemError(
                403,
                "wrong_node",
                f"token {token.id} is for nodes {token.nodes!r}, and {node_id!r} is none of them",
                "Set GPUWARDEN_AGENT_NODE_ID, or have a token made for this node.",
            )
        return token

    def _entries(
        self, token: TokenRecord, record: KeyRecord, former: Sequence[KeyRecord], author: str
    ) -> list[AuditEntry]:
        """What the audit keeps: the enrolment, and each key that it ended."""
        at, used = record.created_at, {"token": token.id}
        entries = [
            AuditEntry(
                *(at, author, None, "revoke_key", one.id, f"{one.node_id} enrolled anew"),
                before=key_form(one),
                after=key_form(replace(one, revoked_at=at)),
            )
            for one in former
        ]
        after = key_form(record) | used
        node_id = record.node_id or ""
        return [*entries, AuditEntry(at, author, None, "enrol_node", node_id, after=after)]
