"""Every error answer as RFC 9457 problem details, whoever raised it."""

from __future__ import annotations

from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_wire.acknowledgement import Problem
from gpuwarden_wire.codec import encode_json

LINK_PATH = "/approve/"
"""Where links that let people approve lead; what follows is a credential."""
PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
"""Beside a 503: what hinders the server, a full disk or a busy judge, rarely goes sooner."""
_log = structlog.get_logger(__name__)


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The HTTP answer of a problem."""
    return Response(encode_json(problem), problem.status, headers, media_type=PROBLEM_TYPE)


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of `app` a problem: ours, FastAPI's validation, 404, 405, and bugs."""

    @app.exception_handler(ProblemError)
    def _ours(request: Request, error: ProblemError) -> Response:
        return problem_response(error.problem(), headers_of(error))

    @app.exception_handler(RequestValidationError)
    def _validation(request: Request, error: RequestValidationError) -> Response:
        problem = _media_problem(request, error) or _validation_problem(error)
        return problem_response(problem.problem())

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        return problem_response(_http_problem(request, error).problem(), dict(error.headers or {}))

    @app.exception_handler(Exception)
    def _bug(request: Request, error: Exception) -> Response:
        path = loggable(request.url.path)
        _log.error("request_failed", path=path, error=repr(error), exc_info=error)
        return problem_response(internal_problem().problem())


def loggable(path: str) -> str:
    """A path as logs may hold it: of a link that lets approve, not what makes it one."""
    return f"{LINK_PATH}…" if path.startswith(LINK_PATH) else path


def headers_of(error: ProblemError) -> dict[str, str]:
    """Headers beside a problem: how to authenticate (RFC 9110 11.6.1), when to come again."""
    match error.status:
        case 401:
            return {"WWW-Authenticate": "Bearer"}
        case 503 if error.leader is None:
            return {"Retry-After": str(RETRY_AFTER_S)}
        case _:
            return {}


def internal_problem() -> ProblemError:
    """What the caller sees of a bug of ours: nothing of its inside."""
    return ProblemError(
        500,
        "internal",
        "an unexpected error; it stands in the server's log",
        "Try again; if it stays, report it with the server's log.",
    )


def _media_problem(request: Request, error: RequestValidationError) -> ProblemError | None:
    """The refusal of a body that was not taken for JSON, since nothing said that it is."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = said == "application/json" or said.endswith("+json")
    if is_json or not any(tuple(item["loc"]) == ("body",) for item in error.errors()):
        return None
    return ProblemError(
        415, "wrong_media_type", f"Content-Type {said[:80]!r}", "Send application/json."
    )


def _validation_problem(error: RequestValidationError) -> ProblemError:
    places = [
        f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()
    ]
    return ProblemError(
        422,
        "invalid_value",
        "; ".join(places[:10]),
        "Correct these values; /openapi.json has the form.",
    )


def _http_problem(request: Request, error: HTTPException) -> ProblemError:
    path = f"{request.method} {request.url.path}"
    match error.status_code:
        case 404:
            return ProblemError(404, "not_found", f"nothing at {path}", "See /docs for the routes.")
        case status:
            code = HTTPStatus(status).phrase.lower().replace(" ", "_")
            return ProblemError(status, code, str(error.detail))
