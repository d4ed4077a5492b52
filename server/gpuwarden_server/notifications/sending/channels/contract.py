"""What a lane asks of a channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuwarden_server.notifications.domain import Delivery, Message
from gpuwarden_server.notifications.planning.cases import CaseView, Member


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A message with what it is about, as of now.

    Attributes:
        message: What is to be sent.
        now: Epoch seconds.
        view: Its case, None where the endpoint knows no cases.
        member: Its incident, None where it is about none.
    """

    message: Message
    now: float
    view: CaseView | None = None
    member: Member | None = None


class Channel(Protocol):
    """One way to tell; used by its lane's thread, `test` by any."""

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """Send a message; never raises for what the receiver does."""
        ...

    def test(self, now: float) -> Delivery:
        """Send something that says it is a test."""
        ...

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """Say again what stands; None where this channel has nothing to repeat.

        Args:
            now: Epoch seconds.
            members: Incidents that were told and are not over.
            scoring: Whether the fleet is judged at present: what says so must not be sent else.
        """
        ...

    def close(self) -> None:
        """Let connections go."""
        ...
