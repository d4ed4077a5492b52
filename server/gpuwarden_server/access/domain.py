"""Keys, tokens and audit entries as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.access.scopes import WHOLE, Scope, scope_form


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as stored: everything but the key.

    Attributes:
        id: "key-" and 12 hex digits; stays the same when the secret is rotated.
        role: What it may do.
        node_id: Node that an agent key is bound to, None else.
        name: For people and the audit.
        created_at: Epoch seconds.
        created_by: Name of the key that made it, "gpuwarden" for the first.
        revoked_at: Epoch seconds, None while it is valid.
        expires_at: Epoch seconds from which it is refused, None for never.
        scope: What it is narrowed to.
        former_until: Until when the secret before the last rotation is taken too, None for none.
    """

    id: str
    role: Role
    node_id: str | None
    name: str
    created_at: float
    created_by: str
    revoked_at: float | None = None
    expires_at: float | None = None
    scope: Scope = WHOLE
    former_until: float | None = None


def key_form(record: KeyRecord) -> dict[str, Any]:
    """What may be shown of a key, and what its row holds beside the hashes."""
    return asdict(record) | {"role": record.role.value, "scope": scope_form(record.scope)}


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """An enrolment token as stored: everything but the token.

    Attributes:
        id: "enrol-" and 12 hex digits.
        name: For people and the audit.
        nodes: Pattern of the nodes that may enrol with it.
        uses: How often it may be used.
        used: How often it was.
        re_enrol: Whether it may replace the key that a node has.
        created_at: Epoch seconds.
        created_by: Name of the key that made it.
        expires_at: Epoch seconds from which it is refused.
        revoked_at: Epoch seconds, None while it is valid.
    """

    id: str
    name: str
    nodes: str
    uses: int
    used: int
    re_enrol: bool
    created_at: float
    created_by: str
    expires_at: float
    revoked_at: float | None = None


def token_form(record: TokenRecord) -> dict[str, Any]:
    """What may be shown of a token, and what its row holds beside the hash."""
    return asdict(record)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One write of a person or of gpuwarden.

    Attributes:
        at: Epoch seconds.
        author: Name of the key, or "gpuwarden".
        key_id: None for gpuwarden itself.
        action: "create_key", "revoke_decision" …
        target: What was written: id of the key, decision …
        reason: As the caller gave it.
        before: Values before, None where there was nothing; never a secret.
        after: Values after, None where there is nothing any more.
    """

    at: float
    author: str
    key_id: str | None
    action: str
    target: str
    reason: str = ""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def audit_by(principal: Principal, at: float, action: str, target: str) -> AuditEntry:
    """An entry in the caller's name; add reason, before, after by `dataclasses.replace`."""
    return AuditEntry(at, principal.name, principal.key_id, action, target)
