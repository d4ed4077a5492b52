"""What a caller sees of a database that takes no write or gives no answer: 503 and a mend."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.problems import headers_of, problem_response
from gpuwarden_server.store.lease import LeaseLost
from gpuwarden_server.store.words import driver_words
from gpuwarden_server.store.writer import WriteFailed

_DISK = "Free space on the disk of the PostgreSQL server."
_SERVER = "Look at the PostgreSQL server that GPUWARDEN_DATABASE_URL names: it does not answer."
_RIGHTS = "Correct GPUWARDEN_DATABASE_URL, or the rights of its user in PostgreSQL."

# SQLite's words (sqlite.org/rescode.html) and PostgreSQL's (its messages of classes 08, 28, 53, 57
# and of libpq), and what a person can do about them.
_MENDS = (
    ("No space left on device", _DISK),
    ("could not extend file", _DISK),
    ("could not write to file", _DISK),
    ("too many clients", "Raise max_connections of PostgreSQL, or end what else uses it."),
    (
        "remaining connection slots",
        "Raise max_connections of PostgreSQL, or end what else uses it.",
    ),
    ("read-only transaction", "GPUWARDEN_DATABASE_URL must name the primary, not a replica."),
    ("authentication failed", _RIGHTS),
    ("permission denied", _RIGHTS),
    ("could not translate host name", _RIGHTS),
    ("connection", _SERVER),
    ("starting up", _SERVER),
    ("shutting down", _SERVER),
    ("recovery mode", _SERVER),
    ("full", "Free space on the disk that holds the state folder."),
    ("readonly", "Make the state folder and its files writable to the server again."),
    ("locked", "End what holds state.db (a backup, a shell with a transaction open)."),
    ("I/O error", "Look at the disk: the kernel log of the server's machine tells more."),
    ("unable to open", "Put the state folder back where the server found it at its start."),
)
_THEN = "Then repeat the request; /readyz says when the database works again."


def storage_problem(error: Exception) -> ProblemError:
    """A failure of the store as the caller sees it: nothing of the statement, all of the mend."""
    if isinstance(error, TimeoutError):
        return ProblemError(
            503,
            "storage_slow",
            "the disk did not answer in time; the write may still be carried out",
            "Read the state again before you repeat the request; /readyz says how the disk is.",
        )
    if isinstance(error, LeaseLost):
        return ProblemError(503, "not_leader", str(error), "Ask again: the leader is named then.")
    reason = driver_words(error)
    first = next((mend for word, mend in _MENDS if word in reason), "Look at the server's log.")
    return ProblemError(503, "storage_failed", f"the database failed: {reason}", f"{first} {_THEN}")


def install_storage_handlers(app: FastAPI, registry: CollectorRegistry) -> None:
    """Answer every failure of the store in a route of `app` with a problem, and count it."""
    failed = Counter(
        "gpuwarden_api_storage_failures_total",
        "Requests answered 503 since the database failed, but batches: those are in "
        "gpuwarden_ingest_refused_total.",
        ["code"],
        registry=registry,
    )

    def answer(request: Request, error: Exception) -> Response:
        problem = storage_problem(error)
        failed.labels(problem.code).inc()
        return problem_response(problem.problem(), headers_of(problem))

    for kind in (WriteFailed, OperationalError, PoolTimeout, TimeoutError):
        app.add_exception_handler(kind, answer)
