"""A whole agent against a real HTTP server, over this machine's own procfs and sysfs."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from gpuwarden_agent.agent import Agent
from gpuwarden_agent.spool.entry import SpoolUnusable
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import Backlog, Event, EventKind
from tests.builders.agent import XID_79, agent_settings, running
from tests.fakes.ingest_server import FakeIngestServer, Received, Scripted
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text("")
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text + "\n")


def kinds(server: FakeIngestServer) -> list[EventKind]:
    return [event.kind for event in server.events.values()]


def test_a_started_agent_says_its_boot_its_inventory_and_its_readings(
    tmp_path: Path, log: Path
) -> None:
    with FakeIngestServer() as server, running(agent_settings(tmp_path, server_url=server.url)):
        wait_for(lambda: server.seqs(Stream.TELEMETRY), what="telemetry")
        wait_for(lambda: EventKind.INVENTORY in kinds(server), what="inventory")
    first = server.received[0]
    assert first.path == "/v1/ingest"
    assert first.headers["Authorization"] == "Bearer gw_test"
    assert kinds(server)[0] is EventKind.NODE_BOOT
    inventory = next(e.inventory for e in server.events.values() if e.inventory)
    assert inventory.labels["kernel_release"] == os.uname().release
    telemetry = [one.batch for one in server.received if one.batch.stream is Stream.TELEMETRY]
    assert all(batch.interval_s == 0.2 for batch in telemetry)
    assert {table.entities for batch in telemetry for table in batch.tables} >= {("",)}


def test_schemas_travel_once_until_the_server_asks_again(tmp_path: Path, log: Path) -> None:
    with FakeIngestServer() as server, running(agent_settings(tmp_path, server_url=server.url)):
        wait_for(lambda: len(server.seqs(Stream.TELEMETRY)) > 4)
        batches = [one.batch for one in server.received if one.batch.stream is Stream.TELEMETRY]
        assert batches[0].schemas
        assert not any(batch.schemas for batch in batches[1:])
        server.knows_schemas.clear()
        count = len(server.received)
        wait_for(lambda: any(one.batch.schemas for one in server.received[count:]))
        taken = server.received[count:]
        refused = next(n for n, one in enumerate(taken) if one.batch.schemas) - 1
        assert taken[refused].batch.seq == taken[refused + 1].batch.seq


def _arrival(server: FakeIngestServer, pci_bus_id: str) -> float:
    def look() -> Received | None:
        for one in server.received:
            if any(event.pci_bus_id == pci_bus_id for event in one.batch.events):
                return one
        return None

    return wait_for(look, what=pci_bus_id).at


@pytest.mark.serial
def test_an_appended_xid_leaves_within_tens_of_milliseconds(tmp_path: Path, log: Path) -> None:
    delays = []
    with (
        FakeIngestServer() as server,
        running(agent_settings(tmp_path, server_url=server.url, interval_s=1)),
    ):
        wait_for(lambda: server.seqs(Stream.TELEMETRY))
        for number in range(10):
            began = time.time()
            append(log, XID_79.replace("3b", f"{number:02x}"))
            delays.append(_arrival(server, f"0000:{number:02x}:00.0") - began)
    assert statistics.median(delays) < 0.15, delays


def test_what_was_written_while_the_server_was_away_arrives_once(tmp_path: Path, log: Path) -> None:
    port = free_port()
    server = FakeIngestServer(port)
    with running(agent_settings(tmp_path, server_url=server.url)) as agent:
        wait_for(lambda: server.seqs(Stream.TELEMETRY))
        server.close()
        for number in range(5):
            append(log, XID_79.replace("3b", f"1{number}"))
            time.sleep(0.05)
        wait_for(lambda: agent.spool.size().events >= 5)
        with FakeIngestServer(port) as back:
            wait_for(lambda: len([e for e in back.events.values() if e.xid == 79]) == 5)
            wait_for(lambda: agent.spool.size().events == 0)
            assert back.duplicates == []
            firsts = [one.batch for one in back.received if one.batch.events]
            assert firsts[0].more_events
            assert not firsts[-1].more_events


def test_telemetry_that_a_restarted_server_forgot_is_fed_again(tmp_path: Path, log: Path) -> None:
    with (
        FakeIngestServer() as server,
        running(agent_settings(tmp_path, server_url=server.url)) as a,
    ):
        server.telemetry_durable_lag = None
        wait_for(lambda: len(server.seqs(Stream.TELEMETRY)) >= 6)
        server.forget_after(a.spool.spool_id, Stream.TELEMETRY, 2)
        before = len(server.received)
        server.hang_up()
        wait_for(lambda: len(server.received) > before + 8)
        applied = server.applied[a.spool.spool_id, Stream.TELEMETRY]
        wait_for(lambda: sorted(applied) == list(range(1, max(applied) + 1)), what="no gap is left")


def test_a_reconnect_to_a_server_that_forgot_nothing_resends_one_batch(
    tmp_path: Path, log: Path
) -> None:
    with FakeIngestServer() as server, running(agent_settings(tmp_path, server_url=server.url)):
        server.telemetry_durable_lag = None
        wait_for(lambda: len(server.seqs(Stream.TELEMETRY)) >= 6)
        server.hang_up()
        count = len(server.seqs(Stream.TELEMETRY))
        wait_for(lambda: len(server.seqs(Stream.TELEMETRY)) >= count + 3)
        seqs = server.seqs(Stream.TELEMETRY)
        assert len(seqs) - len(set(seqs)) <= 2, seqs


def test_the_verdict_file_follows_the_server_and_outlives_it(tmp_path: Path, log: Path) -> None:
    verdict = NodeVerdict(
        node_id="node-1",
        node=EntityVerdict(entity_kind="node", entity="node-1", usable=Usable.NO, why="XID 79"),
        gpus=(),
        feed_id="feed-1",
        epoch=7,
        issued_at=1000.0,
    )
    settings = agent_settings(tmp_path, server_url="http://127.0.0.1:9")
    with FakeIngestServer() as server:
        server.verdict = verdict
        with running(agent_settings(tmp_path, server_url=server.url)):
            wait_for(settings.verdict_file.exists)
    written = json.loads(settings.verdict_file.read_text())
    assert written["node"]["usable"] == "no"
    assert written["epoch"] == 7
    assert time.time() - written["written_at"] < 60
    assert stat.S_IMODE(settings.verdict_file.stat().st_mode) == 0o644
    assert list(settings.verdict_file.parent.iterdir()) == [settings.verdict_file]


def test_own_metrics_show_readings_events_and_deliveries(tmp_path: Path, log: Path) -> None:
    with FakeIngestServer() as server:
        settings = agent_settings(tmp_path, server_url=server.url, metrics_port=free_port())
        with running(settings) as agent:
            append(log, XID_79)
            wait_for(lambda: server.seqs(Stream.TELEMETRY) and 79 in _xids(server))
            url = f"http://127.0.0.1:{agent.metrics_port}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
    assert 'gpuwarden_node_load1{node="node-1"}' in text
    assert 'gpuwarden_agent_collector_success{collector="host"} 1.0' in text
    assert 'xid="79"} 1.0' in text.replace('source="kernel_log",', "")
    assert "gpuwarden_xid_last_timestamp_seconds" in text
    assert 'gpuwarden_agent_batches_total{outcome="accepted",stream="events"}' in text
    assert "gpuwarden_agent_trouble{" not in text


def test_refused_batches_are_told_on_the_node_and_to_the_server(tmp_path: Path, log: Path) -> None:
    with FakeIngestServer() as server:
        settings = agent_settings(tmp_path, server_url=server.url, metrics_port=free_port())
        refusals = [Scripted(409, {"code": "sequence_conflict"})] * 2
        # Telemetry only: the event that tells of it has to come through.
        server.when = lambda one: (
            refusals.pop() if refusals and one.seq > 1 and one.stream is Stream.TELEMETRY else None
        )
        with running(settings) as agent:
            wait_for(lambda: server.seqs(Stream.TELEMETRY))
            trouble = wait_for(lambda: _trouble_of(server, "delivery"), what="trouble")
            url = f"http://127.0.0.1:{agent.metrics_port}/metrics"
            counted = 'gpuwarden_agent_refused_batches_total{code="sequence_conflict"} 2.0'
            wait_for(lambda: counted in _text_of(url), what=counted)
            assert 'gpuwarden_agent_trouble{reason="batches refused: sequence_conflict"' in (
                _text_of(url)
            )
    assert "Another machine sends with a copy of this spool" in trouble.text


def _trouble_of(server: FakeIngestServer, source: str) -> Event | None:
    told = [e for e in list(server.events.values()) if e.kind is EventKind.COLLECTOR_TROUBLE]
    return next((event for event in told if event.attributes["source"] == source), None)


def _text_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def test_trouble_that_ended_while_no_agent_ran_is_taken_back(tmp_path: Path) -> None:
    with FakeIngestServer() as server:
        with running(agent_settings(tmp_path, server_url=server.url)):
            wait_for(lambda: EventKind.COLLECTOR_TROUBLE in kinds(server))
        (tmp_path / "kern.log").write_text("")
        with running(agent_settings(tmp_path, server_url=server.url)):
            wait_for(lambda: EventKind.COLLECTOR_RECOVERED in kinds(server))


def _xids(server: FakeIngestServer) -> set[int | None]:
    return {event.xid for event in server.events.values()}


def test_a_missing_log_is_trouble_once_and_recovery_once_while_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    with FakeIngestServer() as server, running(agent_settings(tmp_path, server_url=server.url)):
        wait_for(lambda: EventKind.COLLECTOR_TROUBLE in kinds(server))
        wait_for(lambda: len(server.seqs(Stream.TELEMETRY)) > 3)
        (tmp_path / "kern.log").write_text("")
        wait_for(lambda: EventKind.COLLECTOR_RECOVERED in kinds(server), 15)
        append(tmp_path / "kern.log", XID_79)
        wait_for(lambda: 79 in _xids(server))
    trouble = [e for e in server.events.values() if e.kind is EventKind.COLLECTOR_TROUBLE]
    assert [e.attributes["source"] for e in trouble] == ["kernel_log"]
    assert trouble[0].attributes["reason"] == "no_such_file"
    assert kinds(server).count(EventKind.COLLECTOR_RECOVERED) == 1


def test_two_agents_do_not_share_a_spool(tmp_path: Path, log: Path) -> None:
    with (
        running(agent_settings(tmp_path)),
        pytest.raises(SpoolUnusable, match="another running agent"),
    ):
        Agent(agent_settings(tmp_path))


def _more_batches(server: FakeIngestServer) -> None:
    before = len(server.received)
    wait_for(lambda: len(server.received) > before, 20)


def _has_looked(folder: Path) -> bool:
    """Whether the spool holds how far the kernel log was read."""
    spool = sqlite3.connect(f"file:{folder / 'spool' / 'spool.db'}?mode=ro", uri=True)
    try:
        return (
            spool.execute("SELECT 1 FROM positions WHERE name = 'kernel_log'").fetchone()
            is not None
        )
    finally:
        spool.close()


def _line_about(number: int) -> str:
    """A fault of a GPU of its own."""
    return XID_79.replace("3b:00", f"{number % 256:02x}:{number // 256:02x}")


def _count_79(server: FakeIngestServer) -> int:
    return sum(event.xid == 79 for event in server.events.values())


@pytest.mark.serial
def test_killed_and_restarted_it_loses_and_doubles_nothing(tmp_path: Path, log: Path) -> None:
    with FakeIngestServer() as server:
        flags = _command_line(tmp_path, server.url)
        written = 0
        for _ in range(3):
            process = subprocess.Popen(flags, stderr=subprocess.DEVNULL)
            _more_batches(server)
            # What stands in the log before the very first look is flagged as such, rightly.
            wait_for(lambda: _has_looked(tmp_path), what="the first look at the kernel log")
            for _ in range(40):
                append(log, _line_about(written))
                written += 1
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            append(log, _line_about(written))
            written += 1
        process = subprocess.Popen(flags, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: _count_79(server) >= written, 20)
        finally:
            process.terminate()
            assert process.wait(10) == 0
        found = list(server.events.values())
        addresses = [e.pci_bus_id for e in found if e.xid == 79]
        assert len(addresses) == len(set(addresses)) == written
        assert server.duplicates == []
        boots = [e for e in found if e.kind is EventKind.NODE_BOOT]
        assert len(boots) == 1
        assert {e.backlog for e in found} == {Backlog.NONE}  # also what came while no agent ran


def _command_line(folder: Path, url: str, *more: str) -> list[str]:
    settings = agent_settings(folder, server_url=url)
    flags = [
        f"--{name.replace('_', '-')}={getattr(settings, name)}"
        for name in ("server_url", "key", "node_id", "kmsg_path", "spool_folder", "verdict_file")
    ]
    command = [sys.executable, "-m", "gpuwarden_agent.cli", "run", "--nvml=off"]
    return [*command, "--interval-s=0.5", *flags, *more]


@pytest.mark.serial
def test_sigterm_ends_it_within_seconds_even_when_the_server_hangs(
    tmp_path: Path, log: Path
) -> None:
    with FakeIngestServer() as server:
        server.script.extend([Scripted(status=500, delay_s=60)] * 5)
        process = subprocess.Popen(_command_line(tmp_path, server.url), stderr=subprocess.PIPE)
        wait_for(lambda: server.received)
        began = time.monotonic()
        process.terminate()
        _, log_lines = process.communicate(timeout=60)
        assert process.returncode == 0
        assert time.monotonic() - began < 30
        assert b"agent_ends" in log_lines
