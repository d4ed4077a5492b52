"""The one thread that writes a database, with group commit."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from sqlite3 import Connection as SqliteConnection
from sqlite3 import Error as SqliteError
from threading import Lock, Thread
from typing import Any, TypeVar

import structlog
from psycopg import Connection as PsycopgConnection
from psycopg import Error as PsycopgError
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from gpuwarden_server.core.errors import ServerError
from gpuwarden_server.store.words import driver_words

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class WriteFailed(ServerError):
    """The transaction of a whole group was rolled back (disk full, I/O error, writer closed)."""

    retryable = True


@dataclass(frozen=True, slots=True)
class _Job:
    run: Callable[[Connection], Any]
    future: Future[Any]


class Writer:
    """Runs functions in transactions of one database, in the order of `submit`, in its own thread.

    Functions that wait together share one commit: a group takes what is queued until the queue is
    empty or `window_s` has passed, so an idle writer commits at once and a busy one never holds an
    answer longer than the window and one commit. Each function runs in a savepoint of its own: one
    that raises undoes only itself, and its future carries the exception. A future is done only
    after the commit (with synchronous FULL, and on PostgreSQL: after the sync).
    """

    def __init__(self, name: str, engine: Engine, window_s: float) -> None:
        """Make a writer; `start` makes it run.

        Args:
            name: Names the thread and the log events.
            engine: A `writing_engine`.
            window_s: Longest time that a group stays open, seconds.
        """
        self._name = name
        self._engine = engine
        self._window_s = window_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._lock = Lock()
        self._closed = False
        self._failing = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def submit(self, run: Callable[[Connection], T]) -> Future[T]:
        """Queue `run`; its result comes after the commit.

        The future fails with what `run` raised, or with WriteFailed where the group was lost.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(WriteFailed(f"the writer of {self._name} is closed"))
            else:
                self._jobs.put(_Job(run, future))
        return future

    def call(self, run: Callable[[Connection], T], timeout_s: float = 30.0) -> T:
        """`submit` and wait; never from the event loop or from inside a job."""
        return self.submit(run).result(timeout_s)

    def close(self) -> None:
        """Write what is queued, then end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
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
        try:
            with self._engine.begin() as connection:
                for job in self._group_of(first):
                    group.append(job)
                    self._write_one(connection, job, done)
        except (SQLAlchemyError, SqliteError, PsycopgError) as error:
            reason = driver_words(error)
            self._note_failure(reason)
            for job in group or [first]:
                _fail(job.future, WriteFailed(f"{self._name}: {reason}"))
            return
        if done and self._failing:
            self._failing = False
            _log.info("writes_again", database=self._name)
        for job, result in done:
            job.future.set_result(result)

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
