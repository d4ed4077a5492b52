"""Takes people's verdicts, and tells what incidents turned out to be."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.pages import Cursor
from gpuwarden_server.incidents import repository as incident_rows
from gpuwarden_server.incidents.repository import IncidentFilter
from gpuwarden_server.learning.labels import repository
from gpuwarden_server.learning.labels.domain import Case, GivenVerdict, Label, Verdict, label_of
from gpuwarden_server.store.database import Database

Labelled = tuple[Case, Label]


class LabelDesk:
    """Verdicts in, labels out; nothing derived is stored, so that a correction corrects all."""

    def __init__(self, state: Database, clock: Clock, registry: CollectorRegistry) -> None:
        self._state = state
        self._clock = clock
        self._given = Counter(
            "gpuwarden_incident_verdicts_total",
            "Verdicts that people gave on incidents, corrections included.",
            ["verdict"],
            registry=registry,
        )
        for verdict in Verdict:
            self._given.labels(verdict.value)
        self._told: Callable[[str], None] = lambda _: None

    def follow(self, told: Callable[[str], None]) -> None:
        """Call `told` with the id of each incident whose verdict was stored."""
        self._told = told

    def judge(
        self, incident_id: str, verdict: Verdict, note: str, caller: Principal
    ) -> GivenVerdict:
        """Keep a person's verdict in the place of the one before; said again, nothing changes.

        Raises:
            ProblemError: 404.
        """
        given = GivenVerdict(verdict, note, caller.name, self._clock.now())

        def write(connection: Connection) -> GivenVerdict:
            if incident_rows.read_one(connection, incident_id) is None:
                raise ProblemError(
                    404, "not_found", f"no incident {incident_id!r}", "See GET /v1/incidents."
                )
            before = repository.read_verdict(connection, incident_id)
            if before is not None and (before.verdict, before.note) == (verdict, note):
                return before
            repository.write_verdict(connection, incident_id, given)
            entry = AuditEntry(
                given.at,
                caller.name,
                caller.key_id,
                "judge_incident",
                incident_id,
                note,
                None if before is None else _form(before),
                _form(given),
            )
            record_audit(connection, entry)
            return given

        kept = self._state.writer.call(write)
        if kept is given:
            self._given.labels(verdict.value).inc()
            self._told(incident_id)
        return kept

    def labels(self, wanted: IncidentFilter, cursor: Cursor | None, limit: int) -> list[Labelled]:
        """What incidents turned out to be, newest first."""
        now = self._clock.now()
        with self._state.read() as connection:
            incidents = incident_rows.read_page(connection, wanted, cursor, limit)
            cases = repository.read_cases(connection, incidents, now)
        return [(case, label_of(case)) for case in cases]


def _form(given: GivenVerdict) -> dict[str, object]:
    return {"verdict": given.verdict.value, "note": given.note, "author": given.author}
