"""Errors of the client side, one tree.

    GpuwardenError
    ├── SettingError        a setting or key file is wrong
    ├── ServerUnreachable   no answer
    ├── Refused             the server answered with a problem
    └── UnexpectedAnswer    an answer that is not ours (a proxy's page, another version)

Each carries `detail` (what happened, with the input named), `mend` (what to do) and `retryable`.
"""

from __future__ import annotations

from gpuwarden_wire.acknowledgement import Problem


class GpuwardenError(Exception):
    """Base of the tree.

    Attributes:
        detail: What happened; names the input.
        mend: What to do about it, "" where nothing is known.
        retryable: True where the same call may succeed later without anybody's help.
    """

    retryable = False

    def __init__(self, detail: str, mend: str = "") -> None:
        super().__init__(f"{detail} ({mend})" if mend else detail)
        self.detail = detail
        self.mend = mend


class SettingError(GpuwardenError):
    """A setting, option or key file that cannot be used."""


class ServerUnreachable(GpuwardenError):
    """No answer: refused, timed out, no such host, connection cut."""

    retryable = True


class UnexpectedAnswer(GpuwardenError):
    """An answer that does not have the shape of our API; a 5xx of a proxy may pass by itself."""

    def __init__(self, detail: str, mend: str = "", *, retryable: bool = False) -> None:
        super().__init__(detail, mend)
        self.retryable = retryable


class Refused(GpuwardenError):
    """The server answered with problem details.

    Attributes:
        problem: RFC 9457 problem as sent, its mend in words of the command line.
        retry_after_s: Seconds that the server asks to wait, 0 where it names none.
    """

    def __init__(self, problem: Problem, retry_after_s: float = 0.0) -> None:
        detail = problem.detail or problem.title
        super().__init__(f"{detail} [{problem.status} {problem.code}]", problem.mend)
        self.problem = problem
        self.retry_after_s = retry_after_s
        # 408, 429 and 5xx speak of the moment, not of the request (RFC 9110, 15.5.9 and 15.6); so
        # does a first attempt of ours that the server is still carrying out.
        self.retryable = (
            problem.status in (408, 429)
            or problem.status >= 500
            or problem.code == "idempotency_in_flight"
        )
