"""The sender: one thread that carries batches from the spool to the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.spool.entry import Outgoing
from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.spool.store import StoreFailed
from gpuwarden_agent.threads import tell_kernel_my_name
from gpuwarden_agent.transport.answers import Fate, Reply, fate_of, retry_after_s
from gpuwarden_agent.transport.backoff import Backoff
from gpuwarden_agent.transport.connection import Answer, ConnectionFailed, ServerConnection
from gpuwarden_agent.transport.key import KeySource, KeyUnavailable
from gpuwarden_agent.transport.rejected import RejectedFolder
from gpuwarden_agent.transport.tally import DeliveryTally
from gpuwarden_agent.transport.tls import Stamp, TlsSource
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import CONTENT_TYPE, Batch, Stream
from gpuwarden_wire.codec import (
    Encoding,
    WireError,
    compress,
    decode_acknowledgement,
    decode_problem,
    encode_batch,
)

_log = get_logger("transport")

_COMPRESS_FROM_BYTES = 512
_EVENT_RETRY_S = 1.0
"""A new event may cut a pause short, but not more often than this."""

_MAX_TURNS = 3
"""Resends with schemas, or moves to another leader, before the next pause."""

OnAcknowledgement = Callable[[Acknowledgement], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """Where and how to send.

    Attributes:
        server_url: Base address of the server.
        request_timeout_s: Longest wait for one answer, seconds.
        backoff_max_s: Longest pause between two tries, seconds, unless the server asks for more.
        tls: For https addresses; its files are read again when they change.
    """

    server_url: str
    request_timeout_s: float = 10.0
    backoff_max_s: float = 15.0
    tls: TlsSource | None = None


@dataclass(slots=True)
class _Pause:
    until: float
    begun: float
    events_may_cut: bool
    credentials: Stamp


class Sender:
    """Sends events before telemetry, one batch at a time, until the server has each for good."""

    def __init__(
        self,
        spool: Spool,
        settings: SenderSettings,
        key: KeySource,
        rejected: RejectedFolder,
        on_acknowledgement: OnAcknowledgement,
        tally: DeliveryTally | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spool = spool
        self._settings = settings
        self._key = key
        self._rejected = rejected
        self._on_acknowledgement = on_acknowledgement
        self.tally = tally or DeliveryTally()
        self._clock = clock
        self._backoff = Backoff(settings.backoff_max_s)
        self._connection = self._connect_to(settings.server_url)
        self._after = dict.fromkeys(Stream, 0)
        self._probe_from: int | None = None
        self._feed_id = ""
        self._schemas_known: set[str] = set()
        self._turns = 0
        self._away_because = ""
        self._told_accepted = False
        self._wake = threading.Condition()
        self._news: set[Stream] = set()
        self._stopping = False
        self._tried_with = self._credentials()
        self._proven_key = ""
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    @property
    def away_because(self) -> str:
        """Why no batch gets through now, "" while they do."""
        return self._away_because

    def wake(self, stream: Stream) -> None:
        """Something new lies in the spool."""
        with self._wake:
            self._news.add(stream)
            self._wake.notify()

    def stop(self, patience_s: float) -> None:
        """Send what waits for at most `patience_s` seconds, then break off."""
        deadline = time.monotonic() + patience_s
        while (
            self._thread.is_alive()
            and not self._away_because
            and time.monotonic() < deadline
            and self._spool.next_events(self._after[Stream.EVENTS]) is not None
        ):
            time.sleep(0.01)
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(max(0.1, deadline - time.monotonic()))
            self._connection.abort()
            self._thread.join(1.0)
        self._connection.close()

    # the loop

    def _run(self) -> None:
        tell_kernel_my_name()
        while not self._stopping:
            with self._wake:
                self._news.clear()
            try:
                pause = self._step()
            except StoreFailed as failure:
                pause = self._back_off(f"spool: {failure}", events_may_cut=False)
            self._wait(pause)

    def _step(self) -> _Pause | None:
        """Send one batch; None where the next may follow at once."""
        if self._connection.is_open and not self._spool.may_have_more(self._after):
            return _Pause(float("inf"), 0.0, True, ())
        try:
            key = self._present_key()
            if self._connection.open():
                self._on_new_connection()
        except KeyUnavailable as problem:
            return self._back_off(str(problem), events_may_cut=False)
        except ConnectionFailed as failure:
            return self._unreachable(failure)
        outgoing = self._next()
        if outgoing is None:
            return _Pause(float("inf"), 0.0, True, ())
        try:
            answer = self._post(outgoing.batch, key)
        except ConnectionFailed as failure:
            self.tally.note(outgoing.batch.stream, "unreachable")
            return None if failure.reused else self._unreachable(failure)
        return self._settle(outgoing, answer)

    def _next(self) -> Outgoing | None:
        events = self._spool.next_events(self._after[Stream.EVENTS])
        return events or self._spool.next_telemetry(self._after[Stream.TELEMETRY])

    def _on_new_connection(self) -> None:
        """Find out whether the server forgot telemetry that it had applied (it was restarted).

        The oldest batch that is not durable is sent again; the answer's `applied_seq` says from
        where to go on.
        """
        self._after[Stream.EVENTS] = 0
        if self._after[Stream.TELEMETRY]:
            self._probe_from = self._after[Stream.TELEMETRY]
            self._after[Stream.TELEMETRY] = 0

    def _post(self, batch: Batch, key: str) -> Answer:
        body = encode_batch(self._with_schemas(batch))
        headers = {"Authorization": f"Bearer {key}", "Content-Type": CONTENT_TYPE}
        if len(body) >= _COMPRESS_FROM_BYTES:
            body = compress(body, Encoding.ZSTD)
            headers["Content-Encoding"] = Encoding.ZSTD.value
        return self._connection.post("/v1/ingest", body, headers)

    def _with_schemas(self, batch: Batch) -> Batch:
        wanted = {table.schema for table in batch.tables} - self._schemas_known
        if not wanted:
            return batch
        known = self._spool.schemas()
        schemas = tuple(known[one] for one in sorted(wanted) if one in known)
        return msgspec.structs.replace(batch, schemas=schemas)

    # answers

    def _settle(self, outgoing: Outgoing, answer: Answer) -> _Pause | None:
        problem = decode_problem(answer.body) if answer.status_code != 200 else None
        reply = Reply(answer.status_code, answer.retry_after, problem)
        fate = fate_of(reply)
        self.tally.note(outgoing.batch.stream, fate)
        match fate:
            case Fate.ACCEPTED:
                return self._accepted(outgoing, answer)
            case Fate.SCHEMA_REQUIRED:
                return self._schemas_wanted(outgoing, reply)
            case Fate.TOO_LARGE:
                if not self._spool.split(outgoing):
                    self._refused(outgoing, reply)
                return None
            case Fate.MOVED:
                return self._moved(reply)
            case Fate.REFUSED:
                self._refused(outgoing, reply)
                return None
            case Fate.KEPT:
                asked = retry_after_s(reply.retry_after, self._clock())
                return self._back_off(_words(reply), asked_s=asked, events_may_cut=False)

    def _accepted(self, outgoing: Outgoing, answer: Answer) -> _Pause | None:
        try:
            acknowledgement = decode_acknowledgement(answer.body)
        except WireError as error:
            return self._back_off(f"answer 200 from something else: {error}", events_may_cut=False)
        batch = outgoing.batch
        if acknowledgement.feed_id != self._feed_id:
            self._feed_id = acknowledgement.feed_id
            self._schemas_known.clear()
        self._schemas_known.update(table.schema for table in batch.tables)
        self._advance(batch, acknowledgement)
        self._spool.trim(batch.stream, acknowledgement.durable_seq)
        self._turns = 0
        self._backoff.reset()
        self._tell_accepted()
        self.tally.note_acknowledged(self._clock())
        self._on_acknowledgement(acknowledgement)
        return None

    def _tell_accepted(self) -> None:
        """Say once that all is well: address, key and node are right; then on each recovery."""
        if not self._told_accepted:
            _log.info("server_takes_batches", url=self._connection.url)
        elif self._away_because:
            _log.info("server_takes_batches_again", url=self._connection.url)
        self._told_accepted = True
        self._away_because = ""

    def _advance(self, batch: Batch, acknowledgement: Acknowledgement) -> None:
        reached = batch.seq
        if batch.stream is Stream.TELEMETRY and self._probe_from is not None:
            reached = max(reached, min(acknowledgement.applied_seq, self._probe_from))
            self._probe_from = None
        self._after[batch.stream] = max(self._after[batch.stream], reached)

    def _schemas_wanted(self, outgoing: Outgoing, reply: Reply) -> _Pause | None:
        named = set(reply.problem.schemas) if reply.problem else set()
        named |= {table.schema for table in outgoing.batch.tables}
        self._schemas_known -= named
        return self._turn(reply)

    def _moved(self, reply: Reply) -> _Pause | None:
        leader = reply.problem.leader if reply.problem else None
        if leader and _may_follow(self._settings.server_url, leader):
            _log.info("server_names_leader", leader=leader)
            self._connection.close()
            self._connection = self._connect_to(leader.rstrip("/"))
        return self._turn(reply)

    def _turn(self, reply: Reply) -> _Pause | None:
        """Try again at once, but not for ever."""
        self._turns += 1
        if self._turns <= _MAX_TURNS:
            return None
        self._turns = 0
        asked = retry_after_s(reply.retry_after, self._clock())
        return self._back_off(_words(reply), asked_s=asked, events_may_cut=False)

    def _refused(self, outgoing: Outgoing, reply: Reply) -> None:
        batch = outgoing.batch
        path = self._rejected.keep(batch, reply, self._clock())
        self._spool.drop(outgoing)
        code = reply.problem.code if reply.problem else ""
        self.tally.note_refused(code or f"http_{reply.status_code}", self._clock())
        _log.error(
            "batch_refused",
            stream=batch.stream,
            seq=batch.seq,
            why=_words(reply),
            kept_at=str(path) if path else "nowhere: the disk does not take it",
        )

    # away

    def _unreachable(self, failure: ConnectionFailed) -> _Pause:
        self._connection.close()
        if self._connection.url != self._settings.server_url:
            self._connection = self._connect_to(self._settings.server_url)
        return self._back_off(str(failure), events_may_cut=True)

    def _back_off(
        self, because: str, *, events_may_cut: bool, asked_s: float | None = None
    ) -> _Pause:
        # "HTTP 401 unauthenticated: …", "cannot reach …: …": told again when the kind changes.
        if self._away_because.partition(":")[0] != because.partition(":")[0]:
            _log.warning("server_takes_no_batches", why=because)
        self._away_because = because
        now = time.monotonic()
        pause = self._backoff.next_s(asked_s)
        return _Pause(now + pause, now, events_may_cut, self._tried_with)

    def _wait(self, pause: _Pause | None) -> None:
        if pause is None:
            return
        with self._wake:
            while not self._stopping and not self._over(pause):
                # The files of key and certificates are looked at once a second while away.
                left = pause.until - time.monotonic()
                self._wake.wait(min(left, 1.0) if self._away_because else None)

    def _over(self, pause: _Pause) -> bool:
        now = time.monotonic()
        if not self._away_because:
            return bool(self._news)
        if now >= pause.until or self._credentials() != pause.credentials:
            return True
        cut_at = pause.begun + _EVENT_RETRY_S
        return pause.events_may_cut and Stream.EVENTS in self._news and now >= cut_at

    def _credentials(self) -> Stamp:
        tls = self._settings.tls
        return (self._key.stamp(), *(tls.stamp() if tls is not None else ()))

    def _present_key(self) -> str:
        """The key; it and the certificates are read again where their files changed."""
        credentials = self._credentials()
        if not self._proven_key or credentials != self._tried_with:
            self._tried_with, self._proven_key = credentials, ""
            self._proven_key = self._key.current()
            self._renew_certificates()
        return self._proven_key

    def _renew_certificates(self) -> None:
        tls = self._settings.tls
        if tls is not None and tls.refresh():
            self._connection.close()
            self._connection = self._connect_to(self._connection.url)

    def _connect_to(self, url: str) -> ServerConnection:
        tls = self._settings.tls
        context = tls.context if tls is not None else None
        return ServerConnection(url, self._settings.request_timeout_s, context)


def _may_follow(configured: str, leader: str) -> bool:
    """Only to a web address, and never from https to http: the key would travel in the clear."""
    wanted = urlsplit(leader)
    if wanted.scheme not in {"http", "https"} or not wanted.hostname:
        return False
    return wanted.scheme == "https" or urlsplit(configured).scheme == "http"


def _words(reply: Reply) -> str:
    if reply.problem is None:
        return f"HTTP {reply.status_code}"
    parts = [f"HTTP {reply.status_code} {reply.problem.code}"]
    parts += [part for part in (reply.problem.detail, reply.problem.mend) if part]
    return ": ".join(parts)[:500]
