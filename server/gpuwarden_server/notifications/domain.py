"""What is told: facts, messages of one lane, and how an attempt went."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuwarden_verdict.entities import Rung

KEEP_TRYING_S = 86_400.0
"""A message that no attempt delivered within a day is given up; it can be replayed."""

RETRY_WAITS_S = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0)
"""Mean waits after a refusal that speaks of the message (Standard Webhooks' schedule)."""

LONGEST_PAUSE_S = 300.0
"""An endpoint that is down is asked at least so often: what waits is told soon after its return."""

DISABLE_AFTER_S = 3 * 86_400.0
"""An endpoint that took nothing for so long gets no more attempts until a person enables it."""


class MessageKind(StrEnum):
    """What a message tells; for webhooks the values are the `type` of the payload."""

    INCIDENT_OPENED = "incident.opened"
    INCIDENT_UPDATED = "incident.updated"
    INCIDENT_RESOLVED = "incident.resolved"
    DECISION_PROPOSED = "decision.proposed"
    DECISION_IN_FORCE = "decision.in_force"
    DECISION_ENDED = "decision.ended"
    TRIGGER = "case.trigger"
    UPDATE = "case.update"
    ACKNOWLEDGE = "case.acknowledge"
    RESOLVE = "case.resolve"
    ALERT = "alert"
    DIGEST = "digest"
    TEST = "test"


ENDING = frozenset({MessageKind.INCIDENT_RESOLVED, MessageKind.DECISION_ENDED})
OF_DECISIONS = frozenset(
    {MessageKind.DECISION_PROPOSED, MessageKind.DECISION_IN_FORCE, MessageKind.DECISION_ENDED}
)


def proposal_number(rung: str) -> int:
    """What a proposal adds to its id: nothing for an exclusion, the rung's number above it.

    Advice that rises is another message; the same rung of the same decision is one, ever.
    """
    asked = Rung[rung.upper()]
    return int(asked) if asked > Rung.EXCLUDE else 0


class MessagePhase(StrEnum):
    """Life of a message."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to be written in the transaction in which it becomes true.

    Attributes:
        kind: Which fact.
        subject: Id of the incident or decision; with kind and number the natural id.
        created_at: Epoch seconds.
        payload: JSON text of the body.
        number: Of updates, 1 for the first; 0 for what happens once.
    """

    kind: MessageKind
    subject: str
    created_at: float
    payload: str
    number: int = 0

    @property
    def message_id(self) -> str:
        """The same for every attempt and every judgement of the fact: receivers drop repeats."""
        base = f"msg_{self.kind.value.replace('.', '_')}_{self.subject}"
        return f"{base}_{self.number}" if self.number else base


@dataclass(frozen=True, slots=True)
class Fact:
    """A stored fact, as the planner reads it.

    Attributes:
        row: Position in the outbox.
        message_id: Natural id.
        kind: Which fact.
        at: Epoch seconds.
        body: What it says, with the labels of its place.
    """

    row: int
    message_id: str
    kind: MessageKind
    at: float
    body: Mapping[str, Any]

    @property
    def subject(self) -> str:
        """Incident or decision."""
        return str(self.body["id"])


@dataclass(frozen=True, slots=True)
class Message:
    """A message on its way through one lane.

    Attributes:
        row: Order.
        lane: Whose queue.
        message_id: Natural id.
        sequence: Position in the endpoint's stream, from 1, without gaps.
        kind: What it tells.
        subject: Case or incident; its messages go in order.
        created_at: Epoch seconds of the fact.
        since: Epoch seconds from which the day of attempts counts.
        payload: JSON text; "" where it is made from the case when it is sent.
        attempts: Attempts made.
        refusals: Those of them that spoke of the message itself.
    """

    row: int
    lane: str
    message_id: str
    sequence: int
    kind: MessageKind
    subject: str
    created_at: float
    since: float
    payload: str
    attempts: int
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one attempt went, in the words of its channel.

    Attributes:
        error: "" where it was taken.
        http_status: None where no answer came or none is spoken.
        retry_after_s: What the receiver asked for, None for nothing.
        gone: It said that it wants no more (410).
        hopeless: The same message will never be taken: no use in trying again.
        lane_down: The next messages would fail too.
        external: What the receiver named the case and what it now knows; None: as before.
    """

    error: str = ""
    http_status: int | None = None
    retry_after_s: float | None = None
    gone: bool = False
    hopeless: bool = False
    lane_down: bool = False
    external: Mapping[str, Any] | None = None

    @property
    def delivered(self) -> bool:
        """Whether it was taken."""
        return self.error == ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the delivery log.

    Attributes:
        at: Epoch seconds of its start.
        duration_s: Seconds.
        delivery: How it went.
    """

    at: float
    duration_s: float
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """What is kept of a lane over restarts.

    Attributes:
        lane: Its name.
        sequence: Of its newest message.
        failing_since: Epoch seconds since when nothing was taken, None where it works.
        disabled_at: Epoch seconds, None where it is enabled.
        disabled_why: "" where it is enabled.
    """

    lane: str
    sequence: int = 0
    failing_since: float | None = None
    disabled_at: float | None = None
    disabled_why: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a lane.

    Attributes:
        waiting: Messages.
        given_up: Messages that were given up and not replayed.
        first_due: Epoch seconds when the next is due, None where none waits.
    """

    waiting: int
    given_up: int
    first_due: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """A message without a fact of the judge behind it, for people: a test or a digest.

    Attributes:
        title: One line.
        text: Some lines.
        body: The same for programs.
    """

    title: str
    text: str
    body: Mapping[str, Any] = field(default_factory=dict)


def retry_wait_s(refusals: int, jitter: random.Random, scale: float = 1.0) -> float:
    """Seconds until a refused message is tried again, give or take 25 %.

    Args:
        refusals: Refusals so far, at least 1.
        jitter: Source of randomness, so that many senders do not come back together.
        scale: Shortens all waits, for tests and try-outs.
    """
    mean = RETRY_WAITS_S[min(refusals, len(RETRY_WAITS_S)) - 1]
    return mean * scale * jitter.uniform(0.75, 1.25)


def pause_s(failures: int, jitter: random.Random, scale: float = 1.0) -> float:
    """Seconds until an endpoint that is down is asked again: doubling from 5 s to 5 minutes.

    Args:
        failures: Failed attempts in a row, at least 1.
        jitter: Source of randomness.
        scale: Shortens all waits.
    """
    mean = min(LONGEST_PAUSE_S, RETRY_WAITS_S[0] * 2.0 ** min(failures - 1, 10))
    return mean * scale * jitter.uniform(0.75, 1.25)
