"""Which methods a path takes, over all routes: the routers each know only their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fastapi import FastAPI, Request, Response
from starlette.routing import compile_path

from gpuwarden_server.access.authorisation import ROUTE_GRANTS, RouteKey
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.problems import problem_response


class MethodTable:
    """Methods by path."""

    def __init__(self, routes: Iterable[RouteKey]) -> None:
        """Make the table.

        Args:
            routes: Method and path template of every route.
        """
        fixed: dict[str, set[str]] = {}
        templates: dict[str, set[str]] = {}
        for method, path in routes:
            into = templates if "{" in path else fixed
            into.setdefault(path, set()).update({method, "HEAD"} if method == "GET" else {method})
        self._fixed: Mapping[str, set[str]] = MappingProxyType(fixed)
        self._templates: tuple[tuple[re.Pattern[str], set[str]], ...] = tuple(
            (compile_path(path)[0], methods) for path, methods in templates.items()
        )

    def of(self, path: str) -> frozenset[str]:
        """Methods of a path; none where there is no such path."""
        found = set(self._fixed.get(path, ()))
        for pattern, methods in self._templates:
            if pattern.match(path):
                found |= methods
        return frozenset(found)


METHODS = MethodTable(ROUTE_GRANTS)


def install_method_handler(app: FastAPI) -> None:
    """Answer a wrong method with a problem, and with all methods that the path takes in Allow."""

    def refuse(request: Request, error: Exception) -> Response:
        path = request.url.path
        problem = ProblemError(
            405, "method_not_allowed", f"{request.method} {path}", "See /docs for the methods."
        )
        allowed = {"Allow": ", ".join(sorted(METHODS.of(path)))}
        return problem_response(problem.problem(), allowed)

    app.add_exception_handler(405, refuse)
