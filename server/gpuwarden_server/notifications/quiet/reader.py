"""Reads the silences of Alertmanagers, so that who is silenced there is silenced here.

They stand among our own in the database, and end by their own time: an Alertmanager that does not
answer changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from gpuwarden_server.notifications.quiet.foreign import author_of, own_silence, read_silences
from gpuwarden_server.notifications.schemas import silence_view
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

PATH = "/api/v2/silences"
READ_S = 15.0
LONGEST_LIST = 8 * 1024 * 1024
MOST_OF_ONE = 500
"""Silences of one Alertmanager that are taken over; those that end last go first."""
_log = structlog.get_logger(__name__)


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
        wanted = self._wanted(endpoint, text, now)
        author = author_of(endpoint.name)
        with self._state.read() as connection:
            standing = {
                one.id: one for one in repository.not_ended(connection, now) if one.author == author
            }
            known = {key for key in wanted if repository.find(connection, key) is not None}
        # One that a person ended here stays ended, though it goes on over there.
        fresh = [one for key, one in wanted.items() if key not in known]
        moved = [
            replace(wanted[key], created_at=one.created_at)
            for key, one in standing.items()
            if key in wanted and replace(wanted[key], created_at=one.created_at) != one
        ]
        ended = [one for key, one in standing.items() if key not in wanted]
        if not (fresh or moved or ended):
            return

        def write(connection: Connection) -> None:
            for one in fresh:
                repository.add(connection, one)
                _audit(connection, "create_silence", None, one, now)
            for one in moved:
                repository.change(connection, one)
                _audit(connection, "change_silence", standing[one.id], one, now)
            for one in ended:
                repository.expire(connection, one.id, now, author)
                after = replace(one, expired_at=now, expired_by=author)
                _audit(connection, "expire_silence", one, after, now)

        self._state.writer.call(write)
        self._changed()
        _log.info(
            "silences_taken_over",
            endpoint=endpoint.name,
            new=len(fresh),
            changed=len(moved),
            ended=len(ended),
        )

    def _wanted(self, endpoint: Endpoint, text: bytes, now: float) -> Mapping[str, Silence]:
        found: list[Silence] = []
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
        found.sort(key=lambda one: (-one.ends_at, one.id))
        left_out = max(len(found) - MOST_OF_ONE, 0)
        self._meters.not_taken.labels(endpoint.name).set(refused + left_out)
        return {one.id: one for one in found[:MOST_OF_ONE]}

    def _note(self, name: str, trouble: str) -> None:
        """Say once that an Alertmanager cannot be read, and once that it can again."""
        known = self._trouble.get(name, "")
        if trouble and not known:
            _log.error("silences_unread", endpoint=name, why=trouble)
        elif known and not trouble:
            _log.info("silences_read_again", endpoint=name)
        self._trouble[name] = trouble


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
