"""Silences of an Alertmanager in our own words. Pure.

Its matchers ask for labels of the alerts that we post there, so they are held against the same
labels here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from gpuwarden_server.notifications.document import SilenceUse
from gpuwarden_server.notifications.planning.alerts import ALERT_NAME, SERVICE
from gpuwarden_server.notifications.quiet.domain import (
    LABELS_OF_FACTS,
    Matcher,
    Silence,
    SilenceKind,
)

LONGEST_REASON = 1000
_OWN = {"alertname": ALERT_NAME, "service": SERVICE}
_OURS = {"gpu_uuid": "entity"}
_ALL = Matcher("entity", "?*")


class ForeignMatcher(msgspec.Struct, frozen=True):
    """A condition as API v2 has it; `isEqual` came with Alertmanager 0.22."""

    name: str
    value: str
    isRegex: bool
    isEqual: bool = True


class ForeignPhase(msgspec.Struct, frozen=True):
    """Whether it holds: pending, active or expired."""

    state: str


class ForeignSilence(msgspec.Struct, frozen=True):
    """A silence as `GET /api/v2/silences` has it."""

    id: str
    status: ForeignPhase
    startsAt: datetime
    endsAt: datetime
    matchers: tuple[ForeignMatcher, ...]
    createdBy: str = ""
    comment: str = ""


def read_silences(text: bytes) -> Sequence[ForeignSilence]:
    """What an Alertmanager answered.

    Raises:
        ValueError: It is no list of silences.
    """
    try:
        return msgspec.json.decode(text, type=tuple[ForeignSilence, ...])
    except msgspec.MsgspecError as error:
        raise ValueError(f"no list of silences: {error}") from None


def own_silence(
    foreign: ForeignSilence, endpoint: str, use: SilenceUse, now: float
) -> Silence | None:
    """It as ours; None where it has ended or speaks of other alerts than ours.

    A maintenance window needs a matcher that names nodes: one that asks for nothing but the name
    of our alerts is somebody who wants quiet, not a fleet that nobody looks after.

    Args:
        foreign: As it was read.
        endpoint: Name of the endpoint that it was read from.
        use: What the endpoint's silences are taken for.
        now: Epoch seconds.

    Raises:
        ValueError: A matcher cannot be held here; says why.
    """
    if foreign.status.state == "expired":
        return None
    matchers = []
    for one in foreign.matchers:
        if one.name in _OWN:
            if not _translated(one).holds(_OWN):
                return None
            continue
        matchers.append(_translated(one))
    named = any(one.equal and not one.holds({}) for one in matchers)
    of_nodes = not LABELS_OF_FACTS & {one.label for one in matchers}
    maintenance = use is SilenceUse.MAINTENANCE and named and of_nodes
    return Silence(
        id=own_id(foreign, endpoint),
        kind=SilenceKind.MAINTENANCE if maintenance else SilenceKind.SILENCE,
        matchers=tuple(matchers) or (_ALL,),
        starts_at=foreign.startsAt.timestamp(),
        ends_at=foreign.endsAt.timestamp(),
        reason=_reason(foreign),
        author=author_of(endpoint),
        created_at=now,
    )


def own_id(foreign: ForeignSilence, endpoint: str) -> str:
    """The id that it has here."""
    key = hashlib.sha256(f"{endpoint}/{foreign.id}".encode()).hexdigest()
    return f"sil-{key[:12]}"


def author_of(endpoint: str) -> str:
    """Who a silence of this Alertmanager is by."""
    return f"alertmanager {endpoint}"


def _reason(foreign: ForeignSilence) -> str:
    words = f"{foreign.createdBy}: {foreign.comment}".strip(": ")
    return words.replace("\0", "\u2400")[:LONGEST_REASON] or "a silence over there"


def _translated(one: ForeignMatcher) -> Matcher:
    label = _OURS.get(one.name, one.name)
    if one.isRegex:
        made = Matcher(label, one.value, one.isEqual, regex=True)
        made.holds({})  # raises where it cannot be held
        return made
    if not one.value:  # a label that is not there
        return Matcher(label, "?*", not one.isEqual)
    return Matcher(label, _literal(one.value), one.isEqual)


def _literal(text: str) -> str:
    """A shell-style pattern of exactly this text."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)
