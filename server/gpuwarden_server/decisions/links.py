"""Links that let a person approve waiting advice from a notification: signed, and good for a while.

A link names one decision, and a decision can be approved once: after that the link only tells who
did. Opening it changes nothing, since programs of chats and mail open what they see; its page has a
second word, without which nothing is approved.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass
from hashlib import sha256

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.problems import LINK_PATH
from gpuwarden_server.decisions.ports import Shown
from gpuwarden_server.decisions.repository import ensure_link_secret
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import FaultClass, Rung

_TOLD = ("rung", "fault class", "guard")
_FORM = re.compile(r"(dec-[0-9a-f]{12})\.([0-9a-f]{1,12})\.([A-Za-z0-9_-]{32})")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a link of ours says.

    Attributes:
        decision_id: Of what.
        is_over: Whether its time has passed.
        made_at: When it was made, epoch seconds.
    """

    decision_id: str
    is_over: bool
    made_at: float


class ApprovalLinks:
    """Makes and reads links; callable from any thread but the writer's."""

    def __init__(self, state: Database, clock: Clock, lasts_s: float) -> None:
        """Make it.

        Args:
            state: state.db, whose secret signs: all servers of one database know it.
            clock: Time.
            lasts_s: How long a link is good, seconds; 0: none are made.
        """
        self._state = state
        self._clock = clock
        self._lasts_s = lasts_s
        self._secret = b""

    def path(self, decision_id: str) -> str:
        """Where the page of a decision is, "" where no links are made."""
        if self._lasts_s <= 0:
            return ""
        until = f"{int((self._clock.now() + self._lasts_s) * 1000):x}"  # milliseconds
        return f"{LINK_PATH}{decision_id}.{until}.{self._signature('open', decision_id, until)}"

    def read(self, token: str) -> Claim | None:
        """What a link says; None where it is not of this database."""
        found = _FORM.fullmatch(token)
        if found is None:
            return None
        decision_id, until, signature = found.groups()
        if not hmac.compare_digest(signature, self._signature("open", decision_id, until)):
            return None
        ends_at = int(until, 16) / 1000
        return Claim(decision_id, ends_at <= self._clock.now(), ends_at - self._lasts_s)

    def word(self, token: str, shown: Shown) -> str:
        """What the page of a link sends along: what it shows, signed; a link alone has none."""
        told = (shown.rung.name, shown.fault_class or "", shown.guard or "")
        return ".".join((*told, self._signature("press", token, *told)))

    def shown(self, token: str, word: str) -> Shown | None:
        """What the page that sent a word had shown; None where no page of ours sent it."""
        *told, signature = word.split(".")
        signed = self._signature("press", token, *told)
        if len(told) != len(_TOLD) or not hmac.compare_digest(signature.encode(), signed.encode()):
            return None
        rung, fault_class, guard = told
        return Shown(Rung[rung], FaultClass(fault_class), guard)

    def _signature(self, *parts: str) -> str:
        digest = hmac.new(self._known(), "\n".join(parts).encode(), sha256).digest()
        return base64.urlsafe_b64encode(digest)[:32].decode()

    def _known(self) -> bytes:
        if not self._secret:
            self._secret = self._state.writer.call(ensure_link_secret)
        return self._secret
