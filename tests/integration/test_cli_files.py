"""The sub-commands that need no server: kernel-log scan, inject, simulate, server's settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode

LOG = b"""\
[    0.000000] Linux version 6.8.0
Jan 21 04:41:44 node1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
\xff\xfe\x00 not text at all
"""


def test_scan_prints_an_object_a_recognised_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kern.log"
    file.write_bytes(LOG)
    zone = ["--timezone", "+01:00", "--year", "2026"]
    assert run(["kernel-log", "scan", str(file), "--json", *zone]) == ExitCode.DONE
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "line_number": 2,
        "observed_at": "2026-01-21T03:41:44Z",
        "family": "xid",
        "xid": 79,
        "sxid": None,
        "pci_bus_id": "0000:3b:00.0",
        "pid": None,
        "process": None,
        "severity": "critical",
        "action": "RESTART_BM",
        "application_possible": False,
        "text": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    }
    assert run(["kernel-log", "scan", str(file), "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["observed_at"] is None


def test_scan_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kern.log"
    file.write_bytes(LOG)
    assert run(["kernel-log", "scan", str(file)]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "xid 79" in out
    *_, counts, undated = out.splitlines()
    assert counts == "xid 1"
    assert undated.startswith("1 without a time: a stamp without year or zone is dated with --year")
    assert "--timezone" in undated
    dated = ["--year", "2026", "--timezone", "UTC"]
    assert run(["kernel-log", "scan", str(file), *dated]) == ExitCode.DONE
    assert capsys.readouterr().out.endswith("xid 1\n")
    file.write_bytes(b"all well\n")
    assert run(["kernel-log", "scan", str(file)]) == ExitCode.DONE
    assert capsys.readouterr().out == "no line that speaks of a fault\n"


def test_scan_of_a_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "none", tmp_path):
        assert run(["kernel-log", "scan", str(path)]) == ExitCode.LOCAL
        assert str(path) in capsys.readouterr().err
    assert run(["kernel-log", "scan", str(tmp_path), "--timezone", "X/Y"]) == ExitCode.USAGE


def test_scan_of_a_line_without_end_keeps_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kern.log"
    file.write_bytes(b"x" * 1_000_000 + b"\n" + LOG.splitlines()[1])
    assert run(["kernel-log", "scan", str(file), "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["line_number"] == 2


def test_scan_streams_standard_input_and_survives_a_reader_that_leaves() -> None:
    scan = [sys.executable, "-m", "gpuwarden_cli.main", "kernel-log", "scan", "-", "--json"]
    line = LOG.splitlines(keepends=True)[1]
    done = subprocess.run(scan, input=line * 3, capture_output=True, check=True, timeout=60)
    assert [json.loads(row)["line_number"] for row in done.stdout.splitlines()] == [1, 2, 3]
    with subprocess.Popen(
        scan, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        try:
            process.stdin.write(line * 5000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert b"Traceback" not in process.stderr.read()


def test_inject_writes_what_the_scan_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kern.log"
    assert run(["inject", "off-bus", "--pci", "9b:00.0", "--to", str(file)]) == ExitCode.DONE
    assert run(["inject", "xid-95", "--to", str(file)]) == ExitCode.DONE
    assert run(["inject", "nic-down", "--to", str(file)]) == ExitCode.DONE
    capsys.readouterr()
    assert run(["kernel-log", "scan", str(file), "--json"]) == ExitCode.DONE
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [(row["family"], row["xid"], row["pci_bus_id"]) for row in rows] == [
        ("xid", 79, "0000:9b:00.0"),
        ("gpu_lost", None, "0000:9b:00.0"),
        ("xid", 95, "0000:3b:00.0"),
        ("nic_link", None, "0000:18:00.0"),
    ]
    assert all(row["observed_at"] for row in rows)


def test_inject_says_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inject", "nonsense", "--to", str(tmp_path / "x")]) == ExitCode.USAGE
    assert "off-bus" in capsys.readouterr().err
    assert run(["inject"]) == ExitCode.USAGE
    assert run(["inject", "off-bus", "--to", str(tmp_path / "no" / "x")]) == ExitCode.LOCAL
    assert run(["inject", "--list"]) == ExitCode.DONE
    assert "nic-down" in capsys.readouterr().out


def test_inject_into_the_kernel_log_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    code = [sys.executable, "-m", "gpuwarden_cli.main", "inject", "off-bus"]
    done = subprocess.run(code, input=b"n\n", capture_output=True, check=False, timeout=60)
    assert done.returncode == ExitCode.NEGATIVE
    assert b"Xid" in done.stdout  # what would be written is shown


def test_simulate_writes_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "recording"
    words = ["--nodes", "2", "--gpus-per-node", "1", "--hours", "0.1", "--json"]
    assert run(["simulate", "--out", str(out), *words]) == ExitCode.DONE
    report = json.loads(capsys.readouterr().out)
    assert (report["nodes"], report["gpus"]) == (2, 2)
    assert run(["simulate", "--out", str(out), *words]) == ExitCode.USAGE
    assert str(out) in capsys.readouterr().err


def test_server_names_the_setting_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["server", "--state-folder", str(tmp_path), "--mode", "destroy"]
    assert run(words) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "mode" in error
    assert "GPUWARDEN_MODE" in error


def test_train_of_a_folder_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(tmp_path / "none")]) == ExitCode.USAGE
    assert str(tmp_path / "none") in capsys.readouterr().err
