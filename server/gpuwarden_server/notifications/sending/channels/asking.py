"""Where people may approve what is told to them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuwarden_server.notifications.planning.cases import CaseView, subject_of
from gpuwarden_verdict.policy.document import DecisionPhase, Mode

ApproveUrl = Callable[[str], str]
"""Given a decision's id, the address of a page that asks; "" where there are no links."""

MOST_LINKS = 5
_EXCLUSIONS = frozenset({"exclude", "drain", "evict"})


def no_links(decision_id: str) -> str:
    """Where the public address of the server is not set."""
    return ""


def waits(decision: Mapping[str, Any]) -> bool:
    """Whether a decision, as facts tell it, waits for a person."""
    return (
        decision.get("phase") == DecisionPhase.PROPOSED
        and decision.get("mode") == Mode.ADVISE
        and decision.get("rung") in _EXCLUSIONS
    )


def asked(view: CaseView, url_of: ApproveUrl) -> list[tuple[str, str]]:
    """What of a case waits for a person, and where to approve it; the first MOST_LINKS."""
    found = []
    for member in view.standing:
        decision = member.body.get("decision") or {}
        if waits(decision) and (url := url_of(str(decision["id"]))):
            found.append((f"{decision['rung']} {subject_of(member.body)}", url))
    return found[:MOST_LINKS]
