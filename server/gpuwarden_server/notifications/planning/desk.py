"""One planning transaction: what the plans read and write in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Message, MessageKind
from gpuwarden_server.notifications.planning import repository
from gpuwarden_server.notifications.planning.cases import Case, Member, Standing
from gpuwarden_server.notifications.quiet.domain import Silence, silenced
from gpuwarden_server.notifications.sending import repository as queue


class PlanDesk:
    """Reads and writes of one transaction.

    Attributes:
        now: Epoch seconds.
        held_back: How often a fact was not told at once, by endpoint and why.
    """

    def __init__(self, connection: Connection, now: float, silences: Sequence[Silence]) -> None:
        self._connection = connection
        self._silences = silences
        self.now = now
        self.held_back: Counter[tuple[str, str]] = Counter()

    def silenced(self, labels: Mapping[str, str]) -> bool:
        """Whether nobody is to be told about what has these labels."""
        return silenced(self._silences, labels, self.now)

    def hold_back(self, endpoint: Endpoint, why: str) -> None:
        """Count what is not told by itself."""
        self.held_back[endpoint.name, why] += 1

    def member(self, endpoint: Endpoint, subject: str) -> Member | None:
        """What an endpoint knows of an incident or decision."""
        return repository.member(self._connection, endpoint.name, subject)

    def members_standing(self, endpoint: Endpoint, *standings: Standing) -> list[Member]:
        """Members with one of these standings, the oldest first."""
        return repository.members_standing(self._connection, endpoint.name, standings)

    def members_of(self, case: Case) -> list[Member]:
        """Members of a case."""
        return repository.members_of(self._connection, case.endpoint, case.key)

    def save(self, member: Member) -> None:
        """Write a member."""
        repository.save_member(self._connection, member)

    def has_standing(self, case: Case) -> bool:
        """Whether any member of a case is not over."""
        return repository.has_standing(self._connection, case.endpoint, case.key)

    def recent_cases(self, endpoint: Endpoint) -> list[Case]:
        """Open cases that may be joined, the newest first."""
        since = self.now - endpoint.group_s
        return repository.open_cases(self._connection, endpoint.name, since)

    def open_overflow(self, endpoint: Endpoint) -> Case | None:
        """The open case of what the rate cap folded together."""
        return repository.open_overflow(self._connection, endpoint.name)

    def case(self, endpoint: Endpoint, key: str) -> Case | None:
        """A case by its key."""
        return repository.case(self._connection, endpoint.name, key)

    def cases_within(self, endpoint: Endpoint, seconds: float) -> int:
        """How many cases were opened in the last `seconds`."""
        return repository.count_cases_since(self._connection, endpoint.name, self.now - seconds)

    def begin_case(self, case: Case) -> None:
        """Write a new case; a former one with the same key is forgotten."""
        repository.release_members(self._connection, case.endpoint, case.key)
        repository.save_case(self._connection, case)

    def save_case(self, case: Case) -> None:
        """Write a case that is there."""
        repository.save_case(self._connection, case)

    def post(
        self,
        endpoint: Endpoint,
        kind: MessageKind,
        subject: str,
        message_id: str,
        at: float,
        body: Mapping[str, Any] | None = None,
        due_at: float | None = None,
    ) -> None:
        """Queue a message in each lane of an endpoint, once by its id.

        Args:
            endpoint: Whose.
            kind: What it tells.
            subject: Messages of one subject go in order.
            message_id: Natural id.
            at: Epoch seconds of the fact.
            body: What is sent, `sequence` left out; None where it is made when it is sent.
            due_at: Epoch seconds of the first attempt, None for now.
        """
        for lane in endpoint.lanes:
            if queue.has_message(self._connection, lane, message_id):
                continue
            sequence = queue.lane_record(self._connection, lane).sequence + 1
            queue.save_lane(self._connection, lane, sequence=sequence)
            payload = ""
            if body is not None:
                payload = msgspec.json.encode({**body, "sequence": sequence}).decode()
            message = Message(
                0, lane, message_id, sequence, kind, subject, at, self.now, payload, 0
            )
            queue.add_message(self._connection, message, self.now if due_at is None else due_at)

    def waits_untried(self, endpoint: Endpoint, subject: str) -> bool:
        """Whether a message waits that will tell what is new of a case."""
        return queue.waits_untried(self._connection, endpoint.name, subject)

    def drop_updates(self, endpoint: Endpoint, subject: str) -> None:
        """Take back updates of a case that is over before they were sent."""
        kinds = (MessageKind.UPDATE, MessageKind.ACKNOWLEDGE)
        queue.drop_untried(self._connection, endpoint.name, subject, kinds)
