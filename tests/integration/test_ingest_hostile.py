"""Hostile input: each is refused with a problem, nothing of it is applied, and it is counted."""

from __future__ import annotations

import gzip
import math
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import zstandard

from gpuwarden_wire.batches import MissingCell, MissingKind, ShedRange, Stream
from gpuwarden_wire.codec import MAX_BODY_BYTES, Encoding, decode_problem, encode_batch
from gpuwarden_wire.metrics import DEVICE_KINDS, EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_client,
    make_event,
    make_settings,
    running_server,
)

NODE = "target"


@dataclass(frozen=True)
class Attack:
    """Bytes to send, and the answer they must get."""

    body: bytes
    status: int
    code: str
    encoding: Encoding | str = Encoding.IDENTITY
    key: str | None = "agent"
    content_type: str = ""


def _events(feeder: Feeder, **fields: object) -> bytes:
    return encode_batch(feeder.batch(Stream.EVENTS, **({"events": (make_event(),)} | fields)))


def _telemetry(feeder: Feeder, **fields: object) -> bytes:
    """A good batch of telemetry with some fields of its table, or of the batch, replaced."""
    table, schema = gpu_table({"GPU-a": [50.0, 300.0, 1e6], "GPU-b": [51.0, 301.0, 2e6]})
    names = set(table.__struct_fields__)
    table = msgspec.structs.replace(table, **{k: v for k, v in fields.items() if k in names})
    batch = feeder.batch(Stream.TELEMETRY, tables=(table,), schemas=(schema,))
    rest = {key: value for key, value in fields.items() if key not in names}
    return encode_batch(msgspec.structs.replace(batch, **rest))


def _schema(feeder: Feeder, *columns: Column) -> bytes:
    schema = Schema(EntityKind.GPU, columns)
    return encode_batch(feeder.batch(Stream.TELEMETRY, schemas=(schema,)))


GAUGE = Column("gpu_new_gauge", Storage.F32, MetricKind.GAUGE, "")
COUNTER = Column("gpu_new_total", Storage.COUNTER, MetricKind.COUNTER, "")

ATTACKS: dict[str, Callable[[Feeder], Attack]] = {
    "empty": lambda f: Attack(b"", 400, "not_a_batch"),
    "not msgpack": lambda f: Attack(b"\xc1 nonsense", 400, "not_a_batch"),
    "truncated": lambda f: Attack(_events(f)[:-7], 400, "not_a_batch"),
    "deep nesting": lambda f: Attack(b"\x91" * 100_000, 400, "not_a_batch"),
    "json": lambda f: Attack(b'{"version":1}', 400, "not_a_batch"),
    "wrong content type": lambda f: Attack(
        _events(f), 415, "wrong_media_type", content_type="application/json"
    ),
    "unknown encoding": lambda f: Attack(_events(f), 415, "wrong_encoding", encoding="br"),
    "not gzip": lambda f: Attack(_events(f), 400, "not_a_batch", Encoding.GZIP),
    "cut zstd": lambda f: Attack(
        zstandard.compress(_events(f))[:-4], 400, "not_a_batch", Encoding.ZSTD
    ),
    "oversized": lambda f: Attack(b"\0" * (MAX_BODY_BYTES + 1), 413, "batch_too_large"),
    "gzip bomb": lambda f: Attack(
        gzip.compress(b"\0" * (64 << 20)), 413, "batch_too_large", Encoding.GZIP
    ),
    "zstd bomb": lambda f: Attack(
        zstandard.compress(b"\0" * (64 << 20)), 413, "batch_too_large", Encoding.ZSTD
    ),
    "no key": lambda f: Attack(_events(f), 401, "no_valid_key", key=None),
    "invented key": lambda f: Attack(_events(f), 401, "no_valid_key", key="gw_" + "x" * 43),
    "reader's key": lambda f: Attack(_events(f), 403, "role_not_allowed", key="reader"),
    "other node's key": lambda f: Attack(_events(f), 403, "wrong_node", key="other"),
    "future version": lambda f: Attack(_events(f, version=99), 400, "unsupported_version"),
    "node id with a slash": lambda f: Attack(
        _events(f, node_id="a/b"), 400, "invalid_value", key="admin"
    ),
    "spool id too short": lambda f: Attack(_events(f, spool_id="ab"), 400, "invalid_value"),
    "sequence zero": lambda f: Attack(_events(f, seq=0), 400, "invalid_value"),
    "sequence beyond sqlite": lambda f: Attack(_events(f, seq=2**63), 400, "invalid_value"),
    "sent never": lambda f: Attack(_events(f, sent_at=math.nan), 400, "invalid_value"),
    "backward shed range": lambda f: Attack(
        _events(f, shed=(ShedRange(Stream.EVENTS, 9, 3),)), 400, "invalid_value"
    ),
    "too many events": lambda f: Attack(
        _events(f, events=(make_event("x"),) * 5_001), 413, "batch_too_large"
    ),
    "event without id": lambda f: Attack(
        _events(f, events=(msgspec.structs.replace(make_event(), id=""),)), 400, "invalid_value"
    ),
    "event at infinity": lambda f: Attack(
        _events(f, events=(make_event(observed_at=math.inf),)), 400, "invalid_value"
    ),
    "event about a place": lambda f: Attack(
        _events(f, events=(make_event(entity_kind=EntityKind.PLACE, entity="rack:7"),)),
        400,
        "invalid_value",
    ),
    "series of a place": lambda f: Attack(
        encode_batch(f.batch(Stream.TELEMETRY, schemas=(Schema(EntityKind.PLACE, (GAUGE,)),))),
        400,
        "invalid_value",
    ),
    "event of no JSON form": lambda f: Attack(
        _events(f, events=(make_event(attributes={"x": msgspec.msgpack.Ext(5, b"?")}),)),
        400,
        "not_a_batch",
    ),
    "one wrong event behind good ones": lambda f: Attack(
        _events(f, events=(make_event(), make_event(), make_event(count=0))), 400, "invalid_value"
    ),
    "tables in the events stream": lambda f: Attack(
        _telemetry(f, stream=Stream.EVENTS), 400, "wrong_stream"
    ),
    "events in the telemetry stream": lambda f: Attack(
        _telemetry(f, events=(make_event(),)), 400, "wrong_stream"
    ),
    "unknown schema": lambda f: Attack(
        _telemetry(f, schemas=(), schema="0123456789abcdef"), 428, "schema_required"
    ),
    "f32 cut": lambda f: Attack(_telemetry(f, f32=b"\0" * 12), 400, "wrong_shape"),
    "f64 too long": lambda f: Attack(_telemetry(f, f64=b"\0" * 24), 400, "wrong_shape"),
    "one entity more than numbers": lambda f: Attack(
        _telemetry(f, entities=("GPU-a", "GPU-b", "GPU-c")), 400, "wrong_shape"
    ),
    "infinite reading": lambda f: Attack(
        _telemetry(f, f32=b"\0\0\x80\x7f" * 4), 400, "invalid_value"
    ),
    "an entity twice": lambda f: Attack(
        _telemetry(f, entities=("GPU-a", "GPU-a")), 400, "invalid_value"
    ),
    "a GPU without name": lambda f: Attack(
        _telemetry(f, entities=("GPU-a", "")), 400, "invalid_value"
    ),
    "missing cell outside": lambda f: Attack(
        _telemetry(f, missing=(MissingCell(0, 99, MissingKind.NOT_SUPPORTED),)),
        400,
        "wrong_shape",
    ),
    "table before time": lambda f: Attack(_telemetry(f, observed_at=-1.0), 400, "invalid_value"),
    "schema without columns": lambda f: Attack(_schema(f), 400, "wrong_schema"),
    "schema with a column twice": lambda f: Attack(_schema(f, GAUGE, GAUGE), 400, "wrong_schema"),
    "schema out of order": lambda f: Attack(_schema(f, COUNTER, GAUGE), 400, "wrong_schema"),
    "schema of endless metrics": lambda f: Attack(
        _schema(
            f,
            *(Column(f"gpu_x{n}", Storage.F32, MetricKind.GAUGE, "") for n in range(500)),
        ),
        400,
        "too_many_metrics",
    ),
    "more entities than a node has": lambda f: Attack(
        _telemetry(
            f,
            entities=tuple(f"GPU-{n}" for n in range(4_097)),
            f32=b"\0" * (4 * 2 * 4_097),
            f64=b"\0" * (8 * 4_097),
        ),
        400,
        "invalid_value",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running_server(make_settings(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def keys(server: Running) -> dict[str, str]:
    admin = server.admin.headers["authorization"].removeprefix("Bearer ")
    return {
        "agent": server.mint("agent", NODE),
        "other": server.mint("agent", "other"),
        "reader": server.mint("reader"),
        "admin": admin,
    }


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_input_is_refused_and_counted_and_nothing_applied(
    server: Running, folder: Path, keys: dict[str, str], name: str
) -> None:
    feeder = Feeder(server, keys["agent"], NODE)
    attack = ATTACKS[name](feeder)
    before = (
        _state(folder, server),
        server.figure("gpuwarden_ingest_refused_total", code=attack.code),
    )
    headers = {"Content-Encoding": str(attack.encoding)}
    if attack.content_type:
        headers["Content-Type"] = attack.content_type
    feeder.client.close()
    feeder.client = make_client(server.url, attack.key and keys.get(attack.key, attack.key))
    answer = feeder.post_body(attack.body, **headers)
    feeder.close()
    problem = decode_problem(answer.content)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem is not None
    assert (answer.status_code, problem.status, problem.code) == (
        attack.status,
        attack.status,
        attack.code,
    )
    assert problem.detail
    assert problem.mend
    after = (
        _state(folder, server),
        server.figure("gpuwarden_ingest_refused_total", code=attack.code),
    )
    assert after == (before[0], before[1] + 1)


def test_a_node_that_invents_entities_is_stopped(server: Running, keys: dict[str, str]) -> None:
    feeder = Feeder(server, server.mint("agent", "inventive"), "inventive")
    codes = []
    for start in (0, 2_000, 4_000, 6_000):
        rows = {f"GPU-inv-{n}": [50.0, 300.0, 1.0] for n in range(start, start + 2_000)}
        table, schema = gpu_table(rows)
        batch = feeder.batch(Stream.TELEMETRY, tables=(table,), schemas=(schema,))
        codes.append(feeder.post(batch).status_code)
    feeder.close()
    assert codes == [200, 200, 400, 400]


def test_the_server_is_well_after_all_of_it(server: Running, keys: dict[str, str]) -> None:
    feeder = Feeder(server, keys["agent"], NODE)
    assert feeder.introduce().applied_seq == 1
    feeder.close()
    assert server.admin.get("/readyz").json()["state"] == "ready"


def _refused(server: Running, attack: Attack) -> float:
    return server.figure("gpuwarden_ingest_refused_total", code=attack.code)


def _state(folder: Path, server: Running) -> dict[str, int]:
    tables = ("events", "nodes", "spools", "schemas", "gpus", "applied_sequences", "conflicts")
    connection = sqlite3.connect(folder / "state" / "state.db")
    counts = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
    }
    connection.close()
    assert server.app is not None
    guarded = server.app.state.base.state
    with guarded.lock:
        entities = {str(kind): len(guarded.state.view(kind).refs) for kind in DEVICE_KINDS}
    return counts | entities
