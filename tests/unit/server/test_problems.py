"""What the log holds of a request that failed: never what lets its reader approve."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI
from structlog.testing import capture_logs

from gpuwarden_server.core.problems import install_problem_handlers

TOKEN = "dec-00000000000a.6565.signed"


def test_the_log_of_a_failed_request_leaves_the_token_of_a_link_out() -> None:
    app = FastAPI()
    install_problem_handlers(app)

    @app.get("/approve/{token}")
    @app.get("/v1/nodes/{token}")
    def fail(token: str) -> None:
        raise RuntimeError("a bug")

    async def ask() -> None:
        door = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=door, base_url="http://one") as client:
            for path in (f"/approve/{TOKEN}", "/v1/nodes/n1"):
                assert (await client.get(path)).status_code == 500

    with capture_logs() as lines:
        asyncio.run(ask())
    assert [line["path"] for line in lines] == ["/approve/…", "/v1/nodes/n1"]
    assert TOKEN not in repr(lines)
