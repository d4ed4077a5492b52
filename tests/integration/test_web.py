"""What every route gets without asking: entity tags, compression, idempotency keys, problems."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import zstandard
from prometheus_client import CollectorRegistry
from sqlalchemy import insert

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.store.tables_web import idempotency_keys
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_server.web.domain import KeptAnswer, KeptRequest
from gpuwarden_server.web.idempotency import KEPT_S, MOST_KEPT, SECRET_KEPT_S, IdempotencyBook
from gpuwarden_wire.codec import decode_problem
from tests.builders.server import Feeder, Running, make_gpu, make_settings, running_server
from tests.fakes.clock import MovedClock


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(make_settings(tmp_path_factory.mktemp("web"))) as running:
        for number in range(4):
            name = f"gpu-{number}"
            node = Feeder(running, running.mint("agent", name), name)
            node.introduce([make_gpu(one, name) for one in range(8)])
            node.close()
        yield running


def make_key(server: Running, chosen: str, name: str = "one") -> httpx.Response:
    return server.admin.post(
        "/v1/keys", json={"role": "reader", "name": name}, headers={"Idempotency-Key": chosen}
    )


def code_of(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = decode_problem(answer.content)
    assert problem is not None
    assert problem.status == answer.status_code
    return problem.code


def test_a_repeat_gets_the_same_answer_and_does_nothing(server: Running) -> None:
    first, second = make_key(server, "twice"), make_key(server, "twice")
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == first.json(), "the key that it shows included"
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["cache-control"] == "no-store"
    made = [key for key in server.admin.get("/v1/keys").json()["items"] if key["name"] == "one"]
    assert len(made) == 1


def test_another_request_under_the_same_key_is_refused(server: Running) -> None:
    make_key(server, "reused", "a")
    answer = make_key(server, "reused", "b")
    assert (answer.status_code, code_of(answer)) == (409, "idempotency_key_reused")


def test_two_callers_may_choose_the_same_key(server: Running) -> None:
    other = str(server.admin.post("/v1/keys", json={"role": "admin"}).json()["key"])
    with server.client(other) as client:
        headers = {"Idempotency-Key": "shared"}
        theirs = client.post("/v1/keys", json={"role": "reader", "name": "x"}, headers=headers)
    assert theirs.json()["id"] != make_key(server, "shared").json()["id"]


def test_a_refusal_that_was_judged_is_repeated_and_one_for_want_of_a_key_is_not(
    server: Running,
) -> None:
    headers = {"Idempotency-Key": "judged"}
    path = "/v1/decisions/dec-none/revoke"
    first = server.admin.post(path, json={"reason": "x"}, headers=headers)
    again = server.admin.post(path, json={"reason": "x"}, headers=headers)
    assert (first.status_code, again.status_code) == (404, 404)
    assert again.headers["idempotency-replayed"] == "true"
    with server.client(server.mint("reader")) as reader:
        for _ in range(2):
            refused = reader.post(path, json={"reason": "x"}, headers=headers)
            assert (refused.status_code, code_of(refused)) == (403, "role_not_allowed")
            assert "idempotency-replayed" not in refused.headers
    with server.client(None) as nobody:
        assert nobody.post(path, json={"reason": "x"}, headers=headers).status_code == 401


@pytest.mark.parametrize("chosen", ["with blank", "x" * 256, ""])
def test_a_key_that_cannot_be_one_is_named(server: Running, chosen: str) -> None:
    answer = make_key(server, chosen)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_value")


def test_many_at_once_under_one_key_act_once(server: Running) -> None:
    barrier = threading.Barrier(6)

    def ask() -> httpx.Response:
        with server.client(None) as client:
            client.headers["Authorization"] = server.admin.headers["authorization"]
            barrier.wait(10.0)
            return client.post(
                "/v1/keys",
                json={"role": "reader", "name": "race"},
                headers={"Idempotency-Key": "race"},
            )

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: ask(), range(6)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert {code_of(one) for one in answers if one.status_code == 409} <= {"idempotency_in_flight"}
    made = [key for key in server.admin.get("/v1/keys").json()["items"] if key["name"] == "race"]
    assert len(made) == 1


def test_after_a_restart_the_answer_is_kept_and_the_secret_is_not(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with running_server(settings) as server:
        made = make_key(server, "secret").json()
        revoked = server.admin.delete(f"/v1/keys/{made['id']}", headers={"Idempotency-Key": "end"})
        assert revoked.status_code == 200
        made = make_key(server, "secret-2").json()
    stored = b"".join(file.read_bytes() for file in settings.state_folder.glob("state.db*"))
    assert made["id"].encode() in stored
    assert made["key"].encode() not in stored
    with running_server(settings) as server:
        again = server.admin.delete(
            f"/v1/keys/{revoked.json()['id']}", headers={"Idempotency-Key": "end"}
        )
        assert (again.status_code, again.json()) == (200, revoked.json())
        answer = make_key(server, "secret-2")
        assert (answer.status_code, code_of(answer)) == (409, "idempotency_answer_gone")


class Story:
    """A book over a real database on a clock of its own."""

    def __init__(self, folder: Path) -> None:
        prepare_store(folder)
        self.store = connect_store(folder)
        self.store.start()
        self.clock = MovedClock()
        self.book = self.open()

    def open(self) -> IdempotencyBook:
        return IdempotencyBook(self.store.state, self.clock, CollectorRegistry())


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    made = Story(tmp_path)
    yield made
    made.store.close()


REQUEST = KeptRequest("key-1", "chosen", "f" * 64)
ANSWER = KeptAnswer(200, {"content-type": "application/json"}, b"{}")
SHOWN_ONCE = KeptAnswer(201, {"cache-control": "no-store"}, b"gw_secret")


async def refusal(book: IdempotencyBook, request: KeptRequest) -> str:
    with pytest.raises(ProblemError) as refused:
        await book.begin(request)
    return refused.value.code


def test_what_a_crash_left_without_an_answer_is_never_run_again(story: Story) -> None:
    async def tell() -> None:
        assert await story.book.begin(REQUEST) is None
        assert await refusal(story.book, REQUEST) == "idempotency_in_flight"
        restarted = story.open()
        assert await refusal(restarted, REQUEST) == "idempotency_outcome_unknown"
        assert await refusal(restarted, REQUEST) == "idempotency_outcome_unknown"

    asyncio.run(tell())


def test_a_refusal_before_anything_ran_leaves_the_key_free(story: Story) -> None:
    async def tell() -> None:
        assert await story.book.begin(REQUEST) is None
        await story.book.release(REQUEST)
        assert await story.book.begin(REQUEST) is None
        await story.book.finish(REQUEST, ANSWER)
        assert await story.book.begin(REQUEST) == ANSWER

    asyncio.run(tell())


def test_a_key_is_forgotten_after_a_day_and_a_secret_after_an_hour(story: Story) -> None:
    async def tell() -> None:
        secret = KeptRequest("key-1", "secret", "f" * 64)
        for request, answer in ((REQUEST, ANSWER), (secret, SHOWN_ONCE)):
            assert await story.book.begin(request) is None
            await story.book.finish(request, answer)
        assert await story.book.begin(secret) == SHOWN_ONCE
        story.clock.ahead += SECRET_KEPT_S
        assert await story.book.expire() == 0
        assert await refusal(story.book, secret) == "idempotency_answer_gone"
        assert await story.book.begin(REQUEST) == ANSWER
        story.clock.ahead += KEPT_S - SECRET_KEPT_S
        assert await story.book.begin(KeptRequest("key-1", "chosen", "0" * 64)) is None
        await story.book.finish(REQUEST, ANSWER)
        assert await story.book.expire() == 1, "the secret's row"

    asyncio.run(tell())


def test_a_caller_cannot_fill_the_database(story: Story) -> None:
    now = story.clock.now()
    row = {"key_id": "key-1", "fingerprint": "", "run_id": "", "begun_at": now, "headers": {}}
    rows = [row | {"idempotency_key": str(n)} for n in range(MOST_KEPT)]
    story.store.state.writer.call(lambda c: c.execute(insert(idempotency_keys), rows))
    assert asyncio.run(refusal(story.book, REQUEST)) == "too_many_idempotency_keys"


@pytest.mark.parametrize(
    "path", ["/v1/nodes", "/v1/gpus", "/v1/policy", "/v1/exclusions", "/v1/incidents", "/v1/keys"]
)
def test_a_poller_is_told_that_nothing_changed(server: Running, path: str) -> None:
    first = server.admin.get(path)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    again = server.admin.get(path, headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert server.admin.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_change_has_another_tag(server: Running) -> None:
    before = server.admin.get("/v1/keys").headers["etag"]
    server.mint("reader")
    after = server.admin.get("/v1/keys", headers={"If-None-Match": before})
    assert after.status_code == 200
    assert after.headers["etag"] != before


def undone(body: bytes, coding: str | None) -> bytes:
    match coding:
        case "gzip":
            return gzip.decompress(body)
        case "zstd":
            return zstandard.decompress(body)
        case _:
            return body


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("zstd, gzip", "zstd"),
        ("zstd;q=0.1, gzip;q=0.9", "gzip"),
        ("*", "zstd"),
        ("gzip;q=0, zstd;q=nonsense", None),
        ("br, identity", None),
    ],
)
def test_a_large_answer_travels_compressed_where_the_caller_takes_it(
    server: Running, accepted: str, coding: str | None
) -> None:
    plain = server.admin.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    with server.admin.stream(
        "GET", "/openapi.json", headers={"Accept-Encoding": accepted}
    ) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding") == coding
    assert int(answer.headers["content-length"]) == len(raw)
    assert answer.headers["vary"] == "Accept-Encoding"
    assert undone(raw, coding) == plain.content
    assert answer.headers["etag"] == plain.headers["etag"]


def test_head_says_what_get_would(server: Running) -> None:
    got, head = server.admin.get("/v1/policy"), server.admin.head("/v1/policy")
    assert head.content == b""
    assert head.headers["etag"] == got.headers["etag"]


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "code", "word"),
    [
        ("GET", "/v1/nothing", "", "", 404, "not_found"),
        ("GET", "/nothing", "", "", 404, "not_found"),
        ("PUT", "/v1/nodes", "", "", 405, "method_not_allowed"),
        ("DELETE", "/v1/ingest", "", "", 405, "method_not_allowed"),
        ("PATCH", "/v1/exclusions/stream", "", "", 405, "method_not_allowed"),
        ("POST", "/v1/keys", "role=admin", "text/plain", 415, "wrong_media_type"),
        ("POST", "/v1/keys", "a=b", "application/x-www-form-urlencoded", 415, "wrong_media_type"),
        ("POST", "/v1/keys", "{", "application/json", 422, "invalid_value"),
        ("POST", "/v1/keys", '{"role": "king"}', "application/json", 422, "invalid_value"),
        ("POST", "/v1/keys", '{"\\ud800": 1}', "application/json", 422, "invalid_value"),
        (
            "POST",
            "/v1/keys",
            '{"role": "reader", "name": "\\ud800"}',
            "application/json",
            422,
            "invalid_value",
        ),
        ("GET", "/v1/nodes?limit=0", "", "", 422, "invalid_value"),
        ("GET", "/v1/nodes?cursor=%00", "", "", 422, "invalid_value"),
    ],
)
def test_every_refusal_is_a_problem(
    server: Running, method: str, path: str, body: str, content_type: str, code: int, word: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    answer = server.admin.request(method, path, content=body.encode(), headers=headers)
    assert (answer.status_code, code_of(answer)) == (code, word)
    assert ("allow" in answer.headers) == (code == 405)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/verdicts", "GET, HEAD, POST"),
        ("/v1/keys/key-x", "DELETE"),
        ("/v1/ingest", "POST"),
        ("/", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_all_right_ones(server: Running, path: str, allowed: str) -> None:
    answer = server.admin.options(path, headers={"Idempotency-Key": "whatever"})
    assert (answer.status_code, code_of(answer)) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


def test_what_is_no_http_is_refused_with_a_problem_too(server: Running) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=10.0) as connection:
        connection.sendall(b"GET /v1/nodes HTTP/1.1\r\nno header\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    problem = decode_problem(body)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert problem is not None
    assert (problem.status, problem.code) == (400, "not_http")
