"""What one endpoint is told of each fact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import (
    ENDING,
    OF_DECISIONS,
    Fact,
    MessageKind,
    NewFact,
    proposal_number,
)
from gpuwarden_server.notifications.facts.outbox import moment_text
from gpuwarden_server.notifications.planning.alerts import with_former
from gpuwarden_server.notifications.planning.cases import Member, Standing, labels_of, line_of
from gpuwarden_server.notifications.planning.desk import PlanDesk
from gpuwarden_verdict.policy.document import DecisionPhase


@dataclass(frozen=True, slots=True)
class Source:
    """What made a message.

    Attributes:
        kind: Of the fact.
        message_id: Natural id of the fact.
        at: Epoch seconds.
        words: Why, for people.
    """

    kind: MessageKind
    message_id: str
    at: float
    words: str = ""


def source_of(fact: Fact) -> Source:
    """A fact as a source."""
    return Source(fact.kind, fact.message_id, fact.at, str(fact.body.get("reason", "")))


class Plan(ABC):
    """The common way: who is told at all, who waits for a silence or a digest to end."""

    follows_decisions = False
    """Whether a decision is a subject of its own, or news of its incident."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def take(self, desk: PlanDesk, fact: Fact) -> None:
        """Plan one fact."""
        if fact.kind in OF_DECISIONS and not self.follows_decisions:
            self._decided(desk, fact)
            return
        known = desk.member(self.endpoint, fact.subject)
        if known is None:
            self._appeared(desk, fact)
        elif fact.kind in ENDING:
            self._ended(desk, _joined(known, fact.body), source_of(fact))
        else:
            self._changed(desk, known, _joined(known, fact.body), source_of(fact))

    def look(self, desk: PlanDesk) -> None:
        """Plan what time brings: ends of silences, digests."""
        for member in desk.members_standing(self.endpoint, Standing.SILENCED):
            if not desk.silenced(labels_of(member.body)):
                self._admit(desk, member, _opening_of(member))
        self._digest(desk)

    def is_due(self, desk: PlanDesk) -> bool:
        """Whether `look` would do anything."""
        silent = desk.members_standing(self.endpoint, Standing.SILENCED)
        if any(not desk.silenced(labels_of(member.body)) for member in silent):
            return True
        return bool(self._digest_members(desk))

    @abstractmethod
    def _open(self, desk: PlanDesk, member: Member, source: Source) -> None:
        """Tell of something new."""

    @abstractmethod
    def _update(self, desk: PlanDesk, before: Member, after: Member, source: Source) -> None:
        """Tell what changed of something that was told."""

    @abstractmethod
    def _close(self, desk: PlanDesk, member: Member, source: Source) -> None:
        """Tell that something that was told is over."""

    def _ended_unknown(self, desk: PlanDesk, fact: Fact) -> None:
        """Something ended that this endpoint was never told of: nobody needs to know."""
        return

    def _appeared(self, desk: PlanDesk, fact: Fact) -> None:
        if not self.endpoint.route.takes(labels_of(fact.body)):
            return
        if fact.kind in ENDING:
            self._ended_unknown(desk, fact)
            return
        member = Member(
            self.endpoint.name, fact.subject, "", Standing.SILENCED, desk.now, fact.body
        )
        self._admit(desk, member, source_of(fact))

    def _admit(self, desk: PlanDesk, member: Member, source: Source) -> None:
        labels = labels_of(member.body)
        if desk.silenced(labels):
            desk.hold_back(self.endpoint, "silenced")
            desk.save(member)
        elif self.endpoint.digests(labels):
            desk.hold_back(self.endpoint, "digest")
            desk.save(replace(member, standing=Standing.DIGEST, since=desk.now))
        else:
            self._open(desk, replace(member, standing=Standing.TOLD, since=desk.now), source)

    def _changed(self, desk: PlanDesk, before: Member, after: Member, source: Source) -> None:
        match before.standing:
            case Standing.TOLD:
                self._update(desk, before, after, source)
            case Standing.SILENCED | Standing.OVER:
                desk.save(after)
            case Standing.DIGEST | Standing.DIGESTED:
                if self.endpoint.digests(labels_of(after.body)):
                    desk.save(after)
                else:
                    self._admit(desk, after, source)

    def _ended(self, desk: PlanDesk, member: Member, source: Source) -> None:
        match member.standing:
            case Standing.TOLD:
                self._close(desk, replace(member, standing=Standing.OVER, since=desk.now), source)
            case Standing.SILENCED | Standing.OVER:
                desk.save(replace(member, standing=Standing.OVER, since=desk.now))
            case Standing.DIGEST:
                desk.save(member)
            case Standing.DIGESTED:
                desk.save(replace(member, standing=Standing.DIGEST, since=desk.now))

    def _decided(self, desk: PlanDesk, fact: Fact) -> None:
        known = desk.member(self.endpoint, str(fact.body.get("incident_id")))
        if known is None or known.standing is Standing.OVER:
            return
        told = ("id", "rung", "advised", "phase", "mode", "decided_by")
        decision = {name: fact.body.get(name) for name in told}
        after = replace(known, body={**known.body, "decision": decision})
        self._changed(desk, known, after, source_of(fact))

    def _digest_members(self, desk: PlanDesk) -> list[Member]:
        if self.endpoint.digest_s is None:
            return []
        waiting = desk.members_standing(self.endpoint, Standing.DIGEST)
        due = waiting and waiting[0].since + self.endpoint.digest_s <= desk.now
        return waiting if due else []

    def _digest(self, desk: PlanDesk) -> None:
        members = self._digest_members(desk)
        if not members:
            return
        standing = sum(not member.resolved for member in members)
        lines = [line_of(member.body) for member in members[:100]]
        told = {
            "title": f"{len(members)} incidents, {standing} still stand",
            "lines": lines,
            "incidents": [member.body for member in members[:1000]],
        }
        body = {"type": "digest", "timestamp": moment_text(desk.now), "data": told}
        message_id = f"msg_digest_{self.endpoint.name}_{int(desk.now * 1000)}"
        desk.post(self.endpoint, MessageKind.DIGEST, "digest", message_id, desk.now, body)
        for member in members:
            after = Standing.OVER if member.resolved else Standing.DIGESTED
            desk.save(replace(member, standing=after, since=desk.now))


class WebhookPlan(Plan):
    """Every fact is a message, the same for every attempt."""

    follows_decisions = True

    def _open(self, desk: PlanDesk, member: Member, source: Source) -> None:
        desk.save(member)
        self._post(desk, member.body, source)

    def _update(self, desk: PlanDesk, before: Member, after: Member, source: Source) -> None:
        desk.save(after)
        self._post(desk, after.body, source)

    def _close(self, desk: PlanDesk, member: Member, source: Source) -> None:
        desk.save(member)
        self._post(desk, member.body, source)

    def _ended_unknown(self, desk: PlanDesk, fact: Fact) -> None:
        # It may have begun before this endpoint was kept book of: a program is told the end.
        if not desk.silenced(labels_of(fact.body)):
            self._post(desk, fact.body, source_of(fact))

    def _post(self, desk: PlanDesk, told: Mapping[str, Any], source: Source) -> None:
        body = {"type": source.kind.value, "timestamp": moment_text(source.at), "data": told}
        subject = source.message_id  # order is not promised: `sequence` tells
        desk.post(self.endpoint, source.kind, subject, source.message_id, source.at, body)


class AlertPlan(Plan):
    """An alert an incident; grouping is Alertmanager's."""

    def _open(self, desk: PlanDesk, member: Member, source: Source) -> None:
        self._post(desk, member, source)

    def _update(self, desk: PlanDesk, before: Member, after: Member, source: Source) -> None:
        self._post(desk, replace(after, body=with_former(before.body, dict(after.body))), source)

    def _close(self, desk: PlanDesk, member: Member, source: Source) -> None:
        self._post(desk, member, source)

    def _post(self, desk: PlanDesk, member: Member, source: Source) -> None:
        desk.save(member)
        message_id = f"alert_{source.message_id}"
        desk.post(self.endpoint, MessageKind.ALERT, member.subject, message_id, source.at)


def _joined(known: Member, body: Mapping[str, Any]) -> Member:
    return replace(known, body={**known.body, **body})


def _opening_of(member: Member) -> Source:
    """The opening that a silence kept back: the same id as if it had been told at once."""
    kind = MessageKind.INCIDENT_OPENED
    if "rung" in member.body:
        waits = member.body.get("phase") == DecisionPhase.PROPOSED
        kind = MessageKind.DECISION_PROPOSED if waits else MessageKind.DECISION_IN_FORCE
    at = float(member.body.get("opened_at") or member.body.get("decided_at") or member.since)
    number = 0
    if kind is MessageKind.DECISION_PROPOSED:
        number = proposal_number(str(member.body["rung"]))
    message_id = NewFact(kind, member.subject, at, "", number).message_id
    return Source(kind, message_id, at, "the silence over it has ended")
