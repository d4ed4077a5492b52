"""The sender against a real HTTP server that answers as it is told."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwarden_agent.spool.spool import Spool
from gpuwarden_agent.transport.key import KeySource
from gpuwarden_agent.transport.rejected import RejectedFolder
from gpuwarden_agent.transport.sender import Sender, SenderSettings
from gpuwarden_agent.transport.tls import TlsSource, TlsUnusable
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import Batch, Stream
from tests.builders.agent import event, node_table, origin
from tests.fakes.ingest_server import FakeIngestServer, Scripted
from tests.fakes.waiting import wait_for

TLS = Path(__file__).parents[1] / "fixtures" / "agent" / "tls"


class Rig:
    """A spool and a sender."""

    def __init__(
        self,
        folder: Path,
        url: str,
        key: KeySource | None = None,
        tls: TlsSource | None = None,
    ) -> None:
        self.spool = Spool(folder / "spool", origin(), 10_000_000)
        self.rejected = folder / "rejected"
        self.closed = False
        self.acknowledged: list[Acknowledgement] = []
        self.sender = Sender(
            self.spool,
            SenderSettings(server_url=url, request_timeout_s=2.0, backoff_max_s=0.1, tls=tls),
            key or KeySource("gw_key", None),
            RejectedFolder(self.rejected, max_files=3),
            self.acknowledged.append,
        )
        self.sender.start()

    def event(self, number: int) -> None:
        self.events(number)

    def events(self, *numbers: int) -> None:
        self.spool.append_events([event(number) for number in numbers])
        self.sender.wake(Stream.EVENTS)

    def load(self, load: float) -> None:
        tables, schemas = node_table(load)
        self.spool.append_telemetry(tables, schemas)
        self.sender.wake(Stream.TELEMETRY)

    def outcome(self, stream: Stream, outcome: str) -> int:
        return self.sender.tally.outcomes().get((stream, outcome), 0)

    def empty(self) -> bool:
        size = self.spool.size()
        return size.events + size.telemetry == 0

    def close(self) -> None:
        self.closed = True
        self.sender.stop(0.2)
        self.spool.close()


Start = Callable[..., Rig]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    rigs: list[Rig] = []

    def make(url: str, key: KeySource | None = None, tls: TlsSource | None = None) -> Rig:
        rigs.append(Rig(tmp_path, url, key, tls))
        return rigs[-1]

    yield make
    for rig in rigs:
        if not rig.closed:
            rig.close()


@pytest.fixture
def server() -> Iterator[FakeIngestServer]:
    with FakeIngestServer() as fake:
        yield fake


def first_event(batch: Batch) -> str:
    return batch.events[0].id if batch.events else ""


KEPT = [
    Scripted(401, {"code": "unauthenticated"}),
    Scripted(403, {"code": "wrong_node"}),
    Scripted(404, {"code": "not_found"}),
    Scripted(408),
    Scripted(409, {"code": "node_claimed", "detail": "spool abc speaks for node-1"}),
    Scripted(429, headers={"Retry-After": "0"}),
    Scripted(500, body=b"<html>oops</html>"),
    Scripted(502, body=b""),
    Scripted(503, {"code": "overloaded"}),
    Scripted(301, headers={"Location": "http://elsewhere/"}),
    Scripted(200, body=b"<html>a captive portal</html>"),
    Scripted(0),
]


@pytest.mark.parametrize(
    "answer", KEPT, ids=lambda one: f"{one.status}{one.problem.get('code', '')}"
)
def test_these_answers_keep_the_batch_and_try_again(
    start: Start, server: FakeIngestServer, answer: Scripted
) -> None:
    server.script.extend([answer, answer])
    rig = start(server.url)
    rig.event(1)
    wait_for(rig.empty)
    assert server.seqs(Stream.EVENTS) == [1, 1, 1]
    assert server.event_ids() == [event(1).id]
    assert not rig.rejected.exists()


def test_an_answer_that_got_lost_leads_to_a_replay_not_a_double(
    start: Start, server: FakeIngestServer
) -> None:
    server.script.append(Scripted(0, apply=True))
    rig = start(server.url)
    rig.event(1)
    wait_for(lambda: rig.acknowledged)  # the spool is trimmed a moment before the listener is told
    assert rig.empty()
    assert server.seqs(Stream.EVENTS) == [1, 1]
    assert rig.acknowledged[-1].replayed
    assert server.duplicates == []


def test_retry_after_is_honoured(start: Start, server: FakeIngestServer) -> None:
    server.script.append(Scripted(429, headers={"Retry-After": "1"}))
    rig = start(server.url)
    rig.event(1)
    wait_for(lambda: len(server.received) == 1)
    rig.event(2)  # an event does not overrule the server's wish
    wait_for(rig.empty)
    assert server.received[1].at - server.received[0].at >= 1.0


REFUSED = [
    Scripted(400, {"code": "wrong_schema", "detail": "column x", "mend": "Report it."}),
    Scripted(409, {"code": "sequence_conflict"}),
    Scripted(415, {"code": "wrong_media_type"}),
    Scripted(422, body=b"no problem details at all"),
]


@pytest.mark.parametrize("answer", REFUSED, ids=lambda one: str(one.status))
def test_these_answers_set_the_batch_aside_and_go_on(
    start: Start, server: FakeIngestServer, answer: Scripted
) -> None:
    server.script.append(answer)
    rig = start(server.url)
    rig.event(1)
    rig.event(2)
    wait_for(rig.empty)
    assert server.event_ids() == [event(2).id]
    assert rig.outcome(Stream.EVENTS, "refused") == 1
    assert len(list(rig.rejected.glob("*.msgpack"))) == 1
    why = json.loads(next(rig.rejected.glob("*.json")).read_text())
    assert (why["seq"], why["http_status"]) == (1, answer.status)
    assert why["code"] == answer.problem.get("code", "")
    assert [shed.first_seq for shed in server.received[-1].batch.shed] == [1]


def test_the_rejected_folder_keeps_the_newest_few(start: Start, server: FakeIngestServer) -> None:
    server.script.extend([Scripted(400)] * 6)
    rig = start(server.url)
    for number in range(6):
        rig.event(number)
    wait_for(rig.empty)
    kept = sorted(int(path.name.split("-")[2]) for path in rig.rejected.glob("*.msgpack"))
    assert kept == [4, 5, 6]
    assert len(list(rig.rejected.iterdir())) == 6


def test_a_batch_too_large_arrives_in_parts(start: Start, server: FakeIngestServer) -> None:
    server.when = lambda batch: Scripted(413) if len(batch.events) > 2 else None
    rig = start(server.url)
    rig.events(*range(8))
    rig.event(8)
    wait_for(rig.empty)
    assert server.event_ids() == [event(number).id for number in range(9)]
    assert sorted(set(server.seqs(Stream.EVENTS))) == [1, 2, 3, 4, 5]


def test_a_single_event_too_large_is_set_aside(start: Start, server: FakeIngestServer) -> None:
    server.script.append(Scripted(413))
    rig = start(server.url)
    rig.event(1)
    rig.event(2)
    wait_for(rig.empty)
    assert server.event_ids() == [event(2).id]
    assert len(list(rig.rejected.glob("*.msgpack"))) == 1


def test_a_leader_that_is_named_gets_the_batch(start: Start, server: FakeIngestServer) -> None:
    with FakeIngestServer() as leader:
        server.script.append(Scripted(503, {"code": "not_leader", "leader": leader.url}))
        rig = start(server.url)
        rig.event(1)
        wait_for(rig.empty)
        rig.event(2)
        wait_for(rig.empty)
        assert leader.event_ids() == [event(1).id, event(2).id]
        assert len(server.received) == 1
        leader_connections = {one.connection for one in leader.received}
        assert len(leader_connections) == 1
    rig.event(3)  # the leader is gone: back to the configured server
    wait_for(rig.empty)
    assert server.event_ids() == [event(3).id]


def test_two_servers_that_name_each_other_do_not_make_it_spin(
    start: Start, server: FakeIngestServer
) -> None:
    with FakeIngestServer() as other:
        server.when = lambda batch: Scripted(503, {"code": "not_leader", "leader": other.url})
        other.when = lambda batch: Scripted(503, {"code": "not_leader", "leader": server.url})
        rig = start(server.url)
        rig.event(1)
        time.sleep(1.0)
        assert 2 < len(server.received) + len(other.received) < 200
        assert not rig.empty()


def test_the_key_is_not_sent_in_the_clear_to_a_leader_over_http(start: Start) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    with FakeIngestServer(tls=context) as server, FakeIngestServer() as plain:
        server.script.append(Scripted(503, {"code": "not_leader", "leader": plain.url}))
        rig = start(server.url, tls=TlsSource(TLS / "ca.pem"))
        rig.event(1)
        wait_for(rig.empty)
        assert plain.received == []
        assert server.event_ids() == [event(1).id]


def test_schemas_are_sent_again_to_another_database(start: Start, server: FakeIngestServer) -> None:
    rig = start(server.url)
    rig.load(1)
    wait_for(rig.empty)
    server.feed_id = "feed-2"
    server.knows_schemas.clear()
    rig.load(2)
    wait_for(rig.empty)
    rig.load(3)
    wait_for(rig.empty)
    sent = [bool(one.batch.schemas) for one in server.received]
    assert sent == [True, False, True, False]
    assert server.seqs(Stream.TELEMETRY) == [1, 2, 2, 3]


def test_events_go_before_telemetry(start: Start, server: FakeIngestServer) -> None:
    server.script.append(Scripted(500, delay_s=0.2))
    rig = start(server.url)
    rig.load(0)
    wait_for(lambda: server.received)
    rig.load(1)
    rig.event(1)
    wait_for(rig.empty)
    assert [one.batch.stream for one in server.received[1:]] == [
        Stream.EVENTS,
        Stream.TELEMETRY,
        Stream.TELEMETRY,
    ]


def test_one_connection_serves_all_batches(start: Start, server: FakeIngestServer) -> None:
    rig = start(server.url)
    for number in range(5):
        rig.event(number)
        wait_for(rig.empty)
    assert {one.connection for one in server.received} == {1}


def test_a_connection_closed_for_idling_costs_no_pause(
    start: Start, server: FakeIngestServer
) -> None:
    rig = start(server.url)
    rig.event(1)
    wait_for(rig.empty)
    server.hang_up()
    time.sleep(0.05)
    rig.event(2)
    wait_for(rig.empty)
    assert server.event_ids() == [event(1).id, event(2).id]
    assert rig.outcome(Stream.EVENTS, "unreachable") == 0


def test_the_first_acceptance_is_logged_once_and_each_recovery(
    start: Start, server: FakeIngestServer, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = start(server.url)
    for number in (1, 2):
        rig.event(number)
        wait_for(lambda: len(rig.acknowledged) >= number)  # noqa: B023 - ends in this turn
    server.script.append(Scripted(503, {"code": "overloaded"}))
    rig.event(3)
    wait_for(lambda: len(rig.acknowledged) >= 3)
    rig.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if "event=server_takes" in line]
    told = [line.partition("event=")[2].partition(" ")[0] for line in lines]
    assert told == ["server_takes_batches", "server_takes_no_batches", "server_takes_batches_again"]
    assert f"url={server.url}" in lines[0]


def test_a_new_key_in_the_file_is_used_at_once(
    start: Start, server: FakeIngestServer, tmp_path: Path
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("gw_old\n")
    server.script.append(Scripted(401, {"code": "unauthenticated"}, headers={"Retry-After": "60"}))
    rig = start(server.url, KeySource("", key_file))
    rig.event(1)
    wait_for(lambda: server.received)
    key_file.write_text("gw_newer\n")
    wait_for(rig.empty)
    keys = [one.headers["Authorization"] for one in server.received]
    assert keys == ["Bearer gw_old", "Bearer gw_newer"]


def test_a_key_file_that_comes_later_is_waited_for(
    start: Start, server: FakeIngestServer, tmp_path: Path
) -> None:
    key_file = tmp_path / "key"
    rig = start(server.url, KeySource("", key_file))
    rig.event(1)
    time.sleep(0.3)
    assert server.received == []
    key_file.write_text("gw_key")
    wait_for(rig.empty)


def test_a_server_that_never_answers_is_given_up_after_the_timeout(
    start: Start, server: FakeIngestServer
) -> None:
    server.script.append(Scripted(500, delay_s=4.0))
    rig = start(server.url)
    rig.event(1)
    wait_for(rig.empty, 4.0)
    assert rig.outcome(Stream.EVENTS, "unreachable") == 1


def test_garbage_instead_of_http_is_no_crash(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        stop = threading.Event()

        def speak() -> None:
            listener.settimeout(0.1)
            while not stop.is_set():
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    continue
                with peer:
                    peer.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        rig = start(f"http://127.0.0.1:{port}")
        rig.event(1)
        wait_for(lambda: rig.outcome(Stream.EVENTS, "unreachable") >= 2)
        stop.set()
        thread.join()
    assert not rig.empty()


def test_own_authority_and_client_certificate(start: Start) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(TLS / "ca.pem"))
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeIngestServer(tls=context) as server:
        tls = TlsSource(TLS / "ca.pem", TLS / "client.pem", TLS / "client.key")
        rig = start(server.url, tls=tls)
        rig.event(1)
        wait_for(rig.empty)
        assert server.event_ids() == [event(1).id]


def test_an_unknown_authority_is_not_trusted(start: Start) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    with FakeIngestServer(tls=context) as server:
        rig = start(server.url, tls=TlsSource())
        rig.event(1)
        wait_for(lambda: "certificate verify failed" in rig.sender.away_because)
        assert server.received == []
        assert not rig.empty()


def serving() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    return context


def test_certificates_that_are_replaced_are_used_at_once(start: Start, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes((TLS / "client.pem").read_bytes())  # signed nothing
    with FakeIngestServer(tls=serving()) as server:
        rig = start(server.url, tls=TlsSource(authority))
        rig.event(1)
        wait_for(lambda: "certificate verify failed" in rig.sender.away_because)
        assert server.received == []
        authority.write_bytes((TLS / "ca.pem").read_bytes())
        wait_for(rig.empty)
        authority.write_text("half of a")
        rig.event(2)
        wait_for(rig.empty)
        server.hang_up()  # a new connection, with the authority that could be read last
        rig.event(3)
        wait_for(rig.empty)
        assert server.event_ids() == [event(number).id for number in (1, 2, 3)]


def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("not PEM")
    with pytest.raises(TlsUnusable, match=r"no\.pem"):
        TlsSource(tmp_path / "no.pem", None, None)
    with pytest.raises(TlsUnusable, match=r"gone\.pem"):
        TlsSource(None, tmp_path / "gone.pem", tmp_path / "gone.key")


def test_a_backlog_goes_out_behind_live_telemetry(start: Start, tmp_path: Path) -> None:
    rig = start("http://127.0.0.1:9")
    for number in range(30):
        rig.load(number)
    rig.close()
    with FakeIngestServer() as server:
        rig = start(server.url)
        wait_for(rig.empty)
        loads = [memoryview(one.batch.tables[0].f32).cast("f")[0] for one in server.received]
        assert loads[0] == 29.0
        assert loads[1:] == [float(number) for number in range(29)]
        assert server.seqs(Stream.TELEMETRY) == list(range(1, 31))
