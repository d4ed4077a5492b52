"""The one thread that writes a database, with group commit."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from sqlite3 import Connection as SqliteConnection
from sqlite3 import Error as SqliteError
from threading import Event, Lock, Thread
from typing import Any, Protocol, TypeVar

import structlog
from psycopg import Connection as PsycopgConnection
from psycopg import Error as PsycopgError
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from gpuwarden_server.core.errors import ServerError
from gpuwarden_server.store.meters import WriterMeters
from gpuwarden_server.store.words import driver_words

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class WriteFailed(ServerError):
    """The transaction of a whole group was rolled back (disk full, I/O error, writer closed)."""

    retryable = True


class Fence(Protocol):
    """What guards a database that several servers could write."""

    def enter(self, connection: Connection) -> str | None:
        """Check in a transaction, as its first statement, that this server may write.

        Returns:
            The transaction's id, for `was_committed`; None where it is never asked.

        Raises:
            WriteFailed: It may not.
        """
        ...

    def was_committed(self, mark: str) -> bool | None:
        """How a transaction ended whose connection broke at its commit.

        Returns:
            None where the database does not say yet: it is away, or still at it.
        """
        ...


class _NoFence:
    """Of a database that only this process can write; a commit of a file never breaks off."""

    def enter(self, connection: Connection) -> str | None:
        """Let everything in."""
        return None

    def was_committed(self, mark: str) -> bool | None:
        """Never asked."""
        return False


NO_FENCE = _NoFence()
_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class _Job:
    run: Callable[[Connection], Any]
    future: Future[Any]
    queued_at: float


class Writer:
    """Runs functions in transactions of one database, in the order of `submit`, in its own thread.

    Functions that wait together share one commit: a group takes what is queued until the queue is
    empty or `window_s` has passed, so an idle writer commits at once and a busy one never holds an
    answer longer than the window and one commit. Each function runs in a savepoint of its own: one
    that raises undoes only itself, and its future carries the exception. A future is done only
    after the commit (with synchronous FULL, and on PostgreSQL: after the sync).
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        window_s: float,
        fence: Fence = NO_FENCE,
        meters: WriterMeters | None = None,
    ) -> None:
        """Make a writer; `start` makes it run.

        Args:
            name: Names the thread and the log events.
            engine: A `writing_engine`.
            window_s: Longest time that a group stays open, seconds.
            fence: Asked at the start of each transaction.
            meters: Figures, None counts nothing.
        """
        self._name = name
        self._engine = engine
        self._window_s = window_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._fence = fence
        self._meters = meters
        self._lock = Lock()
        self._closed = False
        self._closing = Event()
        self._failing = False
        self._oldest: float | None = None
        if meters is not None:
            meters.follow(name, self.lag_s, self._jobs.qsize)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def lag_s(self) -> float:
        """How long the oldest write of the group under way has waited, seconds; 0 idle."""
        oldest = self._oldest
        return 0.0 if oldest is None else time.monotonic() - oldest

    def submit(self, run: Callable[[Connection], T]) -> Future[T]:
        """Queue `run`; its result comes after the commit.

        The future fails with what `run` raised, or with WriteFailed where the group was lost.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed or self._thread.ident is None:
                why = "is closed" if self._closed else "has not started"
                future.set_exception(WriteFailed(f"the writer of {self._name} {why}"))
            else:
                self._jobs.put(_Job(run, future, time.monotonic()))
        return future

    def call(self, run: Callable[[Connection], T], timeout_s: float | None = 30.0) -> T:
        """`submit` and wait; never from the event loop or from inside a job.

        Who must know whether it was written waits without end: None.
        """
        return self.submit(run).result(timeout_s)

    def close(self) -> None:
        """Write what is queued, then end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._closing.set()
            self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        self._engine.dispose()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._write_group(job)

    def _write_group(self, first: _Job) -> None:
        """Write one job, and those that join it, with one commit."""
        group: list[_Job] = []
        done: list[tuple[_Job, Any]] = []
        self._oldest = first.queued_at
        try:
            connection, mark = self._begin()
            with connection:
                for job in self._group_of(first):
                    group.append(job)
                    self._write_one(connection, job, done)
                self._commit(connection, mark)
        except (SQLAlchemyError, SqliteError, PsycopgError, WriteFailed) as error:
            self._fail_group(group or [first], error)
            return
        finally:
            self._oldest = None
        if self._meters is not None:
            self._meters.note(self._name, time.monotonic() - first.queued_at, len(done))
        if done and self._failing:
            self._failing = False
            _log.info("writes_again", database=self._name)
        for job, result in done:
            job.future.set_result(result)

    def _begin(self) -> tuple[Connection, str | None]:
        """A connection in a transaction that may write, and the transaction's id.

        A connection that broke while it lay idle is replaced: nothing was done in it yet.
        """
        for is_last in (False, True):
            connection = self._engine.connect()
            try:
                connection.begin()
                return connection, self._fence.enter(connection)
            except BaseException as error:
                connection.close()
                broke = isinstance(error, DBAPIError) and error.connection_invalidated
                if is_last or not broke:
                    raise
        raise AssertionError("unreachable")

    def _commit(self, connection: Connection, mark: str | None) -> None:
        """Commit; where the connection breaks over it, find out what became of it.

        Not to know would be to write twice, or to deny what is written.
        """
        try:
            connection.commit()
        except DBAPIError as error:
            if mark is None or not error.connection_invalidated or not self._was_committed(mark):
                raise

    def _was_committed(self, mark: str) -> bool:
        while (known := self._fence.was_committed(mark)) is None:
            if self._closing.wait(_RETRY_S):
                return False
        return known

    def _fail_group(self, group: list[_Job], error: Exception) -> None:
        lost = error
        if not isinstance(error, WriteFailed):
            lost = WriteFailed(f"{self._name}: {driver_words(error)}")
        self._note_failure(str(lost))
        if self._meters is not None:
            self._meters.failed(self._name, len(group))
        for job in group:
            _fail(job.future, lost)

    def _note_failure(self, reason: str) -> None:
        if not self._failing:
            _log.error("write_failed", database=self._name, reason=reason)
        self._failing = True

    def _group_of(self, first: _Job) -> Iterator[_Job]:
        """The first job, then what waits, until nothing does or the window is over."""
        deadline = time.monotonic() + self._window_s
        yield first
        while time.monotonic() < deadline:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is None:
                self._jobs.put(None)  # nothing comes behind it: `_run` ends with it
                return
            yield job

    def _write_one(self, connection: Connection, job: _Job, done: list[tuple[_Job, Any]]) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            with connection.begin_nested():
                result = job.run(connection)
        except Exception as error:  # writer thread: whatever a job raises is its owner's
            first = _fault_of_database(error)
            if first is None:
                _fail(job.future, error)
                return
            self._note_failure(driver_words(first))
            if self._meters is not None:
                self._meters.failed(self._name, 1)
            _fail(job.future, WriteFailed(f"{self._name}: {driver_words(first)}"))
            if not _in_transaction(connection):
                raise first from None  # a job that followed would commit by itself
            return
        done.append((job, result))


def _fault_of_database(error: Exception) -> DBAPIError | None:
    """What went wrong first where it is not the job's fault: disk full, I/O, connection lost.

    Where the database rolled all back, the savepoint fails too and hides what came before.
    """
    first: DBAPIError | None = None
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OperationalError) or (
            isinstance(seen, DBAPIError) and seen.connection_invalidated
        ):
            first = seen
        seen = seen.__context__
    return first


def _in_transaction(connection: Connection) -> bool:
    """Whether the group's transaction stands.

    A full disk may end SQLite's (lang_transaction.html); PostgreSQL's ends with its connection.
    """
    if connection.invalidated:
        return False
    driver = connection.connection.driver_connection
    if isinstance(driver, PsycopgConnection):
        return bool(driver.info.transaction_status == TransactionStatus.INTRANS)
    return isinstance(driver, SqliteConnection) and driver.in_transaction


def _fail(future: Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
