"""schemathesis over the whole OpenAPI document: examples, boundaries, random values, links.

A server that holds nodes, incidents and decisions answers; every check that schemathesis has is on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_server.front import RAW_ROUTES
from gpuwarden_server.web.openapi import operations_of
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import GpuJob, JobKind
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until

ROOT = Path(__file__).resolve().parents[2]
NODES = ("gpu-017", "gpu-018", "gpu-019")
FALLEN_OFF = 79
COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"
HOOKS = "tests.fakes.openapi_hooks"
# Right answers that JSON Schema cannot foresee: a range that ends before it begins is refused,
# `If-None-Match: *` is met by whatever is there, no node is named twice, and not all text is a
# regular expression that is matched in bounded time.
# U+0000 is refused in any text.
# Links are many and lead far: more steps there than values elsewhere.
CONFIG = """
[generation]
allow-x00 = false

[phases.stateful.generation]
max-examples = 100

[[operations]]
include-name = "GET /v1/history"
checks.positive_data_acceptance.expected-statuses = [
    "2xx", "304", "401", "403", "404", "409", "422",
]

[[operations]]
include-name = "POST /v1/silences"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

[[operations]]
include-name = "POST /v1/diagnoses"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

[[operations]]
include-name = "POST /v1/sessions/{session_id}/progress"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

[[operations]]
include-name = "PUT /v1/inventory"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
"""
LEAST_LINKS = 1
"""Random walks reach few of many links; another test follows each of them."""


def seed(server: Running) -> None:
    """Something behind every link: nodes, readings, events, incidents, advice that waits."""
    for name in NODES:
        node = Feeder(server, server.mint("agent", name), name)
        gpus = [make_gpu(number, name) for number in range(2)]
        jobs = tuple(
            GpuJob(gpu_uuid=one.gpu_uuid, kind=JobKind.SLURM, job_id="4711") for one in gpus
        )
        node.introduce(gpus, jobs=jobs)
        rows = {f"GPU-{name}-{number}": (61.0, 400.0, 1e9) for number in range(2)}
        table, schema = gpu_table(rows)
        node.telemetry([table], [schema])
        node.events(xid_event(FALLEN_OFF, "0000:10:00.0"))
        node.close()
    wait_until(lambda: len(get(server, "/v1/decisions")["items"]) >= len(NODES), "advice", 20.0)


def fuzz(folder: Path, *options: str) -> str:
    """Run schemathesis against a seeded server; its report."""
    with running_server(quick_settings(folder, Mode.ADVISE)) as server:
        seed(server)
        raw = [part for route in RAW_ROUTES for part in ("--exclude-path", route.path)]
        (folder / "schemathesis.toml").write_text(CONFIG)
        command = [sys.executable, "-c", COMMAND, "--config-file", "schemathesis.toml", "run"]
        command += [f"{server.url}/openapi.json", *raw, *options]
        command += ["--header", f"Authorization: {server.admin.headers['authorization']}"]
        command += ["--checks", "all", "--seed", "1", "--generation-deterministic"]
        command += ["--no-color", "--request-timeout", "20"]
        done = subprocess.run(
            command,
            cwd=folder,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": HOOKS,
                "PYTHONPATH": str(ROOT),
                "FUZZ_KEY_ID": get(server, "/v1/keys")["items"][0]["id"],
            },
            capture_output=True,
            text=True,
            check=False,
        )
        report = done.stdout + done.stderr
        assert done.returncode == 0, report[-20_000:]
        assert get(server, "/readyz")["state"] == "ready"
        assert get(server, "/v1/keys")["items"], "the key of the run was good to its end"
    return report


@pytest.mark.timeout(400)
def test_no_route_fails_or_answers_otherwise_than_it_says(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = fuzz(tmp_path, "--max-examples", "4")
    assert_whole(report, record_property)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_route_fails_in_a_long_run(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = fuzz(tmp_path, "--max-examples", "300", "--workers", "2")
    assert_whole(report, record_property)


def test_every_link_leads_to_what_the_answer_named(tmp_path: Path) -> None:
    """All links that the document gives, each followed once from a fresh answer."""
    followed = []
    with running_server(quick_settings(tmp_path, Mode.ADVISE)) as server:
        seed(server)
        document = get(server, "/openapi.json")
        schemas = document["components"]["schemas"]
        own = get(server, "/v1/keys")["items"][0]["id"]
        by_id = {
            operation["operationId"]: (method, path, operation)
            for method, path, operation in operations_of(document)
        }
        for method, path, operation in operations_of(document):
            if "{" in path:
                continue
            for link in links_of(operation):
                origin = call(server, schemas, method, path, operation)
                if origin.status_code == 409:
                    continue  # what the example makes is there already
                assert origin.is_success, f"{method} {path}: {origin.text}"
                ((name, pointer),) = link["parameters"].items()
                value = value_at(origin.json(), pointer.partition("#")[2])
                if value is None or value == own:
                    continue  # an empty list, or the key that this test lives on
                target = by_id[link["operationId"]]
                answer = call(server, schemas, *target, **{name.partition(".")[2]: value})
                assert answer.is_success or answer.status_code == 409, answer.text
                followed.append(link["operationId"])
    assert len(set(followed)) >= 15, sorted(set(followed))


def links_of(operation: dict[str, Any]) -> list[dict[str, Any]]:
    answers = operation["responses"].values()
    return [link for answer in answers for link in answer.get("links", {}).values()]


def call(
    server: Running,
    schemas: dict[str, Any],
    method: str,
    path: str,
    operation: dict[str, Any],
    **names: str,
) -> httpx.Response:
    """A request with the example body of its operation."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
    given = body.get("example", schemas[schema]["examples"][0] if schema else None)
    return server.admin.request(method, path.format(**names), json=given)


def value_at(content: Any, pointer: str) -> Any:
    for part in pointer.strip("/").split("/"):
        if isinstance(content, list):
            content = content[int(part)] if int(part) < len(content) else None
        else:
            content = content.get(part) if content is not None else None
    return content


def assert_whole(report: str, record_property: Callable[[str, object], None]) -> None:
    """All phases ran, over every operation that was selected."""
    found = re.search(r"Selected: (\d+)/(\d+)\n  Tested: (\d+)", report)
    assert found is not None, report
    selected, described, tested = map(int, found.groups())
    assert tested == selected == described - len(RAW_ROUTES)
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in report, report
    links = re.search(r"API Links: +(\d+) covered / (\d+)", report)
    assert links is not None
    assert int(links[1]) >= LEAST_LINKS, report
    cases = re.search(r"(\d+) generated", report)
    assert cases is not None
    record_property(
        "figure",
        f"schemathesis: {tested} operations, {links[1]} of {links[2]} links, {cases[1]} cases, "
        "no failure",
    )
