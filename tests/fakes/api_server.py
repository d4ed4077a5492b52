"""A small server that speaks the REST contract over real HTTP, for clients to be tested against.

It holds nodes and exclusions in memory, answers with the real wire types, and can be made to
misbehave: streams cut, feeds replaced, digests falsified, keys required.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from gpuwarden_runtime.feed import digest_of
from gpuwarden_runtime.plan_records import PlannedLeave, write_plans
from gpuwarden_runtime.records import Exclusion, ExclusionChange, ExclusionSet
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Problem, Usable
from tests.fakes.loopback import LoopbackHandler, serving_on_loopback

NOW = 1_700_000_000.0
GPUS_A_NODE = 8


class FakeApi:
    """State of the fake; every method may be called while clients are connected."""

    def __init__(self) -> None:
        self.feed_id = "feed-a"
        self.epoch = 1
        self.key = ""
        self.exclusions: dict[str, Exclusion] = {}
        self.planned: tuple[PlannedLeave, ...] = ()
        self.known_nodes: set[str] = set()
        self.answers: dict[tuple[str, str], Any] = {}  # (method, path) -> JSON value
        self.problems: dict[tuple[str, str], Problem] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.log: list[ExclusionChange] = []
        self.falsify_digest = False
        self.ends = False
        self.streams: list[queue.SimpleQueue[bytes | None]] = []
        self.lock = threading.RLock()

    def exclude(self, item: Exclusion) -> None:
        with self.lock:
            self.epoch += 1
            self.exclusions[item.key] = item
            self._publish(added=(item,))

    def lift(self, key: str) -> None:
        with self.lock:
            self.epoch += 1
            self._publish(removed=(self.exclusions.pop(key),))

    def plan(self, *leaves: PlannedLeave) -> None:
        """All that is planned from now on."""
        with self.lock:
            self.epoch += 1
            self.planned = leaves
            change = msgspec.structs.replace(self.change(), plans=write_plans(leaves))
            self.log.append(change)
            for stream in self.streams:
                stream.put(_event("exclusions", change))

    def replace_feed(self, feed_id: str, epoch: int, exclusions: tuple[Exclusion, ...]) -> None:
        with self.lock:
            self.feed_id, self.epoch = feed_id, epoch
            self.exclusions = {item.key: item for item in exclusions}
            self.log.clear()
        self.cut_streams()

    def cut_streams(self) -> None:
        with self.lock:
            for stream in self.streams:
                stream.put(None)

    def end(self) -> None:
        """Cut all streams, and those that are about to open."""
        with self.lock:
            self.ends = True
            self.cut_streams()

    def current(self) -> ExclusionSet:
        return ExclusionSet(
            feed_id=self.feed_id,
            epoch=self.epoch,
            count=len(self.exclusions),
            digest=digest_of(self.exclusions),
            exclusions=tuple(self.exclusions.values()),
            plans=write_plans(self.planned),
        )

    def verdict(self, node_id: str) -> NodeVerdict:
        items = [item for item in self.exclusions.values() if item.node_id == node_id]
        known = node_id in self.known_nodes or items
        usable = Usable.NO if items else Usable.YES if known else Usable.UNKNOWN
        out = {item.gpu_index for item in items}
        gpus = tuple(
            EntityVerdict(entity_kind="gpu", entity=f"GPU-{n:08d}", usable=Usable.YES, index=n)
            for n in range(GPUS_A_NODE if known else 0)
            if n not in out
        )
        gpus += tuple(
            EntityVerdict(
                entity_kind="gpu",
                entity=item.entity,
                usable=Usable.NO,
                why=item.reason,
                since=item.since,
                decision_id=item.decision_id,
                index=item.gpu_index,
                pci_bus_id=item.pci_bus_id,
            )
            for item in items
            if item.entity_kind == "gpu"
        )
        node = EntityVerdict(entity_kind="node", entity=node_id, usable=usable)
        return NodeVerdict(
            node_id=node_id,
            node=node,
            gpus=gpus,
            feed_id=self.feed_id,
            epoch=self.epoch,
            issued_at=NOW,
        )

    def change(
        self, added: tuple[Exclusion, ...] = (), removed: tuple[Exclusion, ...] = ()
    ) -> ExclusionChange:
        digest = "0" * 64 if self.falsify_digest else digest_of(self.exclusions)
        return ExclusionChange(
            feed_id=self.feed_id,
            epoch=self.epoch,
            count=len(self.exclusions),
            digest=digest,
            added=added,
            removed=removed,
        )

    def _publish(
        self, added: tuple[Exclusion, ...] = (), removed: tuple[Exclusion, ...] = ()
    ) -> None:
        change = self.change(added, removed)
        self.log.append(change)
        for stream in self.streams:
            stream.put(_event("exclusions", change))

    def open_stream(self, last_event_id: str) -> queue.SimpleQueue[bytes | None]:
        """A queue of chunks to send; what was missed stands in it already."""
        with self.lock:
            stream: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            feed_id, _, epoch = last_event_id.rpartition(":")
            if feed_id == self.feed_id and epoch.isdigit():
                for change in self.log:
                    if change.epoch > int(epoch):
                        stream.put(_event("exclusions", change))
            else:
                stream.put(_event("state", self.change()))
            self.streams.append(stream)
            if self.ends:
                stream.put(None)
            return stream


def _event(kind: str, change: ExclusionChange) -> bytes:
    body = msgspec.json.encode(change).decode()
    return f"id: {change.feed_id}:{change.epoch}\nevent: {kind}\ndata: {body}\n\n".encode()


class _Handler(LoopbackHandler):
    protocol_version = "HTTP/1.1"
    api: FakeApi

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def do_DELETE(self) -> None:
        self._route("DELETE")

    def _route(self, method: str) -> None:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        body = self._body()
        self.api.requests.append((method, path, body if method == "POST" else query))
        if self.api.key and self.headers.get("Authorization") != f"Bearer {self.api.key}":
            self._problem(_problem_of(401, "unauthenticated", "no valid key"))
        elif (method, path) in self.api.problems:
            self._problem(self.api.problems[method, path])
        elif (method, path) in self.api.answers:
            answer = self.api.answers[method, path]
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self._send(200, text.encode(), "application/json")
        else:
            self._known_route(method, path, query, body)

    def _known_route(
        self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]
    ) -> None:
        if path == "/v1/verdicts":
            self._verdicts(body.get("nodes", []) if method == "POST" else query.get("node", []))
        elif path == "/v1/exclusions":
            self._send(200, msgspec.json.encode(self.api.current()), "application/json")
        elif path == "/v1/exclusions/stream":
            self._stream()
        else:
            self._problem(_problem_of(404, "not_found", f"{path} is not there"))

    def _verdicts(self, nodes: list[str]) -> None:
        verdicts = [self.api.verdict(node) for node in nodes or sorted(self.api.known_nodes)]
        answer = {
            "feed_id": self.api.feed_id,
            "epoch": self.api.epoch,
            "issued_at": NOW,
            "verdicts": verdicts,
        }
        self._send(200, msgspec.json.encode(answer), "application/json")

    def _stream(self) -> None:
        stream = self.api.open_stream(self.headers.get("Last-Event-ID", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while (chunk := stream.get()) is not None:
            try:
                self.wfile.write(chunk)
                self.wfile.flush()
            except OSError:
                break  # the client went away
        with self.api.lock:
            self.api.streams.remove(stream)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        return body if isinstance(body, dict) else {}

    def _problem(self, problem: Problem) -> None:
        self._send(problem.status, msgspec.json.encode(problem), "application/problem+json")

    def _send(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _problem_of(code: int, name: str, detail: str) -> Problem:
    return Problem(
        type=f"urn:gpuwarden:problem:{name}", title=name, status=code, code=name, detail=detail
    )


@contextmanager
def serve(api: FakeApi, port: int = 0) -> Iterator[str]:
    """Run the fake on loopback; yields its address."""
    handler = type("Handler", (_Handler,), {"api": api})
    api.ends = False
    with serving_on_loopback(handler, port, let_go=api.end) as server:
        yield server.url
