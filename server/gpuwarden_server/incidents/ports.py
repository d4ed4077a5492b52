"""What the incident routes need from the judge."""

from __future__ import annotations

from typing import Protocol

from gpuwarden_verdict.incidents.domain import Incident


class IncidentDesk(Protocol):
    """Takes people's word about incidents."""

    def acknowledge(self, incident_id: str, name: str, key_id: str | None, reason: str) -> Incident:
        """Note that a person has seen it; returns after the commit.

        Raises:
            ProblemError: 404 or 409.
        """
        ...

    def clear(self, incident_id: str, name: str, key_id: str | None, reason: str) -> Incident:
        """Close it by a person's word; returns after the commit.

        Raises:
            ProblemError: 404 or 409.
        """
        ...
