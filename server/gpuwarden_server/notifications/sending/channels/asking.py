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


def asked_rung(decision: Mapping[str, Any]) -> str:
    """What a decision, as facts tell it, asks a person for, "" for nothing.

    Of an exclusion in force, the higher rung that is only advised.
    """
    asks = ""
    if decision.get("phase") == DecisionPhase.IN_FORCE:
        asks = str(decision.get("advised") or "")
    elif decision.get("phase") == DecisionPhase.PROPOSED and decision.get("mode") == Mode.ADVISE:
        asks = str(decision.get("rung") or "")
    return asks if asks in _EXCLUSIONS else ""


def asked(view: CaseView, url_of: ApproveUrl) -> list[tuple[str, str]]:
    """What of a case waits for a person, and where to approve it; the first MOST_LINKS."""
    found = []
    for member in view.standing:
        decision = member.body.get("decision") or {}
        if (rung := asked_rung(decision)) and (url := url_of(str(decision["id"]))):
            found.append((f"{rung} {subject_of(member.body)}", url))
    return found[:MOST_LINKS]
