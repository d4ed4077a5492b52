"""Writes facts in the transaction in which they become true."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection

from gpuwarden_server.notifications.domain import MessageKind, NewFact, proposal_number
from gpuwarden_server.notifications.facts import repository
from gpuwarden_server.notifications.facts.repository import ToldIncident
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove, IncidentPhase
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase, Mode
from gpuwarden_verdict.policy.words import approvable

_ENDED = frozenset({DecisionPhase.REVOKED, DecisionPhase.EXPIRED, DecisionPhase.LIFTED})

Places = Callable[[str], Mapping[str, str]]
"""Labels of a node, its pool among them."""


class Outbox:
    """What the judge tells its facts to."""

    def __init__(self, wake: Callable[[], None], places: Places) -> None:
        """Make an outbox.

        Args:
            wake: Called after each commit.
            places: Labels of a node; a fact keeps those of its time.
        """
        self._wake = wake
        self._places = places

    def write_facts(
        self,
        connection: Connection,
        incidents: Sequence[IncidentMove],
        decisions: Sequence[DecisionMove],
    ) -> None:
        """Write each fact that is told."""
        facts = [fact for move in incidents for fact in self._of_incident(connection, move)]
        facts += [fact for move in decisions for fact in self._of_decision(connection, move)]
        repository.add_facts(connection, facts)

    def wake(self) -> None:
        """Facts may wait."""
        self._wake()

    def _of_incident(self, connection: Connection, move: IncidentMove) -> Iterable[NewFact]:
        incident = move.incident
        told = repository.told_incident(connection, incident.id)
        now = ToldIncident(
            incident.id,
            incident.severity.value,
            incident.fault_class.value,
            incident.phase.value,
            told.updates if told is not None else 0,
            incident.parent_id or "",
            incident.entity.node_id,
        )
        if incident.phase is IncidentPhase.RESOLVED:
            repository.forget_incident(connection, incident.id)
            if move.before is not None:
                yield self._incident_fact(MessageKind.INCIDENT_RESOLVED, move)
            return
        if told is not None and told.is_as(now):
            return
        if move.before is None:
            repository.note_incident(connection, now)
            yield self._incident_fact(MessageKind.INCIDENT_OPENED, move)
            return
        now = msgspec.structs.replace(now, updates=now.updates + 1)
        repository.note_incident(connection, now)
        yield self._incident_fact(MessageKind.INCIDENT_UPDATED, move, now.updates)

    def _of_decision(self, connection: Connection, move: DecisionMove) -> Iterable[NewFact]:
        decision = move.decision
        was = move.before is DecisionPhase.IN_FORCE
        if decision.phase is DecisionPhase.IN_FORCE and not was:
            yield self._decision_fact(MessageKind.DECISION_IN_FORCE, move)
        elif decision.phase in _ENDED and (was or _was_told(move)):
            yield self._decision_fact(MessageKind.DECISION_ENDED, move)
        asked = _asks_for(decision)
        if asked is None:
            return
        number = proposal_number(asked.name)
        if not repository.higher_proposed(connection, decision.id, number):
            yield self._decision_fact(MessageKind.DECISION_PROPOSED, move, number)

    def _incident_fact(self, kind: MessageKind, move: IncidentMove, number: int = 0) -> NewFact:
        told = {**_incident_form(move.incident), "reason": move.reason, "author": move.author}
        told |= self._place(move.incident.entity)
        return NewFact(kind, move.incident.id, move.at, _payload(kind, move.at, told), number)

    def _decision_fact(self, kind: MessageKind, move: DecisionMove, number: int = 0) -> NewFact:
        told = {**_decision_form(move.decision), "reason": move.reason, "author": move.author}
        told |= self._place(move.decision.entity)
        return NewFact(kind, move.decision.id, move.at, _payload(kind, move.at, told), number)

    def _place(self, ref: EntityRef) -> dict[str, object]:
        labels = dict(self._places(ref.node_id)) if ref.node_id else _place_labels(ref)
        return {"pool": labels.pop("pool", ""), "labels": labels}


def _asks_for(decision: Decision) -> Rung | None:
    """The rung that a person is asked for; what is said later of the same is the same message.

    Of an exclusion in force, the higher rung that is only advised.
    """
    is_advice = decision.mode is Mode.ADVISE and decision.phase is DecisionPhase.PROPOSED
    return approvable(decision) if is_advice or covers(decision) else None


def _was_told(move: DecisionMove) -> bool:
    """Whether what has ended was advice that people were told of."""
    if move.before is not DecisionPhase.PROPOSED:
        return False
    return _asks_for(replace(move.decision, phase=move.before)) is not None


def _place_labels(ref: EntityRef) -> dict[str, str]:
    """A place's own name, as routes and silences ask for it: rack=r7."""
    kind, _, name = ref.key.partition(":")
    return {kind: name}


def _payload(kind: MessageKind, at: float, told: dict[str, object]) -> str:
    body = {"type": kind.value, "timestamp": moment_text(at), "data": told}
    return msgspec.json.encode(body).decode()


def moment_text(at: float) -> str:
    """Epoch seconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


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
        "parent_id": incident.parent_id,
    }


def _decision_form(decision: Decision) -> dict[str, object]:
    return {
        **_entity_form(decision.entity),
        "id": decision.id,
        "rung": Rung(decision.rung).name.lower(),
        "advised": Rung(decision.advised).name.lower() if decision.advised else "",
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
