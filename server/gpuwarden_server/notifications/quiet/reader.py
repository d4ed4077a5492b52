"""Reads the silences of Alertmanagers, so that who is silenced there is silenced here.

They stand among our own in the database, and end by their own time or when an Alertmanager says so.
One that does not answer changes nothing, and one that has forgotten them nothing for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from threading import Event, Thread

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.notifications.document import Endpoint, SilenceUse
from gpuwarden_server.notifications.http import Poster
from gpuwarden_server.notifications.meters import SilenceMeters
from gpuwarden_server.notifications.quiet import repository
from gpuwarden_server.notifications.quiet.domain import Silence
from gpuwarden_server.notifications.quiet.following import Absences
from gpuwarden_server.notifications.quiet.foreign import (
    author_of,
    own_id,
    own_silence,
    read_silences,
)
from gpuwarden_server.notifications.schemas import silence_view
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

PATH = "/api/v2/silences"
READ_S = 15.0
LONGEST_LIST = 8 * 1024 * 1024
MOST_OF_ONE = 500
"""Silences of one Alertmanager that are taken over; those that end last go first."""
_log = structlog.get_logger(__name__)

_Change = tuple[str, Silence | None, Silence]
"""What is done, as the audit calls it; before, None where it is new; after."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """What an Alertmanager lists.

    Attributes:
        wanted: Those that hold or will, as ours, by id.
        over: Ids of those that have ended there, or are of no concern here.
    """

    wanted: Mapping[str, Silence]
    over: Set[str]


class SilenceReader:
    """Looks at the Alertmanagers of the file that say so, in a thread of its own."""

    def __init__(
        self,
        endpoints: Sequence[tuple[Endpoint, Poster]],
        state: Database,
        clock: Clock,
        meters: SilenceMeters,
        changed: Callable[[], None],
    ) -> None:
        """Make one; `start` makes it run.

        Args:
            endpoints: Those whose silences are read, each with its connections.
            state: state.db.
            clock: Time.
            meters: Figures.
            changed: Called after each change: what is told, and judged, may differ.
        """
        self._endpoints = endpoints
        self._state = state
        self._clock = clock
        self._meters = meters
        self._changed = changed
        self._absences = {endpoint.name: Absences() for endpoint, _ in endpoints}
        self._trouble: dict[str, str] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="notify-silences", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it runs, or has nothing to do."""
        return not self._endpoints or self._thread.is_alive()

    def start(self) -> None:
        """Begin to read."""
        if self._endpoints:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End after the read under way."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        for _, poster in self._endpoints:
            poster.close()

    def read_once(self) -> None:
        """Read all of them once."""
        for endpoint, poster in self._endpoints:
            with self._meters.duration.labels(endpoint.name).time():
                trouble = self._read(endpoint, poster)
            outcome = "failed" if trouble else "read"
            self._meters.reads.labels(endpoint.name, outcome).inc()
            self._note(endpoint.name, trouble)

    def _run(self) -> None:
        wait_s = min([READ_S, *(endpoint.repeat_s for endpoint, _ in self._endpoints)])
        while not self._stopping.is_set():
            try:
                self.read_once()
            except Exception as error:
                _log.error("silences_failed", worker="notify-silences", exc_info=error)
            self._stopping.wait(wait_s)

    def _read(self, endpoint: Endpoint, poster: Poster) -> str:
        """Take over what an endpoint silences; why that failed, "" where it did not."""
        trouble = ""
        for url in endpoint.urls:  # replicas share their silences: the first that answers will do
            answer = poster.get(url.rstrip("/") + PATH, _headers(endpoint), LONGEST_LIST)
            if answer.http_status != 200:
                trouble = answer.error or f"HTTP {answer.http_status}"
                continue
            try:
                self._take(endpoint, answer.body)
            except (ValueError, WriteFailed, SQLAlchemyError, TimeoutError) as error:
                return str(error)[:300]
            return ""
        return trouble

    def _take(self, endpoint: Endpoint, text: bytes) -> None:
        now = self._clock.now()
        listed = self._listed(endpoint, text, now)
        author = author_of(endpoint.name)
        with self._state.read() as connection:
            held = _held(connection, author, now)
            lacking = held.keys() - listed.wanted.keys() - listed.over
            gone = self._absences[endpoint.name].note(lacking, self._clock.monotonic())
            ended = listed.over | gone
            if not _changes(connection, author, listed.wanted, ended, now):
                return

        def write(connection: Connection) -> list[_Change]:
            # Anew: a person may have ended one since.
            changes = _changes(connection, author, listed.wanted, ended, now)
            for action, before, after in changes:
                if before is None:
                    repository.add(connection, after)
                else:
                    repository.change(connection, after)
                _audit(connection, action, before, after, now)
            return changes

        actions = [action for action, _, _ in self._state.writer.call(write)]
        self._changed()
        _log.info(
            "silences_taken_over",
            endpoint=endpoint.name,
            new=actions.count("create_silence"),
            changed=actions.count("change_silence"),
            ended=actions.count("expire_silence"),
        )

    def _listed(self, endpoint: Endpoint, text: bytes, now: float) -> _Listed:
        found: list[Silence] = []
        over: set[str] = set()
        refused = 0
        for foreign in read_silences(text):
            try:
                one = own_silence(foreign, endpoint.name, endpoint.silences, now)
            except ValueError as error:
                refused += 1
                key, why = f"{endpoint.name}/{foreign.id}", str(error)
                if self._trouble.get(key) != why:
                    self._trouble[key] = why
                    _log.warning("silence_not_understood", silence=key, why=why)
                continue
            if one is not None and one.ends_at > now:
                found.append(one)
            else:
                over.add(own_id(foreign, endpoint.name))
        found.sort(key=lambda one: (-one.ends_at, one.id))
        left_out = max(len(found) - MOST_OF_ONE, 0)
        self._meters.not_taken.labels(endpoint.name).set(refused + left_out)
        return _Listed({one.id: one for one in found[:MOST_OF_ONE]}, over)

    def _note(self, name: str, trouble: str) -> None:
        """Say once that an Alertmanager cannot be read, and once that it can again."""
        known = self._trouble.get(name, "")
        if trouble and not known:
            _log.error("silences_unread", endpoint=name, why=trouble)
        elif known and not trouble:
            _log.info("silences_read_again", endpoint=name)
        self._trouble[name] = trouble


def _held(connection: Connection, author: str, now: float) -> Mapping[str, Silence]:
    found = repository.not_ended(connection, now)
    return {one.id: one for one in found if one.author == author}


def _changes(
    connection: Connection,
    author: str,
    wanted: Mapping[str, Silence],
    ended: Set[str],
    now: float,
) -> list[_Change]:
    """What makes those that are held here the ones that are wanted."""
    held = _held(connection, author, now)
    changes: list[_Change] = []
    for key, one in wanted.items():
        before = held.get(key) or repository.find(connection, key)
        if before is None:
            changes.append(("create_silence", None, one))
            continue
        if before.expired_by not in {None, author}:
            continue  # a person ended it here: it stays ended, though it goes on over there
        after = replace(one, created_at=before.created_at)
        if after != before:
            changes.append(("change_silence", before, after))
    for key in held.keys() & ended:
        after = replace(held[key], expired_at=now, expired_by=author)
        changes.append(("expire_silence", held[key], after))
    return changes


def reads_silences(endpoint: Endpoint) -> bool:
    """Whether its silences are taken over."""
    return endpoint.silences is not SilenceUse.IGNORE


def _headers(endpoint: Endpoint) -> Mapping[str, str]:
    return {"authorization": f"Bearer {endpoint.secrets[0]}"} if endpoint.secrets else {}


def _audit(
    connection: Connection, action: str, before: Silence | None, after: Silence, now: float
) -> None:
    was = silence_view(before, now).model_dump(mode="json") if before is not None else None
    form = silence_view(after, now).model_dump(mode="json")
    entry = AuditEntry(now, after.author, None, action, after.id, after.reason, was, form)
    record_audit(connection, entry)
