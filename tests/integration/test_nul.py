"""U+0000, which PostgreSQL cannot store: refused of people, made visible in what machines tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.batches import Stream
from tests.builders.feed import exclusions_of, get, quick_settings, reading_feed, xid_event
from tests.builders.server import Feeder, Running, make_event, make_gpu, running_server

BOTH_STORES = True
pytestmark = pytest.mark.postgres
GPU = "GPU-n-0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: Any) -> Iterator[Running]:
    with running_server(quick_settings(Path(tmp_path_factory.mktemp("nul")))) as running:
        yield running


@pytest.mark.parametrize(
    ("method", "path", "request_"),
    [
        ("POST", "/v1/keys", {"json": {"role": "reader", "name": "a\0b"}}),
        ("POST", "/v1/nodes", {"json": {"node_id": "n9", "reason": "x", "rack": "\0"}}),
        ("PUT", "/v1/inventory", {"json": {"nodes": [{"node_id": "n9", "labels": {"a": "\0"}}]}}),
        ("POST", "/v1/events", {"json": {"events": [{"name": "a", "state": "ok", "text": "\0"}]}}),
        ("POST", "/v1/enrol", {"json": {"token": "gwe_\0", "node": "n9"}}),
        ("GET", "/v1/incidents", {"params": {"entity": "a\0"}}),
        ("GET", "/v1/audit", {"params": {"author": "\0"}}),
        ("GET", "/v1/incidents/inc-%00", {}),
    ],
)
def test_a_text_with_nul_is_refused_and_nothing_is_written(
    server: Running, method: str, path: str, request_: dict[str, Any]
) -> None:
    answer = server.admin.request(method, path, **request_)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value"), answer.text
    assert "U+0000" in answer.json()["detail"]
    assert get(server, "/readyz")["state"] == "ready"


def test_a_backslash_before_u0000_is_text_like_any_other(server: Running) -> None:
    made = server.admin.post("/v1/keys", json={"role": "reader", "name": "a\\u0000b"})
    assert made.json()["name"] == "a\\u0000b"


def test_a_kernel_line_with_nul_is_stored_and_judged(server: Running) -> None:
    node = Feeder(server, server.mint("agent", "n"), "n")
    node.introduce([make_gpu(0, "n", serial="S\0")])
    line = xid_event(79, "0000:10:00.0", attributes={"a\0": "b\0"})
    text = f"{line.text} na\0me"
    with reading_feed(server) as feed:
        batch = node.batch(
            Stream.EVENTS,
            events=(make_event("kmsg:\0-1", **{**fields_of(line), "text": text}),),
        )
        node.send(batch)
        feed.wait_added(GPU)
    assert node.send(batch).replayed
    node.close()
    told = get(server, "/v1/events", node="n", kind="kernel_log")["items"]
    assert [(one["id"], one["text"]) for one in told] == [
        ("kmsg:\u2400-1", text.replace("\0", "\u2400"))
    ]
    assert [one["entity"] for one in exclusions_of(server)["exclusions"]] == [GPU]
    assert get(server, f"/v1/gpus/{GPU}")["serial"] == "S\u2400"


def fields_of(line: Any) -> dict[str, Any]:
    names = ("xid", "family", "pci_bus_id", "attributes")
    return {name: getattr(line, name) for name in names}
