"""NVMe health through stand-ins of the two tools: scripts that print a log, or misbehave."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpuwarden_agent.checks.process import Outcome
from gpuwarden_agent.collectors.smart import NOT_INSTALLED, SmartCollector, find_tool
from gpuwarden_agent.sources.smart_log import (
    SMART_METRICS,
    parse_nvme_cli,
    parse_smartctl,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME
from tests.fakes.waiting import wait_for

NODE = Path(__file__).parents[1] / "fixtures" / "agent" / "node"

# `nvme smart-log -o json`: kelvin, and no units
NVME_LOG = {
    "critical_warning": 4,
    "temperature": 315,
    "avail_spare": 97,
    "spare_thresh": 10,
    "percent_used": 103,
    "data_units_read": 201526305,
    "power_cycles": 6,
    "unsafe_shutdowns": 2,
    "media_errors": 11,
    "num_err_log_entries": 5,
    "temperature_sensor_1": 315,
}
# `smartctl -j -a`: celsius
SMARTCTL = {
    "smartctl": {"version": [7, 3], "exit_status": 8},
    "device": {"name": "/dev/nvme0n1", "protocol": "NVMe"},
    "nvme_smart_health_information_log": {
        "critical_warning": 4,
        "temperature": 42,
        "available_spare": 97,
        "percentage_used": 103,
        "unsafe_shutdowns": 2,
        "media_errors": 11,
        "num_err_log_entries": 5,
    },
}
ROW = {
    "disk_critical_warning": 4,
    "disk_media_errors_total": 11,
    "disk_endurance_used_ratio": pytest.approx(1.03),
    "disk_available_spare_ratio": pytest.approx(0.97),
    "disk_temperature_celsius": 42,
    "disk_unsafe_shutdowns_total": 2,
    "disk_error_log_entries_total": 5,
}


class Bench:
    """A folder of tools and the collector that finds them there."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.sys = Path(shutil.copytree(NODE / "sys", folder / "sys"))
        self.collector = SmartCollector(self.sys, 300.0, [str(self.tools)])

    def install(self, name: str, script: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def prints(self, name: str, found: object, code: int = 0) -> None:
        (self.tools / "output.json").write_text(json.dumps(found))
        self.install(name, f"cat {self.tools}/output.json; exit {code}")

    def rows(self) -> dict[str, Mapping[str, Reading]]:
        return dict(self.collector.collect(0.0).rows[EntityKind.DISK])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_each_metric_of_a_drive_is_in_the_registry() -> None:
    assert {METRIC_BY_NAME[metric].entity_kind for metric in SMART_METRICS} == {EntityKind.DISK}


def test_without_a_tool_readings_name_the_mend(bench: Bench) -> None:
    rows = bench.rows()
    assert rows == {"nvme0n1": dict.fromkeys(SMART_METRICS, NOT_INSTALLED)}
    assert "install nvme-cli" in NOT_INSTALLED.reason


def test_nvme_cli_is_asked_once_a_drive_with_its_input_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.tools / "output.json").write_text(json.dumps(NVME_LOG))
    bench.install(
        "nvme",
        f'echo "$@" >> {bench.tools}/asked; cat; env > {bench.tools}/environment;'
        f" cat {bench.tools}/output.json",
    )
    monkeypatch.setenv("GPUWARDEN_AGENT_KEY", "gw_secret")
    assert bench.rows() == {"nvme0n1": ROW}
    assert (bench.tools / "asked").read_text() == "smart-log -o json /dev/nvme0n1\n"
    assert "gw_secret" not in (bench.tools / "environment").read_text()


def test_smartctl_is_asked_where_nvme_cli_is_not_there_and_its_exit_code_is_no_refusal(
    bench: Bench,
) -> None:
    bench.prints("smartctl", SMARTCTL, code=8)  # bit 3: the drive says that it fails
    assert bench.rows() == {"nvme0n1": ROW}


def test_name_spaces_of_one_controller_cost_one_look(bench: Bench) -> None:
    for name in ("nvme0n2", "nvme1n1"):
        shutil.copytree(bench.sys / "class/block/nvme0n1", bench.sys / f"class/block/{name}")
    (bench.tools / "output.json").write_text(json.dumps(NVME_LOG))
    bench.install("nvme", f'echo "$3" >> {bench.tools}/asked; cat {bench.tools}/output.json')
    rows = bench.rows()
    assert rows == {"nvme0n1": ROW, "nvme0n2": ROW, "nvme1n1": ROW}
    assert len((bench.tools / "asked").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'no json at all'", "tool_output_unreadable"),
        ("echo '{\"critical_warning\": '", "tool_output_unreadable"),
        ("echo '[1, 2]'", "tool_output_unreadable"),
        ("true", "tool_output_unreadable"),
        ("echo garbage; exit 3", "tool_exit_3"),
        ("echo 'open: Permission denied' >&2; exit 1", "permission_denied"),
        ("echo '/dev/nvme0n1: No such device' >&2; exit 1", "no_such_device"),
        ("kill -9 $$", "tool_ended_by_signal_9"),
        ("head -c 10000000 /dev/zero", "tool_too_much_output"),
    ],
)
def test_a_tool_that_misbehaves_says_why(bench: Bench, script: str, reason: str) -> None:
    bench.install("nvme", script)
    assert bench.rows() == {"nvme0n1": dict.fromkeys(SMART_METRICS, Unavailable(reason))}


def test_a_tool_that_is_no_program_says_so(bench: Bench) -> None:
    bench.install("nvme", "")
    (bench.tools / "nvme").write_bytes(b"\x7fELF of some other machine")
    assert set(bench.rows()["nvme0n1"].values()) == {Unavailable("tool_not_a_program")}


def test_smartctls_own_complaint_is_read(bench: Bench) -> None:
    message = "Smartctl open device: /dev/nvme0n1 failed: Permission denied"
    bench.prints(
        "smartctl",
        {"smartctl": {"messages": [{"string": message, "severity": "error"}]}},
        code=2,
    )
    assert set(bench.rows()["nvme0n1"].values()) == {Unavailable("permission_denied")}


def test_close_ends_a_tool_that_hangs(bench: Bench) -> None:
    bench.install("nvme", f"echo $$ > {bench.tools}/pid; exec sleep 600")
    rows: list[Mapping[str, Reading]] = []
    call = threading.Thread(target=lambda: rows.append(bench.rows()["nvme0n1"]))
    call.start()
    pid = bench.tools / "pid"
    wait_for(lambda: pid.read_text() if pid.exists() else None)
    bench.collector.close()
    call.join(30.0)
    assert not call.is_alive()
    assert set(rows[0].values()) == {Unavailable("tool_agent_ends")}


def test_a_tool_past_its_deadline_is_ended_with_all_that_it_started(bench: Bench) -> None:
    bench.install("nvme", "sleep 600 & sleep 600")
    hasty = SmartCollector(bench.sys, 300.0, [str(bench.tools)], tool_deadline_s=0.2)
    row = hasty.collect(0.0).rows[EntityKind.DISK]["nvme0n1"]
    assert set(row.values()) == {Unavailable("tool_deadline_exceeded")}


class Hung:
    """Runs of which the first leaves a process that cannot be ended."""

    def __init__(self) -> None:
        self.left = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        self.commands: list[Sequence[str]] = []
        self.deadlines: set[float] = set()

    def __call__(self, command: Sequence[str], deadline_s: float, stop: threading.Event) -> Outcome:
        self.commands.append(command)
        self.deadlines.add(deadline_s)
        if command[-1].endswith("nvme0n1"):
            return Outcome(None, "not_killable", left=self.left)
        return Outcome(0, "", output=json.dumps(NVME_LOG).encode())


def test_nothing_more_is_asked_of_a_drive_whose_tool_cannot_be_ended(bench: Bench) -> None:
    shutil.copytree(bench.sys / "class/block/nvme0n1", bench.sys / "class/block/nvme1n1")
    bench.install("nvme", "exit 1")
    hung = Hung()
    collector = SmartCollector(bench.sys, 300.0, [str(bench.tools)], hung)
    try:
        for _ in range(3):
            rows = collector.collect(0.0).rows[EntityKind.DISK]
            assert set(rows["nvme0n1"].values()) == {Unavailable("tool_not_killable")}
            assert rows["nvme1n1"] == ROW
        assert [command[-1] for command in hung.commands].count("/dev/nvme0n1") == 1
        assert max(hung.deadlines) < collector.deadline_s
    finally:
        hung.left.kill()
        hung.left.wait()
    collector.collect(0.0)
    assert [command[-1] for command in hung.commands].count("/dev/nvme0n1") == 2, "it ended"


def test_drives_that_there_is_no_time_for_wait_for_the_next_call(bench: Bench) -> None:
    for number in range(1, 4):
        shutil.copytree(
            bench.sys / "class/block/nvme0n1", bench.sys / f"class/block/nvme{number}n1"
        )
    bench.install("nvme", "exit 1")
    now = 0.0

    def run(command: Sequence[str], deadline_s: float, stop: threading.Event) -> Outcome:
        nonlocal now
        now += 60.0
        return Outcome(None, "deadline_exceeded")

    collector = SmartCollector(bench.sys, 300.0, [str(bench.tools)], run, lambda: now)
    rows = collector.collect(0.0).rows[EntityKind.DISK]
    reasons = [next(iter(set(row.values()))) for _, row in sorted(rows.items())]
    assert reasons == [
        Unavailable("tool_deadline_exceeded"),
        Unavailable("tool_deadline_exceeded"),
        Unavailable("deadline_exceeded"),
        Unavailable("deadline_exceeded"),
    ]


def test_a_drive_that_vanishes_says_so(bench: Bench) -> None:
    bench.prints("nvme", NVME_LOG)
    assert bench.rows()["nvme0n1"] == ROW
    shutil.rmtree(bench.sys / "class/block/nvme0n1")
    assert set(bench.rows()["nvme0n1"].values()) == {Unavailable("no_such_device")}
    shutil.rmtree(bench.sys / "class")
    assert set(bench.rows()) == {"nvme0n1"}


def test_the_lighter_tool_is_found_first(bench: Bench) -> None:
    assert find_tool([str(bench.tools)]) is None
    bench.install("smartctl", "")
    found = find_tool([str(bench.tools)])
    assert found is not None
    assert found.command("nvme0n1")[1:] == ("-j", "-a", "/dev/nvme0n1")
    bench.install("nvme", "")
    found = find_tool([str(bench.tools)])
    assert found is not None
    assert found.command("nvme0n1")[1:] == ("smart-log", "-o", "json", "/dev/nvme0n1")


def test_odd_numbers_of_a_log_cost_themselves_only() -> None:
    row = parse_nvme_cli(
        json.dumps(
            {
                "critical_warning": {"value": 2, "available_spare": 0},  # verbose nvme-cli
                "temperature": 42,  # of a build that prints celsius
                "avail_spare": "100",
                "percent_used": -1,
                "media_errors": "12,345",
                "unsafe_shutdowns": 2**64,
                "num_err_log_entries": [1],
            }
        ).encode()
    )
    assert row == {
        "disk_critical_warning": 2,
        "disk_temperature_celsius": 42,
        "disk_available_spare_ratio": pytest.approx(1.0),
        "disk_endurance_used_ratio": Unavailable("implausible_value"),
        "disk_media_errors_total": 12345,
        "disk_unsafe_shutdowns_total": Unavailable("implausible_value"),
        "disk_error_log_entries_total": Unavailable("not_a_number"),
    }
    odd = parse_nvme_cli(b'{"critical_warning": true, "media_errors": NaN, "percent_used": "x"}')
    assert odd is not None
    assert odd["disk_critical_warning"] == Unavailable("not_a_number")
    assert odd["disk_media_errors_total"] == Unavailable("implausible_value")
    assert odd["disk_endurance_used_ratio"] == Unavailable("not_a_number")
    assert odd["disk_temperature_celsius"] == NotSupported()


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[" * 100_000, b"\xff\xfe", b'{"a": ' + b"9" * 6000 + b"}", b"{}"]
)
def test_what_is_no_log_is_none(text: bytes) -> None:
    assert parse_nvme_cli(text) is None
    assert parse_smartctl(text) is None
    assert parse_smartctl(b'{"nvme_smart_health_information_log": 7}') is None
