"""What every actuator is: it reads a consumer, and changes one node of it at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from gpuwarden_server.core.answer import Answer
from gpuwarden_server.core.errors import ServerError
from gpuwarden_verdict.actuation import Found, Wanted


class ActuatorError(ServerError):
    """The consumer could not be read or changed; the message says why, `mend` what to do."""

    retryable = True

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}. {mend}")
        self.reason = reason
        self.mend = mend


class Poster(Protocol):
    """HTTP to addresses that may be sent to, without redirects; used by one thread."""

    def get(self, url: str, headers: Mapping[str, str], longest: int) -> Answer:
        """Get JSON; never raises for what the network or the other side does."""
        ...

    def post(
        self, url: str, content: bytes, headers: Mapping[str, str], *, read: bool = False
    ) -> Answer:
        """Post JSON; never raises for what the network or the receiver does."""
        ...


class Actuator(Protocol):
    """One consumer of exclusions. Calls block, at most for the time limit of its settings."""

    def read(self, nodes: Collection[str]) -> Mapping[str, Found]:
        """What the consumer says now of these nodes, and of all that carry our tag.

        Args:
            nodes: Nodes that are asked about; one that is left out of the answer is unknown there.

        Raises:
            ActuatorError: It cannot be read: nothing is concluded, nothing changed.
        """
        ...

    def exclude(self, wanted: Wanted) -> None:
        """Take a node out with our reason, unless somebody else has taken it out meanwhile.

        Raises:
            ActuatorError: It was not done.
        """
        ...

    def move(self, node_id: str, jobs: Collection[str]) -> None:
        """Let these jobs leave the node; a call that was cut short is finished by the same call.

        Raises:
            ActuatorError: It was not done, or not for all; names the jobs.
        """
        ...

    def release(self, node_id: str) -> None:
        """End our exclusion of a node, unless it is not ours any more.

        Raises:
            ActuatorError: It was not done.
        """
        ...
