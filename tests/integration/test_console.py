"""The first page: what it may do in a browser is written down, and true."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from gpuwarden_server.console.page import content_policy
from tests.builders.feed import get, quick_settings
from tests.builders.server import Running, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("page"))) as running:
        yield running


def test_the_page_needs_no_key_and_nothing_from_elsewhere(server: Running) -> None:
    with server.client(None) as client:
        page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert [a for a in addresses if not a.startswith("data:")] == []
    assert "https://" not in page.text


def test_the_list_of_routes_needs_nothing_from_elsewhere(server: Running) -> None:
    with server.client(None) as client:
        page = client.get("/docs")
        assert client.get("/redoc").status_code == 404
    assert page.status_code == 200
    assert "://" not in page.text, "Swagger UI comes from a CDN"
    assert "script-src 'none'" in page.headers["content-security-policy"]
    for path in server.admin.get("/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in page.text


def test_its_policy_allows_exactly_its_own_style_and_script(server: Running) -> None:
    page = server.admin.get("/")
    rules = dict(
        rule.strip().split(" ", 1) for rule in page.headers["content-security-policy"].split(";")
    )
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inline,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.search(r"\son\w+=|style=\"", page.text), "inline handlers would not run"


def test_another_script_has_another_policy() -> None:
    page = '<style>a{}</style><script type="module">one()</script>'
    assert content_policy(page) != content_policy(page.replace("one", "two"))


def test_every_route_the_page_reads_is_there(server: Running) -> None:
    page = server.admin.get("/").text
    document = server.admin.get("/openapi.json").json()
    known = [_segments(re.sub(r"\{[^}]*\}", "*", path)) for path in document["paths"]]
    asked = {
        re.sub(r"\$\{[^}]*\}+", "*", path.partition("?")[0])
        for path in re.findall(r"[`\"](/v1/[^`\"]*)[`\"]", page)
    }
    assert len(asked) >= 7
    assert [path for path in asked if not any(_fits(_segments(path), k) for k in known)] == []


NODE_JS = shutil.which("node")


@pytest.mark.skipif(NODE_JS is None, reason="node (Debian: nodejs) runs the page's script")
def test_a_gpu_is_drawn_out_where_its_node_is(server: Running) -> None:
    page = server.admin.get("/").text
    script = page[page.index("const STATES") : page.index("// ---- talking to the server")]
    cases = [
        ("excluded", False, "healthy", "no"),
        ("in_repair", False, "suspect", "no"),
        ("draining", False, "excluded", "no"),
        ("healthy", False, "excluded", "no"),
        ("healthy", False, "suspect", "yes"),
        ("healthy", True, "healthy", "unknown"),
    ]
    asked = [
        [{"state": node, "silent": silent}, {"state": gpu, "usable": usable}]
        for node, silent, gpu, usable in cases
    ]
    shown = run_script(
        f"const document = {{}};\n{script}\n"
        f"const asked = {json.dumps(asked)};\n"
        "console.log(JSON.stringify(asked.map(([node, gpu]) => shown_of(node, gpu))));"
    )
    assert [(one["state"], one["by_node"]) for one in shown] == [
        ("excluded", True),
        ("in_repair", True),
        ("excluded", False),
        ("excluded", False),
        ("suspect", False),
        ("unknown", False),
    ]


def run_script(text: str) -> Any:
    assert NODE_JS is not None
    done = subprocess.run(
        [NODE_JS, "--input-type=module", "-"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def _segments(path: str) -> list[str]:
    return path.split("/")


def _fits(one: list[str], other: list[str]) -> bool:
    same_length = len(one) == len(other)
    return same_length and all(a == b or "*" in (a, b) for a, b in zip(one, other, strict=True))


def test_what_the_page_shows_is_what_the_routes_answer(server: Running) -> None:
    fleet = get(server, "/v1/fleet")
    assert {"mode", "epoch", "excluded_by_kind", "caller"} <= fleet.keys()
    assert fleet["excluded_by_kind"] == {"node": 0, "gpu": 0}
    assert get(server, "/v1/incidents", phase="live") == {"items": [], "next_cursor": None}
