"""`gpuwarden-agent doctor` over the NVML stub, real servers, and folders in every condition."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwarden_agent.cli import main
from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.doctor.collectors import look_at_collectors
from gpuwarden_agent.doctor.finding import Finding, Level, exit_code
from gpuwarden_agent.doctor.folders import look_at_agent, look_at_folders
from gpuwarden_agent.doctor.node import look_at_node
from gpuwarden_agent.doctor.report import as_table, examine
from gpuwarden_agent.doctor.server import look_at_server
from gpuwarden_agent.logs import configure_logs
from gpuwarden_agent.maintenance import AgentNote
from gpuwarden_wire.batches import Stream
from tests.builders import nvml
from tests.builders.agent import agent_settings, running
from tests.builders.feed import get, quick_settings
from tests.builders.nvml import ScenarioFile, child_pids, pci_bus, stub_environment
from tests.builders.plug_ins import definitions_file, program
from tests.builders.server import Running, running_server
from tests.fakes.ingest_server import FakeIngestServer
from tests.fakes.loopback import LoopbackHandler, serving_on_loopback
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_for

TLS = Path(__file__).parents[1] / "fixtures" / "agent" / "tls"
NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("server"))) as found:
        yield found


@pytest.fixture
def key_file(tmp_path: Path, server: Running) -> Path:
    path = tmp_path / "key"
    path.write_text(server.mint("agent", "node-1") + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def logs() -> Iterator[None]:
    """The command turns logs down; those of the tests behind it stay as they were."""
    yield
    configure_logs("info")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScenarioFile:
    found = ScenarioFile(tmp_path / "scenario", nvml.h100_node(2))
    for name, value in stub_environment(found.path).items():
        monkeypatch.setenv(name, value)
    pci_bus(tmp_path / "sys", [gpu.pci for gpu in found.node.gpus])
    (tmp_path / "sys" / "class" / "net").mkdir(parents=True)
    (tmp_path / "kern.log").touch()
    return found


def settings_of(folder: Path, url: str, **more: object) -> AgentSettings:
    return agent_settings(folder, server_url=url, **({"key": ""} | more))


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_a_sound_node_with_an_agent_at_work_is_fine_and_left_alone(
    tmp_path: Path, gpus: ScenarioFile, server: Running, key_file: Path
) -> None:
    settings = settings_of(
        tmp_path,
        server.url,
        key_file=key_file,
        nvml="on",
        sys_root=tmp_path / "sys",
        spool_cap_bytes=65_536,
    )
    with running(settings) as agent:
        wait_for(lambda: get(server, "/v1/gpus")["items"])
        (child,) = child_pids()
        events = len(get(server, "/v1/events", limit=1000)["items"])
        before = agent.spool.spool_id
        findings = examine(settings)
        found = by_name(findings)
        assert exit_code(findings) == 0, as_table(findings)
        assert found["running agent"].says == f"process {os.getpid()}"
        assert found["spool"].says.endswith(f"in use by process {os.getpid()}")
        assert found["nvml"].level is Level.FINE
        assert "2 answer, 2 on the bus, 2 expected; driver 580.95.05" in found["GPUs"].says
        assert found["kernel_log"].level is Level.FINE
        assert "HTTP 200" in found["reachability"].says
        assert found["clock"].level is Level.FINE
        assert found["key"].level is Level.FINE
        assert [pid for pid in child_pids() if pid == child] == [child]
        assert (agent.spool.spool_id, agent.spool.trouble) == (before, None)
        assert len(get(server, "/v1/events", limit=1000)["items"]) == events
        assert agent.board.troubles() == {}


def test_a_driver_that_hangs_in_the_running_agent_is_not_asked_again(
    tmp_path: Path, gpus: ScenarioFile
) -> None:
    settings = agent_settings(tmp_path, nvml="on", sys_root=tmp_path / "sys")
    note = AgentNote(pid=1, started_ticks=0, driver="nvmlDeviceGetPowerUsage hangs")
    findings = list(look_at_collectors(settings, note))
    assert child_pids() == []
    (kept,) = [one for one in findings if one.name == "nvml"]
    assert (kept.level, kept.says) == (
        Level.WARNING, "not looked at: the running agent says nvmlDeviceGetPowerUsage hangs",
    )  # fmt: skip
    assert {"host", "kernel_log"} <= set(by_name(findings))


def test_missing_gpus_and_a_missing_log_are_said_with_the_mend(
    tmp_path: Path, gpus: ScenarioFile
) -> None:
    gpus.change(lambda node: node.gpu(1).remove())
    (tmp_path / "kern.log").unlink()
    settings = settings_of(tmp_path, "", nvml="on", sys_root=tmp_path / "sys")
    findings = examine(settings)
    found = by_name(findings)
    assert "1 answer, 2 on the bus" in found["GPUs"].says
    assert found["GPUs"].level is Level.WARNING
    assert (found["kernel_log"].level, found["kernel_log"].says) == (Level.VITAL, "no_such_file")
    assert "kernel log" in found["kernel_log"].mend
    assert found["address"].level is Level.VITAL
    assert "--env-file" in found["address"].mend
    assert exit_code(findings) == 2


# the server


def asked(settings: AgentSettings) -> dict[str, Finding]:
    return by_name(list(look_at_server(settings)))


def test_keys_are_told_apart(tmp_path: Path, server: Running, key_file: Path) -> None:
    good = asked(settings_of(tmp_path, server.url, key_file=key_file))
    assert {one.level for one in good.values()} == {Level.FINE}
    key_file.chmod(0o644)
    open_key = asked(settings_of(tmp_path, server.url, key_file=key_file))
    assert open_key["key"].level is Level.WARNING
    assert "chmod" in open_key["key"].mend
    unknown = asked(settings_of(tmp_path, server.url, key="gw_" + "x" * 43))["reachability"]
    assert (unknown.level, "401" in unknown.says) == (Level.VITAL, True)
    other = server.mint("agent", "node-2")
    wrong = asked(settings_of(tmp_path, server.url, key=other))["reachability"]
    assert (wrong.level, "403" in wrong.says) == (Level.VITAL, True)
    assert "--node node-1" in wrong.mend
    missing = asked(settings_of(tmp_path, server.url, key_file=tmp_path / "gone"))
    assert missing["key"].level is Level.VITAL
    assert "gpuwarden keys create" in missing["key"].mend
    assert "401" in missing["reachability"].says


@contextmanager
def web_server(status: int, body: bytes, date: str | None = None) -> Iterator[str]:
    """A web server of somebody else's."""

    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            self.send_response_only(status)
            if date is not None:
                self.send_header("Date", date)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving_on_loopback(Handler) as found:
        yield found.url


@pytest.mark.parametrize(
    ("status", "body", "level", "mend"),
    [
        (200, b"<html>", Level.VITAL, "Something else"),
        (404, b"", Level.VITAL, "No gpuwarden"),
        (302, b"", Level.VITAL, "No gpuwarden"),
        (500, b"", Level.WARNING, "trouble of its own"),
        (429, b"", Level.WARNING, "trouble of its own"),
    ],
)
def test_other_answers_are_told_apart(
    tmp_path: Path, status: int, body: bytes, level: Level, mend: str
) -> None:
    with web_server(status, body) as url:
        found = asked(settings_of(tmp_path, url, key="gw_x"))
    assert found["reachability"].level is level
    assert f"HTTP {status}" in found["reachability"].says
    assert mend in found["reachability"].mend
    assert found["clock"].level is Level.ABSENT


@pytest.mark.parametrize(
    ("date", "level", "says"),
    [
        ("Mon, 03 Feb 2020 10:00:00 GMT", Level.WARNING, "ahead of"),
        ("Mon, 03 Feb 2120 10:00:00 GMT", Level.WARNING, "behind"),
        ("yesterday", Level.ABSENT, "no date"),
    ],
)
def test_the_clock_is_held_against_the_servers(
    tmp_path: Path, date: str, level: Level, says: str
) -> None:
    with web_server(200, b'{"feed_id": "f", "epoch": 1}', date) as url:
        found = asked(settings_of(tmp_path, url, key="gw_x"))
    assert found["reachability"].level is Level.FINE
    assert found["clock"].level is level
    assert says in found["clock"].says


def test_what_stands_in_the_way_is_named(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    refused = asked(settings_of(tmp_path, url, key="gw_x"))["reachability"]
    assert "Nothing listens" in refused.mend
    nowhere = asked(settings_of(tmp_path, "http://no-such-host.invalid:1", key="gw_x"))
    assert "DNS" in nowhere["reachability"].mend
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        quiet = asked(settings_of(tmp_path, url, key="gw_x", request_timeout_s=0.2))
    assert "No answer in time" in quiet["reachability"].mend


def test_certificates_are_told_apart(tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(TLS / "ca.pem"))
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeIngestServer(tls=context) as fake:
        untrusted = asked(settings_of(tmp_path, fake.url, key="gw_x"))["reachability"]
        assert "GPUWARDEN_AGENT_CA_FILE" in untrusted.mend
        ca = {"key": "gw_x", "ca_file": TLS / "ca.pem"}
        unnamed = asked(settings_of(tmp_path, fake.url, **ca))["reachability"]
        assert unnamed.level is Level.VITAL
        assert "CLIENT_CERT_FILE" in unnamed.mend
        own = {"client_cert_file": TLS / "client.pem", "client_key_file": TLS / "client.key"}
        through = asked(settings_of(tmp_path, fake.url, **ca, **own))["reachability"]
        assert "HTTP 501" in through.says  # the fake takes batches only
        assert fake.seqs(Stream.TELEMETRY) == fake.seqs(Stream.EVENTS) == []
    with FakeIngestServer() as plain:
        spoken = asked(settings_of(tmp_path, plain.url.replace("http:", "https:"), key="gw_x"))
        assert "does not speak TLS" in spoken["reachability"].mend
    gone = asked(settings_of(tmp_path, fake.url, key="gw_x", ca_file=tmp_path / "gone.pem"))
    assert "gone.pem" in gone["TLS"].says


# node and folders


def test_a_nodes_hardware_is_counted(tmp_path: Path) -> None:
    found = by_name(
        list(
            look_at_node(settings_of(tmp_path, "", proc_root=NODE / "proc", sys_root=NODE / "sys"))
        )
    )
    assert found["procfs"].level is Level.FINE
    assert found["InfiniBand"].says.startswith("3: mlx5_0, mlx5_1, mlx5_2")
    gone = by_name(
        list(look_at_node(settings_of(tmp_path, "", proc_root=tmp_path, sys_root=tmp_path)))
    )
    assert (gone["procfs"].level, gone["sysfs"].level) == (Level.VITAL, Level.VITAL)
    assert "GPUWARDEN_AGENT_SYS_ROOT" in gone["sysfs"].mend
    assert gone["InfiniBand"].level is Level.ABSENT


def proc_with_mounts(folder: Path, *lines: str) -> Path:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "self" / "mounts").write_text("\n".join(lines) + "\n")
    (folder / "proc" / "self" / "mountstats").write_text("")
    return folder / "proc"


def test_a_spool_on_a_network_file_system_is_told_without_asking_its_server(tmp_path: Path) -> None:
    root = proc_with_mounts(tmp_path, f"10.0.0.1:/srv {tmp_path} nfs4 rw 0 0")
    settings = settings_of(tmp_path, "", proc_root=root)
    found = by_name(list(look_at_folders(settings)))
    assert "nfs4" in found["spool space"].says
    assert found["spool space"].level is Level.WARNING
    mounts = by_name(list(look_at_node(settings)))["NFS mounts"]
    assert mounts.says == f"1: {tmp_path}"


def test_folders_in_every_condition(tmp_path: Path) -> None:
    fresh = by_name(list(look_at_folders(settings_of(tmp_path, ""))))
    assert "will be made" in fresh["spool folder"].says
    assert fresh["spool"].level is Level.ABSENT
    assert not (tmp_path / "spool").exists()
    full = by_name(list(look_at_folders(settings_of(tmp_path, "", spool_cap_bytes=2**60))))
    assert full["spool space"].level is Level.WARNING
    assert "SPOOL_CAP_BYTES" in full["spool space"].mend
    (tmp_path / "spool").write_text("a file")
    blocked = by_name(list(look_at_folders(settings_of(tmp_path, ""))))
    assert blocked["spool folder"].level is Level.VITAL
    (tmp_path / "spool").unlink()
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(0o777)
    shared = by_name(list(look_at_folders(settings_of(tmp_path, ""))))
    assert shared["spool folder"].level is Level.WARNING


def test_a_running_agents_own_words_are_passed_on() -> None:
    note = AgentNote(
        pid=7, started_ticks=1, held=("nvml: a call is in flight",), troubles=(("nic", "io_error"),)
    )
    found = by_name(list(look_at_agent(note)))
    assert found["maintenance"].level is Level.WARNING
    assert found["trouble nic"].says == "io_error"


def test_plug_in_checks_are_looked_at_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    sound = program(tmp_path / "sound", f"touch {mark}", shell=True)
    plain = tmp_path / "plain"
    plain.write_text("")
    plain.chmod(0o644)
    checks = definitions_file(
        tmp_path / "checks.json",
        {"name": "sound", "command": [str(sound)]},
        {"name": "plain", "command": [str(plain)]},
        {"name": "gone", "command": [str(tmp_path / "gone")]},
    )
    (tmp_path / "kern.log").touch()
    findings = examine(settings_of(tmp_path, "", checks=checks))
    found = by_name(findings)
    assert found["sound"].level is Level.FINE
    assert "chmod +x" in found["plain"].mend
    assert "not there" in found["gone"].says
    assert not mark.exists()
    checks.write_text("{")
    broken = by_name(examine(settings_of(tmp_path, "", checks=checks)))
    assert broken[str(checks)].level is Level.VITAL


# the command


@pytest.mark.usefixtures("logs")
def test_the_command_prints_a_table_or_json_and_ends_by_its_codes(
    tmp_path: Path, server: Running, key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kern.log").touch()
    env_file = tmp_path / "agent.env"
    env_file.write_text(
        f"# the unit's\nGPUWARDEN_AGENT_SERVER_URL={server.url}\n"
        f'GPUWARDEN_AGENT_KEY_FILE="{key_file}"\nGPUWARDEN_AGENT_NODE_ID=node-1\n'
        f"GPUWARDEN_AGENT_KMSG_PATH={tmp_path / 'kern.log'}\nGPUWARDEN_AGENT_NVML=off\n"
        f"GPUWARDEN_AGENT_SPOOL_FOLDER={tmp_path / 'spool'}\n"
        f"GPUWARDEN_AGENT_SPOOL_CAP_BYTES=65536\n"
        f"GPUWARDEN_AGENT_VERDICT_FILE={tmp_path / 'run' / 'verdict.json'}\n"
    )
    assert main(["doctor", "--env-file", str(env_file)]) == 0, capsys.readouterr().out
    table = capsys.readouterr().out
    assert table.endswith("\nAll is fine.\n")
    heads = [line.split("  ")[0] for line in table.splitlines()[:-2]]
    assert set(heads) <= {"ok", "-"}
    key_file.chmod(0o644)
    assert main(["doctor", "--json", "--env-file", str(env_file)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 1
    warned = [one["name"] for one in told["findings"] if one["level"] == "warning"]
    assert warned == ["key"]
    flags = ["--server-url=http://127.0.0.1:9", "--env-file", str(env_file)]
    assert main(["doctor", *flags]) == 2
    assert "mend: " in capsys.readouterr().out
    assert main(["doctor", "--env-file", str(tmp_path / "gone.env")]) == 2
    env_file.write_text("no such line\n")
    assert main(["doctor", "--env-file", str(env_file)]) == 2
    assert "line 1" in capsys.readouterr().err


def test_it_runs_as_a_command_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuwarden_agent.cli", "doctor", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "something vital" in done.stdout
