"""A real HTTP server that takes batches by the contract, and can be told to answer otherwise."""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpuwarden_wire.acknowledgement import Acknowledgement, NodeVerdict, Problem
from gpuwarden_wire.batches import CONTENT_TYPE, Batch, Stream
from gpuwarden_wire.codec import Encoding, content_digest, decode_batch, decompress, encode_json
from gpuwarden_wire.events import Event
from tests.fakes.loopback import LoopbackHandler, LoopbackServer


@dataclass(frozen=True)
class Received:
    """One POST as it arrived."""

    path: str
    headers: Mapping[str, str]
    batch: Batch
    body_bytes: int
    at: float
    connection: int


@dataclass(frozen=True)
class Scripted:
    """An answer to give instead of taking the batch.

    Attributes:
        status: HTTP status; 0 closes the connection without an answer.
        problem: Fields of the problem details.
        headers: Extra headers.
        apply: Take the batch before answering so.
        delay_s: Wait before answering.
        body: Raw body instead of the problem.
    """

    status: int = 500
    problem: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    apply: bool = False
    delay_s: float = 0.0
    body: bytes | None = None


class FakeIngestServer:
    """Applies each (spool, stream, sequence) once, remembers everything, obeys a script."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.script: deque[Scripted] = deque()
        self.when: Callable[[Batch], Scripted | None] = lambda batch: None
        self.applied: dict[tuple[str, Stream], dict[int, str]] = {}
        self.events: dict[str, Event] = {}
        self.duplicates: list[str] = []
        self.durable: dict[Stream, int] = {}
        self.telemetry_durable_lag: int | None = 0
        self.verdict: NodeVerdict | None = None
        self.feed_id = "feed-1"
        self.knows_schemas: set[str] = set()
        self.demands_schemas = True
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._connections = 0
        self._scheme = "https" if tls else "http"
        self._server = LoopbackServer(_handler_of(self), port, tls)
        self._server.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self.port}"

    def __enter__(self) -> FakeIngestServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed.set()
        self._server.stop()

    def hang_up(self) -> None:
        """Close every connection, as a restarted server does."""
        self._server.hang_up()

    def forget_after(self, spool_id: str, stream: Stream, seq: int) -> None:
        """Lose what was applied above `seq`, as a crash between two checkpoints does."""
        with self._lock:
            kept = self.applied.get((spool_id, stream), {})
            self.applied[spool_id, stream] = {n: d for n, d in kept.items() if n <= seq}

    def seqs(self, stream: Stream) -> list[int]:
        """Sequences of a stream in order of arrival, repeats included."""
        return [one.batch.seq for one in self.received if one.batch.stream is stream]

    def event_ids(self) -> list[str]:
        """Ids of the events applied, in order."""
        return list(self.events)

    # called by the handler

    def connected(self) -> int:
        with self._lock:
            self._connections += 1
            return self._connections

    def answer(self, received: Received) -> tuple[int, Mapping[str, str], bytes, float]:
        with self._lock:
            self.received.append(received)
            scripted = self.script.popleft() if self.script else self.when(received.batch)
            if scripted is None:
                return *self._take(received.batch), 0.0
            if scripted.apply:
                self._take(received.batch)
        body = scripted.body
        if body is None:
            body = _problem(scripted.status, scripted.problem)
        return scripted.status, scripted.headers, body, scripted.delay_s

    def _take(self, batch: Batch) -> tuple[int, Mapping[str, str], bytes]:
        self.knows_schemas |= {schema.hash for schema in batch.schemas}
        missing = {table.schema for table in batch.tables} - self.knows_schemas
        if missing and self.demands_schemas:
            problem = _problem(428, {"code": "schema_required", "schemas": tuple(sorted(missing))})
            return 428, {}, problem
        applied = self.applied.setdefault((batch.spool_id, batch.stream), {})
        digest = content_digest(batch)
        replayed = batch.seq in applied
        if replayed and applied[batch.seq] != digest:
            return 409, {}, _problem(409, {"code": "sequence_conflict"})
        if not replayed:
            applied[batch.seq] = digest
            for event in batch.events:
                if event.id in self.events:
                    self.duplicates.append(event.id)
                self.events[event.id] = event
        return 200, {}, encode_json(self._acknowledge(batch, max(applied), replayed))

    def _acknowledge(self, batch: Batch, highest: int, replayed: bool) -> Acknowledgement:
        durable = highest
        if batch.stream is Stream.TELEMETRY:
            lag = self.telemetry_durable_lag
            durable = 0 if lag is None else max(0, highest - lag)
        return Acknowledgement(
            stream=batch.stream,
            applied_seq=highest,
            durable_seq=durable,
            replayed=replayed,
            feed_id=self.feed_id,
            epoch=1,
            verdict=self.verdict,
        )


def _handler_of(fake: FakeIngestServer) -> type[LoopbackHandler]:
    class Handler(LoopbackHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.number = fake.connected()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == CONTENT_TYPE
            encoding = Encoding(self.headers.get("Content-Encoding", "identity"))
            batch = decode_batch(decompress(body, encoding))
            status, headers, content, delay_s = fake.answer(
                Received(self.path, dict(self.headers), batch, len(body), time.time(), self.number)
            )
            fake.closed.wait(delay_s)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def _problem(status: int, fields: Mapping[str, Any]) -> bytes:
    code = fields.get("code", "test")
    problem = Problem(
        type=f"urn:gpuwarden:problem:{code}", title=code, status=status, **{"code": code, **fields}
    )
    return msgspec.json.encode(problem)
