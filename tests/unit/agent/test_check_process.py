"""Real programs that behave as programs of users do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from gpuwarden_agent.checks.process import KEPT_BYTES, Outcome, run_check
from tests.fakes.waiting import wait_for


def run(path: Path | str, *arguments: str, deadline_s: float = 30.0, **environment: str) -> Outcome:
    return run_check((str(path), *arguments), environment, deadline_s, threading.Event())


def shell(script: str, deadline_s: float = 30.0) -> Outcome:
    return run("/bin/sh", "-c", script, deadline_s=deadline_s)


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be reaped by init."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.parametrize("code", [0, 1, 2, 3, 77])
def test_exit_code_and_output_are_handed_over(code: int) -> None:
    outcome = shell(f"echo said; echo wrong >&2; exit {code}")
    assert (outcome.exit_code, outcome.reason) == (code, "")
    assert (outcome.output, outcome.errors) == (b"said\n", b"wrong\n")
    assert outcome.left is None


def test_a_hang_is_ended_at_the_deadline_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcome = shell(f"sleep 600 & echo $$ $! > {pids}; echo before; wait", deadline_s=2.0)
    assert (outcome.exit_code, outcome.reason) == (None, "deadline_exceeded")
    assert outcome.output == b"before\n"
    wait_for(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))


def test_one_that_ignores_sigterm_is_killed() -> None:
    outcome = shell("trap '' TERM; sleep 600", deadline_s=1.5)
    assert (outcome.reason, outcome.left) == ("deadline_exceeded", None)
    assert outcome.took_s >= 3.5  # its deadline, and the patience after SIGTERM


def test_one_that_ends_on_sigterm_may_say_goodbye() -> None:
    outcome = shell("trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.05; done", 2.0)
    assert outcome.reason == "deadline_exceeded"
    assert outcome.output == b"hello\nbye\n"


def test_children_that_stay_behind_are_ended_and_do_not_hold_us_up(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # The child holds the pipe open: reading to its end would wait for ten minutes.
    outcome = shell(f"sleep 600 & echo $! > {pid_file}; echo done")
    assert (outcome.exit_code, outcome.output) == (0, b"done\n")
    wait_for(lambda: gone(int(pid_file.read_text())))


def test_ten_megabytes_are_read_but_not_kept() -> None:
    script = "import os\nfor _ in range(160): os.write(1, b'x' * 65536)"
    outcome = run(sys.executable, "-c", script)
    assert (outcome.exit_code, outcome.cut) == (0, True)
    assert len(outcome.output) == KEPT_BYTES


def test_output_without_end_is_ended() -> None:
    outcome = shell("exec yes", deadline_s=60.0)
    assert outcome.reason == "too_much_output"
    assert len(outcome.output) == KEPT_BYTES


def test_an_end_by_signal_is_told() -> None:
    outcome = shell("kill -SEGV $$")
    assert (outcome.exit_code, outcome.reason) == (None, f"ended_by_signal_{signal.SIGSEGV:d}")


def test_one_that_closes_its_pipes_is_waited_for() -> None:
    outcome = shell("exec >&- 2>&-; sleep 0.2; exit 2")
    assert (outcome.exit_code, outcome.reason) == (2, "")


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    assert run(plain).reason == "not_executable"
    assert run(tmp_path / "gone").reason == "no_such_file"
    assert run(tmp_path).reason == "not_executable"
    text = tmp_path / "text"
    text.write_bytes(b"\x7fELFnot")
    text.chmod(0o755)
    assert run(text).reason == "not_a_program"


def test_stopping_ends_it_early() -> None:
    stop = threading.Event()
    stop.set()
    outcome = run_check(("/bin/sleep", "600"), {}, 600.0, stop)
    assert outcome.reason == "agent_ends"


def test_the_agents_own_variables_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWARDEN_AGENT_KEY", "gw_secret")
    outcome = run("/usr/bin/env", MINE="yes")
    assert b"MINE=yes" in outcome.output
    assert b"gw_secret" not in outcome.output


def test_it_reads_nothing_and_holds_none_of_our_files(tmp_path: Path) -> None:
    with (tmp_path / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        outcome = shell("cat; ls -l /proc/self/fd")
    assert outcome.exit_code == 0
    assert b"ours" not in outcome.output
