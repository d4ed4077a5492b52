"""/docs: the routes as a plain page of our own; a cluster without internet loads no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

from gpuwarden_server.console.page import page_headers

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>gpuwarden: routes</title>
<style>body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; }
td { padding: 2px 14px 2px 0; vertical-align: top; } code { font-size: 13px; }</style></head><body>
<h1>gpuwarden: routes</h1>
<p>Parameters, bodies and answers are in <a href="/openapi.json">/openapi.json</a> (OpenAPI 3),
which any viewer of yours reads. A key goes into the header
<code>Authorization: Bearer gw_…</code>.</p>
<table>
"""


def routes_router() -> APIRouter:
    """The page at /docs, made from the same document as /openapi.json."""
    router = APIRouter(tags=["console"])

    @router.get("/docs", include_in_schema=False)
    async def list_routes(request: Request) -> Response:
        page = _HEAD + "".join(_rows(request.app.openapi())) + "</table></body></html>\n"
        return Response(page, media_type="text/html; charset=utf-8", headers=page_headers(page))

    return router


def _rows(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            cells = (f"<code>{method.upper()}</code>", f"<code>{escape(path)}</code>")
            said = escape(operation.get("summary", ""))
            yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in (*cells, said))}</tr>\n"
