"""The server's errors, one tree.

ServerError
├── ProblemError      the caller's request cannot be served: becomes RFC 9457 problem details
└── StartError        the server cannot start: names the mend, ends the process
└── StoreError    a database file cannot be opened, written or understood
"""

from __future__ import annotations

from gpuwarden_wire.acknowledgement import Problem

# Titles are the same for every occurrence of a code (RFC 9457, 3.1.3).
_TITLES = {
    400: "The request is not understood",
    401: "No valid key",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "In conflict with what is stored",
    411: "Length required",
    413: "Too large",
    415: "Not a media type that is taken here",
    422: "A value is not valid",
    428: "Something is needed first",
    429: "Too many requests",
    500: "The server failed",
    503: "Not available now",
}


class ServerError(Exception):
    """Base of the server's own errors.

    Attributes:
        retryable: Whether the same call may succeed later without a change.
    """

    retryable = False


class ProblemError(ServerError):
    """A request that cannot be served, as the caller gets to see it.

    Attributes:
        status: HTTP status.
        code: Stable machine-readable code, snake_case.
        detail: This occurrence; names the input.
        mend: What the caller can do.
        schemas: Hashes wanted, with 428.
        leader: URL of the leading server, with 503.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        mend: str = "",
        *,
        schemas: tuple[str, ...] = (),
        leader: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.mend = mend
        self.schemas = schemas
        self.leader = leader
        self.retryable = status >= 500 or status in (408, 428, 429)

    def problem(self) -> Problem:
        """The wire form."""
        return Problem(
            type=f"urn:gpuwarden:problem:{self.code}",
            title=_TITLES.get(self.status, "Problem"),
            status=self.status,
            code=self.code,
            detail=self.detail,
            mend=self.mend,
            schemas=self.schemas,
            leader=self.leader,
        )


class StartError(ServerError):
    """The server cannot start.

    Attributes:
        mend: What the operator can do, a command where there is one.
    """

    def __init__(self, message: str, mend: str) -> None:
        super().__init__(f"{message}. {mend}")
        self.mend = mend


class StoreError(StartError):
    """A database file cannot be opened, written, or is of another version than the code."""
