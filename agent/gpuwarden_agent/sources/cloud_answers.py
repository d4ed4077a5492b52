"""What the metadata services of AWS and Azure say of coming maintenance, as plain facts. Pure.

AWS: instance metadata, categories `events/maintenance/scheduled` (a list of NotBefore, Code,
Description, EventId, NotAfter, State; times as "21 Jan 2019 09:00:43 GMT"), `spot/instance-action`
(action, time) and `events/recommendations/rebalance` (noticeTime), the latter two ISO 8601 and
there only when there is something to say. Azure: Scheduled Events, api-version 2020-07-01
(Events, each EventId, EventType, Resources, EventStatus, NotBefore, Description; NotBefore is
"Mon, 19 Sep 2016 18:29:47 GMT", and "" once the event has started).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

MOST_EVENTS = 32
"""Of one node; a cloud announces a handful."""
_MOST_ID = 200
_MOST_TEXT = 300
_OVER = frozenset({"completed", "canceled", "cancelled"})
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_TIME = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) (?:GMT|UTC)"
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Announced:
    """One thing that the cloud will do to this node.

    Attributes:
        id: The cloud's own id of it, or one of ours where it gives none.
        code: Its word for what happens, such as system-reboot or Preempt.
        not_before: Epoch seconds before which nothing happens, None: it has begun.
        text: What it says about it.
    """

    id: str
    code: str
    not_before: float | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one answer held.

    Attributes:
        events: What was understood.
        faults: What was not, each in a few words.
    """

    events: tuple[Announced, ...] = ()
    faults: tuple[str, ...] = ()


class _Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    EventId: str
    Code: str
    State: str = "active"
    NotBefore: str = ""
    NotAfter: str = ""
    Description: str = ""


class _SpotAction(msgspec.Struct, frozen=True):
    action: str
    time: str


class _Rebalance(msgspec.Struct, frozen=True):
    noticeTime: str


class _AzureEvent(msgspec.Struct, frozen=True, kw_only=True):
    EventId: str
    EventType: str
    Resources: list[str]
    EventStatus: str = "Scheduled"
    NotBefore: str = ""
    Description: str = ""


class _AzureAnswer(msgspec.Struct, frozen=True):
    Events: list[msgspec.Raw]


def parse_time(text: str) -> float:
    """Epoch seconds of a time as clouds write it.

    Raises:
        ValueError: It is none.
    """
    found = _HTTP_TIME.fullmatch(text)
    if found is not None and found[2] in _MONTHS:
        month = _MONTHS.index(found[2]) + 1
        clock = (int(found[4]), int(found[5]), int(found[6]))
        return datetime(int(found[3]), month, int(found[1]), *clock, tzinfo=UTC).timestamp()
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone")
    return moment.timestamp()


def parse_scheduled(body: bytes) -> Answer:
    """AWS: maintenance that is announced; what has ended is left out."""
    return _each(body, list[msgspec.Raw], lambda whole: whole, _scheduled)


def parse_spot(body: bytes) -> Answer:
    """AWS: that this spot instance is taken away."""
    said = _decoded(body, _SpotAction)
    if isinstance(said, str):
        return Answer(faults=(said,))
    try:
        at = parse_time(said.time)
    except ValueError as error:
        return Answer(faults=(_short(error),))
    code = f"spot-{said.action}"[:_MOST_ID]
    return Answer((Announced(f"{code}@{said.time}"[:_MOST_ID], code, at, "spot interruption"),))


def parse_rebalance(body: bytes) -> Answer:
    """AWS: that this spot instance is more likely than others to be taken away."""
    said = _decoded(body, _Rebalance)
    if isinstance(said, str):
        return Answer(faults=(said,))
    try:
        at = parse_time(said.noticeTime)
    except ValueError as error:
        return Answer(faults=(_short(error),))
    code = "rebalance-recommendation"
    return Answer((Announced(f"{code}@{said.noticeTime}"[:_MOST_ID], code, at),))


def parse_azure(body: bytes, name: str) -> Answer:
    """Azure: what is announced for the machine called `name`.

    The answer is the same for all of an availability set or placement group, and names those that
    an event is about.
    """

    def one(raw: msgspec.Raw) -> Announced | None:
        said = msgspec.json.decode(raw, type=_AzureEvent)
        if name not in said.Resources or said.EventStatus.lower() in _OVER:
            return None
        at = parse_time(said.NotBefore) if said.NotBefore else None
        return _announced(said.EventId, said.EventType, at, said.Description)

    return _each(body, _AzureAnswer, lambda whole: whole.Events, one)


def _scheduled(raw: msgspec.Raw) -> Announced | None:
    said = msgspec.json.decode(raw, type=_Scheduled)
    if said.State.lower() in _OVER:
        return None
    until = f", until {said.NotAfter}" if said.NotAfter else ""
    return _announced(
        said.EventId, said.Code, parse_time(said.NotBefore), f"{said.Description}{until}"
    )


def _announced(event_id: str, code: str, at: float | None, text: str) -> Announced:
    if not event_id or len(event_id) > _MOST_ID or not code or len(code) > _MOST_ID:
        raise ValueError("an event without an id and a code of up to 200 letters")
    return Announced(event_id, code, at, text[:_MOST_TEXT])


def _each(
    body: bytes,
    form: type[T],
    parts_of: Callable[[T], Sequence[msgspec.Raw]],
    parse: Callable[[msgspec.Raw], Announced | None],
) -> Answer:
    whole = _decoded(body, form)
    if isinstance(whole, str):
        return Answer(faults=(whole,))
    events: list[Announced] = []
    faults: list[str] = []
    parts = parts_of(whole)
    if len(parts) > MOST_EVENTS:
        faults.append(f"{len(parts)} events, more than {MOST_EVENTS}")
    for raw in parts[:MOST_EVENTS]:
        try:
            found = parse(raw)
        except (msgspec.ValidationError, ValueError) as error:
            faults.append(_short(error))
            continue
        if found is not None and all(found.id != one.id for one in events):
            events.append(found)
    return Answer(tuple(events), tuple(faults))


def _decoded(body: bytes, form: type[T]) -> T | str:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _short(error)


def _short(error: Exception) -> str:
    return str(error)[:200]
