"""The `gpuwarden-agent` command as a user types it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_agent.cli import ExitCode, main
from gpuwarden_agent.config import PREFIX, setting_docs
from gpuwarden_agent.logs import configure_logs
from gpuwarden_agent.sources.kmsg import KmsgDevice, KmsgReader
from gpuwarden_agent.sources.wakeup import Wakeup
from gpuwarden_wire.events import Backlog
from gpuwarden_wire.version import __version__
from tests.builders.agent import XID_79

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"

Once = Callable[..., dict[str, Any]]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("GPUWARDEN_")}


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuwarden_agent.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=CLEAN | environ,
    )


@pytest.fixture
def roots(tmp_path: Path) -> list[str]:
    """Flags that point at the fixture node and a log with a fault."""
    node = shutil.copytree(NODE, tmp_path / "node")
    (tmp_path / "kern.log").write_text(f"benign\n{XID_79}\n{XID_79}\n")
    return [
        f"--proc-root={node}/proc",
        f"--sys-root={node}/sys",
        f"--kmsg-path={tmp_path}/kern.log",
        f"--verdict-file={tmp_path}/run/verdict.json",
        "--node-id=node-1",
    ]


@pytest.fixture
def once_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Calls the command in this process and gives what it printed."""
    for name in set(os.environ) - set(CLEAN):
        monkeypatch.delenv(name)

    def call(*flags: str, **environ: str) -> dict[str, Any]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        assert main(["once", "--json", *flags]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    yield call
    configure_logs("info")


def test_once_prints_all_readings_with_units_or_reasons(roots: list[str], once_json: Once) -> None:
    answer = once_json("--nvml=off", *roots)
    assert answer["node_id"] == "node-1"
    assert answer["boot_id"] == "6f2d1c9a-7a51-4f0e-9a9e-2d0b7c1f5e11"
    readings = {(one["entity"], one["metric"]): one for one in answer["readings"]}
    uptime = readings["", "node_uptime_seconds"]
    assert (uptime["value"], uptime["unit"]) == (86400.5, "seconds")
    broken = readings["mlx5_1/1", "nic_received_bytes_total"]
    assert (broken["value"], broken["missing"], broken["reason"]) == (None, "unavailable", "no_pma")
    assert {one["name"]: one["outcome"] for one in answer["collectors"]} == {
        "host": "ok",
        "storage": "ok",
        "mounts": "ok",
        "smart": "ok",
        "rdma": "ok",
        "net": "ok",
        "ethtool": "ok",
        "hardware_errors": "ok",
        "structure": "ok",
        "kernel_log": "ok",
    }
    assert answer["inventory"]["disks"] == ["nvme0n1", "sda"]


def test_once_prints_recognised_kernel_lines_with_their_repeats(
    roots: list[str], once_json: Once
) -> None:
    events = once_json("--nvml=off", *roots)["events"]
    assert [(one["xid"], one.get("count", 1)) for one in events] == [(79, 1), (79, 1)]
    assert {one["backlog"] for one in events} == {"first_look"}


def test_once_says_why_there_is_no_nvml(roots: list[str], once_json: Once) -> None:
    answer = once_json("--nvml-library=/nonexistent/libnvidia-ml.so.1", *roots)
    nvml = next(one for one in answer["collectors"] if one["name"] == "nvml")
    assert "nvml" in nvml["reason"] + nvml["note"]
    assert answer["readings"], "the rest goes on"


def test_once_goes_on_where_a_source_is_missing(
    roots: list[str], tmp_path: Path, once_json: Once
) -> None:
    shutil.rmtree(tmp_path / "node" / "proc")
    (tmp_path / "kern.log").unlink()
    answer = once_json("--nvml=off", *roots)
    outcomes = {one["name"]: one["reason"] for one in answer["collectors"]}
    assert outcomes == {
        "host": "procfs_unreadable",
        "storage": "no_such_file",
        "mounts": "no_such_file",
        "smart": "",
        "rdma": "",
        "net": "",
        "ethtool": "",
        "hardware_errors": "",
        "structure": "",
        "kernel_log": "no_such_file",
    }
    assert all(one["mend"] for one in answer["collectors"] if one["reason"])


def test_once_has_a_form_for_people(roots: list[str]) -> None:
    done = run("once", "--nvml=off", *roots)
    assert done.returncode == 0
    assert "node_uptime_seconds" in done.stdout
    assert "86400.5 seconds" in done.stdout
    assert "- (no_pma)" in done.stdout
    assert "GPU has fallen off the bus" in done.stdout


def test_once_reads_this_machine_without_any_setting(once_json: Once) -> None:
    answer = once_json()
    assert len(answer["readings"]) > 8


def test_the_environment_is_read_and_a_flag_wins(roots: list[str], once_json: Once) -> None:
    environ = {f"{PREFIX}NVML": "off", f"{PREFIX}COLLECTORS": "host"}
    assert [c["name"] for c in once_json(*roots, **environ)["collectors"]] == ["host"]
    answer = once_json("--collectors=host,net", *roots, **environ)
    assert [c["name"] for c in answer["collectors"]] == ["host", "net"]


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"gpuwarden-agent {__version__}")


def test_help_lists_every_setting_and_exit_code() -> None:
    text = run("run", "--help").stdout
    for doc in setting_docs():
        assert doc.flag in text
        assert doc.variable in text.replace("\n", "")
    for code in ExitCode:
        assert f"\n  {code.value}  " in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["run"], "GPUWARDEN_AGENT_SERVER_URL"),
        (["run", "--interval-s=fast"], "--interval-s='fast'"),
        (["once", "--collectors=gpus"], "no collector gpus; there are host"),
        (["run", "--server-url=https://h", "--ca-file=/nonexistent"], "/nonexistent"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_with_2(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, f"--spool-folder={tmp_path}/spool"]) == ExitCode.CONFIG
    assert message in capsys.readouterr().err
    configure_logs("info")


def test_a_spool_that_cannot_be_used_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("run", "--server-url=http://127.0.0.1:9", f"--spool-folder={tmp_path}/file/spool")
    assert done.returncode == ExitCode.SPOOL
    assert f"{tmp_path}/file/spool" in done.stderr


def test_a_metrics_address_in_use_ends_with_4(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(
            "run",
            "--server-url=http://127.0.0.1:9",
            f"--spool-folder={tmp_path}/spool",
            "--nvml=off",
            f"--metrics-port={taken.getsockname()[1]}",
        )
    assert done.returncode == ExitCode.ADDRESS
    assert "METRICS_PORT" in done.stderr


def test_the_command_does_not_load_what_it_does_not_need() -> None:
    heavy = ["prometheus_client", "numpy", "pydantic", "httpx", "sqlalchemy", "fastapi"]
    heavy += ["http.client", "email.parser", "gpuwarden_exporters"]  # for nodes with exporters
    program = (
        "import sys; import gpuwarden_agent.agent, gpuwarden_agent.cli; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="may not read /dev/kmsg here")
def test_the_real_kernel_ring_is_read() -> None:
    reader = KmsgReader(KmsgDevice(Path("/dev/kmsg"), Wakeup()), "boot", None)
    try:
        lines = reader.read(0.1)
    finally:
        reader.close()
    seqs = [int(line.id.rsplit(":", 1)[1]) for line in lines]
    assert seqs == sorted(set(seqs))
    assert {line.backlog for line in lines} == {Backlog.FIRST_LOOK}
