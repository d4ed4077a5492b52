"""A program of the user's as the actuator: any scheduler, reset, reboot or ticket system.

It is run once a call with a JSON request on standard input, and signs for what it did by exit 0.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from hashlib import sha256

import msgspec

from gpuwarden_server.actuators.answers import decode_found
from gpuwarden_server.actuators.document import CommandTarget
from gpuwarden_server.actuators.programs import Variables, run_program
from gpuwarden_server.actuators.requests import (
    exclude_request,
    move_request,
    read_request,
    release_request,
    remedy_request,
)
from gpuwarden_verdict.actuation import Act, Found, Wanted

_MEND = "Run it by hand with a request of docs/actuators.md on its standard input"
SIGNATURE = "GPUWARDEN_SIGNATURE"
"""Variable with the hex HMAC-SHA256 of the request, where a secret is set."""


class CommandActuator:
    """A program of the user's."""

    def __init__(self, target: CommandTarget, variables: Variables) -> None:
        """Make it; see `CommandTarget`."""
        self._target = target
        self._variables = variables

    def read(self, nodes: Collection[str]) -> Mapping[str, Found]:
        """What it answers to {"act": "read", "nodes": [...]}."""
        text = self._ask(read_request(nodes))
        return decode_found(text.encode(), self._target.command[0], _MEND)

    def exclude(self, wanted: Wanted) -> None:
        """Ask for {"act": "exclude"}."""
        self._ask(exclude_request(wanted))

    def move(self, node_id: str, jobs: Collection[str]) -> None:
        """Ask for {"act": "move"}."""
        self._ask(move_request(node_id, jobs))

    def remedy(self, act: Act, wanted: Wanted, reason: str) -> None:
        """Ask for {"act": "reset"}, "reboot" or "replace"."""
        self._ask(remedy_request(act, wanted, reason))

    def release(self, node_id: str) -> None:
        """Ask for {"act": "release"}."""
        self._ask(release_request(node_id))

    def _ask(self, request: Mapping[str, object]) -> str:
        body = msgspec.json.encode(request)
        signed = dict(self._variables)
        if self._target.secret:
            secret = self._target.secret.encode()
            signed[SIGNATURE] = hmac.new(secret, body, sha256).hexdigest()
        timeout_s = self._target.common.timeout_s
        return run_program(
            self._target.command, timeout_s, variables=signed, given=body, mend=_MEND
        )
