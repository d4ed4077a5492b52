"""Serves the first page with a policy that allows exactly its own style and script."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import APIRouter, Response

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
NOTHING = "'none'"
_SCRIPT = re.compile(r'<script type="module">(.*?)</script>', re.DOTALL)


def console_router() -> APIRouter:
    """The page at /; it asks for a key itself and reads the same API as everybody."""
    page = files("gpuwarden_server.console").joinpath("page.html").read_text(encoding="utf-8")
    headers = page_headers(page)
    router = APIRouter(tags=["console"])

    @router.get("/", include_in_schema=False)
    async def page_at_root() -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    return router


def page_headers(page: str, forms: str = NOTHING) -> dict[str, str]:
    """Headers beside a page; `forms` is where its forms may send."""
    return {
        "Content-Security-Policy": content_policy(page, forms),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def content_policy(page: str, forms: str = NOTHING) -> str:
    """Content-Security-Policy of a page with inline style and script.

    Only those very bytes run, named by hash; nothing is loaded from elsewhere, and no text that
    reaches the page can become code.
    """
    styles = " ".join(_source(text) for text in _STYLE.findall(page))
    scripts = " ".join(_source(text) for text in _SCRIPT.findall(page))
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {styles}",
            f"script-src {scripts or NOTHING}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            f"form-action {forms}",
            "frame-ancestors 'none'",
        )
    )


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
