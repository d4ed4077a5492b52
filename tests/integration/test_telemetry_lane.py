"""Telemetry that takes the fast lane: the same answers as the general way."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from gpuwarden_wire.batches import CONTENT_TYPE, Batch, Stream, Table
from gpuwarden_wire.codec import Encoding, compress, encode_batch
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_gpu,
    make_settings,
    running_server,
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running_server(make_settings(tmp_path)) as running:
        yield running


class Nodes:
    """Feeders that are closed at the end of a test."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self._made: list[Feeder] = []

    def __call__(self, node_id: str, encoding: Encoding = Encoding.IDENTITY) -> Feeder:
        """A node with a key of its own and one GPU, introduced."""
        made = Feeder(self.server, self.server.mint("agent", node_id), node_id, encoding=encoding)
        self._made.append(made)
        made.introduce([make_gpu(0, node_id)])
        return made

    def close(self) -> None:
        """Close their connections."""
        for one in self._made:
            one.close()


@pytest.fixture
def feeder(server: Running) -> Iterator[Nodes]:
    nodes = Nodes(server)
    yield nodes
    nodes.close()


def rows(node_id: str, heat: float, energy: float = 1.0) -> dict[str, list[float]]:
    return {f"GPU-{node_id}-0": [heat, 300.0, energy]}


def heat_of(server: Running, node_id: str) -> float:
    gpu = server.admin.get(f"/v1/gpus/GPU-{node_id}-0").json()
    return float(gpu["readings"]["gpu_temperature_celsius"])


@pytest.mark.parametrize("encoding", list(Encoding))
def test_batch_after_batch_is_applied_once_and_a_replay_or_conflict_is_told(
    server: Running, feeder: Nodes, encoding: Encoding
) -> None:
    node = feeder("n1", encoding)
    table, schema = gpu_table(rows("n1", 40.0))
    node.telemetry([table], [schema])
    for number in range(5):
        table, _ = gpu_table(rows("n1", 41.0 + number, 2.0 + number))
        batch = node.batch(Stream.TELEMETRY, tables=(table,))
        assert node.send(batch).applied_seq == number + 2
    assert node.send(batch).replayed
    other, _ = gpu_table(rows("n1", 99.0))
    conflict = node.batch(Stream.TELEMETRY, tables=(other,), seq=batch.seq)
    answer = node.post(conflict)
    assert (answer.status_code, answer.json()["code"]) == (409, "sequence_conflict")
    assert heat_of(server, "n1") == 45.0
    taken = {"stream": "telemetry", "outcome": "applied"}
    assert server.figure("gpuwarden_ingest_batches_total", **taken) == 6.0


def test_many_nodes_at_once_get_their_own_answers_and_numbers(
    server: Running, feeder: Nodes
) -> None:
    nodes = [feeder(f"m{number}") for number in range(12)]

    def talk(place: int) -> list[int]:
        node = nodes[place]
        table, schema = gpu_table(rows(node.node_id, 30.0))
        seqs = [node.telemetry([table], [schema]).applied_seq]
        for turn in range(8):
            table, _ = gpu_table(rows(node.node_id, 30.0 + turn + place / 100))
            seqs.append(node.telemetry([table]).applied_seq)
        return seqs

    with ThreadPoolExecutor(len(nodes)) as pool:
        assert list(pool.map(talk, range(12))) == [list(range(1, 10))] * 12
    for place, node in enumerate(nodes):
        assert heat_of(server, node.node_id) == pytest.approx(37.0 + place / 100)


def test_schemas_may_come_before_any_table(server: Running, feeder: Nodes) -> None:
    node = feeder("s1")
    table, schema = gpu_table(rows("s1", 40.0))
    assert node.telemetry([], [schema]).applied_seq == 1
    assert node.telemetry([table]).applied_seq == 2
    assert node.telemetry([]).applied_seq == 3
    assert heat_of(server, "s1") == 40.0


def test_what_the_lane_does_not_take_is_refused_as_ever(server: Running, feeder: Nodes) -> None:
    node, other = feeder("r1"), feeder("r2")
    table, schema = gpu_table(rows("r1", 40.0))
    node.telemetry([table], [schema])
    infinite, _ = gpu_table(rows("r1", 41.0))
    block = bytearray(infinite.f32)
    block[:4] = b"\x00\x00\x80\x7f"  # +inf
    broken = node.batch(Stream.TELEMETRY, tables=(_with_f32(infinite, bytes(block)),))
    answer = node.post(broken)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_value")
    wrong = _with_f32(infinite, infinite.f32[:-4])
    assert node.post(node.batch(Stream.TELEMETRY, tables=(wrong,))).status_code == 400
    assert other.post(broken).json()["code"] == "wrong_node"
    with server.client("gw_" + "x" * 43) as stranger:
        headers = {"Content-Type": CONTENT_TYPE}
        body = encode_batch(node.batch(Stream.TELEMETRY, tables=(table,)))
        assert stranger.post("/v1/ingest", content=body, headers=headers).status_code == 401
    assert math.isclose(heat_of(server, "r1"), 40.0)


def _with_f32(table: Table, block: bytes) -> Table:
    return msgspec.structs.replace(table, f32=block)


def test_a_gpu_that_moved_is_no_longer_taken_from_its_former_node(
    server: Running, feeder: Nodes
) -> None:
    former, latter = feeder("old"), feeder("new")
    gpus = {"GPU-old-0": [40.0, 300.0, 1.0], "GPU-old-1": [50.0, 300.0, 1.0]}
    former.events(former.inventory([make_gpu(0, "old"), make_gpu(1, "old")]))
    table, schema = gpu_table(gpus)
    former.telemetry([table], [schema])
    former.telemetry([gpu_table(gpus)[0]])
    former.events(former.inventory([make_gpu(0, "old")]))
    latter.events(latter.inventory([make_gpu(1, "old"), make_gpu(0, "new")]))
    hot = gpu_table({key: [90.0, 300.0, 2.0] for key in gpus})[0]
    assert former.telemetry([hot]).applied_seq == 3
    shown = {gpu["gpu_uuid"]: gpu for gpu in server.admin.get("/v1/gpus").json()["items"]}
    assert shown["GPU-old-1"]["node_id"] == "new"
    assert heat_of(server, "old") == 90.0
    moved = server.admin.get("/v1/gpus/GPU-old-1").json()["readings"]
    assert moved["gpu_temperature_celsius"] == 50.0


def test_tables_that_a_node_sends_for_the_first_time_are_looked_at(
    server: Running, feeder: Nodes
) -> None:
    first, second = feeder("f1"), feeder("f2")
    table, schema = gpu_table(rows("f1", 40.0))
    first.telemetry([table], [schema])
    own, _ = gpu_table(rows("f2", 50.0))
    twice = msgspec.structs.replace(
        own, entities=own.entities * 2, f32=own.f32 * 2, f64=own.f64 * 2
    )
    refused = second.post(second.batch(Stream.TELEMETRY, tables=(twice,), seq=1))
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_value")
    unknown = msgspec.structs.replace(own, schema="0" * 16)
    refused = second.post(second.batch(Stream.TELEMETRY, tables=(unknown,), seq=1))
    assert (refused.status_code, refused.json()["code"]) == (428, "schema_required")
    foreign, _ = gpu_table(rows("f1", 90.0) | rows("f2", 50.0))
    assert second.telemetry([foreign], [schema]).applied_seq == 1
    assert (heat_of(server, "f1"), heat_of(server, "f2")) == (40.0, 50.0)
    assert server.figure("gpuwarden_ingest_oddities_total", kind="foreign_row") == 1.0
    assert second.telemetry([gpu_table(rows("f2", 51.0))[0]], [schema]).applied_seq == 2
    assert heat_of(server, "f2") == 51.0


def test_requests_in_one_go_on_one_connection_are_answered_in_order(
    server: Running, feeder: Nodes
) -> None:
    node = feeder("p1")
    table, schema = gpu_table(rows("p1", 40.0))
    node.telemetry([table], [schema])
    batches = [
        node.batch(Stream.TELEMETRY, tables=(gpu_table(rows("p1", 50.0 + n))[0],)) for n in range(6)
    ]
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
        health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        first, *rest = (_request(node, batch) for batch in batches)
        raw.sendall(first + health + b"".join(rest))
        answers = _answers(raw, 7)
    assert [a["applied_seq"] for n, a in enumerate(answers) if n != 1] == [2, 3, 4, 5, 6, 7]
    assert "applied_seq" not in answers[1]
    assert heat_of(server, "p1") == 55.0


def _request(node: Feeder, batch: Batch) -> bytes:
    body = compress(encode_batch(batch), Encoding.ZSTD)
    head = (
        f"POST /v1/ingest HTTP/1.1\r\nHost: x\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Encoding: zstd\r\nAuthorization: Bearer {node.key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _answers(raw: socket.socket, count: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    data = b""
    while len(found) < count:
        head, divider, rest = data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or b"0")
        if divider and len(rest) >= size:
            assert head.startswith(b"HTTP/1.1 200"), head
            found.append(json.loads(rest[:size]))
            data = rest[size:]
            continue
        part = raw.recv(65536)
        assert part, data
        data += part
    return found


def test_a_key_that_asks_too_often_waits_in_the_lane_too(tmp_path: Path) -> None:
    with running_server(make_settings(tmp_path, key_rate_per_s=0.5)) as server:  # 10 at once
        nodes = Nodes(server)
        node = nodes("often")
        table, schema = gpu_table(rows("often", 40.0))
        node.telemetry([table], [schema])
        answers = [
            node.post(node.batch(Stream.TELEMETRY, tables=(gpu_table(rows("often", 41.0))[0],)))
            for _ in range(30)
        ]
        nodes.close()
    assert [a.status_code for a in answers[:5]] == [200] * 5
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) >= 1
