"""What a webhook message is: one fact, one stable id, signed as Standard Webhooks says."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

KEEP_TRYING_S = 86_400.0
"""A message that no attempt delivered within a day is given up and counted."""
LONGEST_WAIT_S = 3_600.0


class MessageKind(StrEnum):
    """Facts that are told; the values are the `type` of the payload."""

    INCIDENT_OPENED = "incident.opened"
    INCIDENT_RESOLVED = "incident.resolved"
    DECISION_IN_FORCE = "decision.in_force"
    DECISION_ENDED = "decision.ended"


class MessagePhase(StrEnum):
    """Life of a message."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be written in the transaction of the fact it tells.

    Attributes:
        kind: Which fact.
        subject: Id of the incident or decision; kind and subject are the message's natural id.
        created_at: Epoch seconds.
        payload: JSON text of the body.
    """

    kind: MessageKind
    subject: str
    created_at: float
    payload: str

    @property
    def message_id(self) -> str:
        """The same for every attempt and every judgement of the fact: receivers drop repeats."""
        return f"msg_{self.kind.value.replace('.', '_')}_{self.subject}"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A stored message on its way.

    Attributes:
        message_id: Natural id.
        created_at: Epoch seconds.
        payload: JSON text of the body.
        attempts: Attempts made.
        next_attempt_at: Epoch seconds.
    """

    message_id: str
    created_at: float
    payload: str
    attempts: int
    next_attempt_at: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one delivery went.

    Attributes:
        at: Epoch seconds of its start.
        duration_s: Seconds.
        http_status: None where no answer came.
        error: Why it failed, "" where it was delivered.
    """

    at: float
    duration_s: float
    http_status: int | None
    error: str

    @property
    def delivered(self) -> bool:
        """Only a 2xx is a delivery (Standard Webhooks); a redirect is a failure."""
        return self.error == ""

    @property
    def endpoint_is_down(self) -> bool:
        """Whether the next messages would fail too: no answer, 429 or 5xx."""
        return not self.delivered and (
            self.http_status is None or self.http_status == 429 or self.http_status >= 500
        )


def retry_wait_s(attempts: int, base_s: float, jitter: random.Random) -> float:
    """Seconds until the next attempt: doubling from `base_s`, at most an hour, give or take 25 %.

    Args:
        attempts: Attempts made, at least 1.
        base_s: Mean wait after the first failure, seconds.
        jitter: Source of randomness, so that many senders do not come back together.
    """
    wait = min(LONGEST_WAIT_S, base_s * 2.0 ** min(attempts - 1, 30))
    return wait * jitter.uniform(0.75, 1.25)
