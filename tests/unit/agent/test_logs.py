"""Key-value lines of the agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from gpuwarden_agent.logs import configure_logs, get_logger


@pytest.fixture(autouse=True)
def _default_level() -> Iterator[None]:
    configure_logs("info")
    yield
    configure_logs("info")


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]


def test_an_event_is_one_line_whatever_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("spool").info("shed", count=3, why='disk "full"\nor = gone', ok=True, empty="")
    line = (
        r'level=info part=spool event=shed count=3 why="disk \"full\"\nor = gone" ok=true empty=""'
    )
    assert told(capsys) == [line]


def test_the_line_begins_with_utc(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("x").error("e")
    stamp = capsys.readouterr().err.partition(" ")[0]
    assert stamp.startswith("timestamp=20") and stamp.endswith("Z") and len(stamp) == 37


def test_nothing_below_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("warning")
    get_logger("x").info("quiet")
    get_logger("x").warning("loud")
    assert told(capsys) == ["level=warning part=x event=loud"]


def test_an_exception_comes_with_its_trace_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        get_logger("x").exception("bug", collector="nic")
    (line,) = told(capsys)
    assert "ValueError: no" in line and "collector=nic" in line


def test_a_closed_stderr_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = open(sys.stderr.fileno(), "w", closefd=False)  # noqa: SIM115  # closed on the next line
    broken.close()
    monkeypatch.setattr(sys, "stderr", broken)
    get_logger("x").info("unheard")
