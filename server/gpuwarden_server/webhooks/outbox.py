"""Writes the messages of facts in the transaction of the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection

from gpuwarden_server.webhooks.domain import MessageKind, NewMessage
from gpuwarden_server.webhooks.repository import add_messages
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove, IncidentPhase
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase

_ENDED = frozenset({DecisionPhase.REVOKED, DecisionPhase.EXPIRED, DecisionPhase.LIFTED})


class Outbox:
    """What the judge tells its facts to."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Make an outbox.

        Args:
            wake: Called after each commit.
        """
        self._wake = wake

    def write_facts(
        self,
        connection: Connection,
        incidents: Sequence[IncidentMove],
        decisions: Sequence[DecisionMove],
    ) -> None:
        """Write a message for each fact that is told."""
        messages = [*_of_incidents(incidents), *_of_decisions(decisions)]
        add_messages(connection, messages)

    def wake(self) -> None:
        """Messages may wait."""
        self._wake()


def _of_incidents(moves: Iterable[IncidentMove]) -> Iterable[NewMessage]:
    for move in moves:
        if move.before is None:
            yield _incident_message(MessageKind.INCIDENT_OPENED, move)
        elif move.incident.phase is IncidentPhase.RESOLVED:
            yield _incident_message(MessageKind.INCIDENT_RESOLVED, move)


def _of_decisions(moves: Iterable[DecisionMove]) -> Iterable[NewMessage]:
    for move in moves:
        decision = move.decision
        was = move.before is DecisionPhase.IN_FORCE
        if decision.phase is DecisionPhase.IN_FORCE and not was:
            yield _decision_message(MessageKind.DECISION_IN_FORCE, move)
        elif decision.phase in _ENDED and was:
            yield _decision_message(MessageKind.DECISION_ENDED, move)


def _incident_message(kind: MessageKind, move: IncidentMove) -> NewMessage:
    told = {**_incident_form(move.incident), "reason": move.reason, "author": move.author}
    return NewMessage(kind, move.incident.id, move.at, _payload(kind, move.at, told))


def _decision_message(kind: MessageKind, move: DecisionMove) -> NewMessage:
    told = {**_decision_form(move.decision), "reason": move.reason, "author": move.author}
    return NewMessage(kind, move.decision.id, move.at, _payload(kind, move.at, told))


def _payload(kind: MessageKind, at: float, told: dict[str, object]) -> str:
    moment = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    body = {"type": kind.value, "timestamp": moment, "data": told}
    return msgspec.json.encode(body).decode()


def _entity_form(ref: EntityRef) -> dict[str, object]:
    return {"entity_kind": ref.kind.value, "entity": ref.key, "node_id": ref.node_id}


def _incident_form(incident: Incident) -> dict[str, object]:
    return {
        **_entity_form(incident.entity),
        "id": incident.id,
        "fault_class": incident.fault_class.value,
        "severity": incident.severity.value,
        "phase": incident.phase.value,
        "why": incident.why,
        "action": incident.action.value,
        "confidence": incident.confidence,
        "opened_at": incident.opened_at,
        "resolved_at": incident.resolved_at,
    }


def _decision_form(decision: Decision) -> dict[str, object]:
    return {
        **_entity_form(decision.entity),
        "id": decision.id,
        "rung": Rung(decision.rung).name.lower(),
        "phase": decision.phase.value,
        "mode": decision.mode.value,
        "fault_class": decision.fault_class.value,
        "reasons": decision.reasons,
        "confidence": decision.confidence,
        "decided_by": decision.decided_by,
        "incident_id": decision.incident_id,
        "decided_at": decision.decided_at,
        "expires_at": decision.expires_at,
    }
