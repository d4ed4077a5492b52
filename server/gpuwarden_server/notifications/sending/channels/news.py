"""What a receiver that edits nothing is told of a case: when it begins, worsens and ends. Pure."""

from __future__ import annotations

from typing import Any

from gpuwarden_server.notifications.planning.cases import CaseView
from gpuwarden_verdict.entities import SEVERITY_RANK, Severity


def known_of(view: CaseView) -> dict[str, Any]:
    """What the receiver knows once this is told; kept with the case."""
    return {"members": len(view.members), "severity": view.severity.value}


def is_news(view: CaseView) -> bool:
    """Whether more incidents, or a higher severity, stand than the receiver was told of."""
    known = view.case.external
    if not known:
        return True
    worse = SEVERITY_RANK[view.severity] > SEVERITY_RANK[Severity(known["severity"])]
    return worse or len(view.members) > int(known["members"])
