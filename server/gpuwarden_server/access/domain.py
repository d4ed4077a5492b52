"""Keys and audit entries as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwarden_server.access.principals import Principal, Role


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as stored: everything but the key.

    Attributes:
        id: "key-" and 12 hex digits.
        role: What it may do.
        node_id: Node that an agent key is bound to, None else.
        name: For people and the audit.
        created_at: Epoch seconds.
        created_by: Name of the key that made it, "gpuwarden" for the first.
        revoked_at: Epoch seconds, None while it is valid.
    """

    id: str
    role: Role
    node_id: str | None
    name: str
    created_at: float
    created_by: str
    revoked_at: float | None = None

    @property
    def principal(self) -> Principal:
        """Who stands behind it."""
        return Principal(self.id, self.role, self.node_id, self.name)


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
