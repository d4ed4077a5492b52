"""Who may approve advice."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

ROLE = "role:"
LINK = "link"
"""What stands for the role of who presses the button behind a link in a notification."""
APPROVER_ROLES = ("operator", "admin")
"""Roles that may approve at all."""


def may_approve(approvers: Sequence[str], name: str, role: str) -> bool:
    """Whether the policy lets somebody approve; whether the role may at all is another question.

    Args:
        approvers: Shell-style patterns of names, or "role:ROLE"; none lets everybody.
        name: Of the key, or of who clicks.
        role: Of the key.
    """
    if not approvers:
        return True
    if role == LINK:
        return ROLE + LINK in approvers  # whoever has a link types any name
    return any(
        one.removeprefix(ROLE) == role if one.startswith(ROLE) else fnmatchcase(name, one)
        for one in approvers
    )
