"""`gpuwarden-run` at a terminal: the command is in the foreground, Ctrl-C and Ctrl-Z are its."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROMPT = "ready> "


class Terminal:
    """A shell with job control at a terminal of its own."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, wanted: str) -> str:
        """Everything up to and with the text that is waited for."""
        deadline = time.monotonic() + 20.0
        while wanted not in self._text:
            assert time.monotonic() < deadline, self._text
            if select.select([self._master], [], [], 0.1)[0]:
                self._text += os.read(self._master, 65536).decode(errors="replace")
        end = self._text.index(wanted) + len(wanted)
        seen, self._text = self._text[:end], self._text[end:]
        return seen


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    setsid, bash = shutil.which("setsid"), shutil.which("bash")
    if setsid is None or bash is None:
        pytest.skip("needs bash and setsid (util-linux) for a terminal with job control")
    master, slave = pty.openpty()
    environ = {
        "PATH": os.environ["PATH"],
        "PS1": PROMPT,
        "TERM": "dumb",
        "GPUWARDEN_URL": "http://127.0.0.1:9",
        "GPUWARDEN_CACHE_FOLDER": str(tmp_path),
    }
    shell = subprocess.Popen(
        [setsid, "--ctty", bash, "--norc", "--noediting", "-i"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environ,
    )
    os.close(slave)
    terminal = Terminal(master)
    terminal.wait_for(PROMPT)
    try:
        yield terminal
    finally:
        os.close(master)  # a hang-up ends the shell and its jobs
        shell.wait(timeout=10)


def test_command_reads_the_terminal_stops_goes_on_and_is_interrupted(terminal: Terminal) -> None:
    terminal.type(f"{sys.executable} -m gpuwarden_runtime.launcher --node x -- sed -u s/^/got:/\n")
    terminal.wait_for("starting all the same")
    terminal.type("first\n")
    terminal.wait_for("got:first\r\n")
    terminal.type("\x1a")
    terminal.wait_for("Stopped")
    terminal.wait_for(PROMPT)
    terminal.type("fg\n")
    terminal.wait_for("got:/\r\n")
    terminal.type("second\n")
    terminal.wait_for("got:second\r\n")
    terminal.type("\x03")
    terminal.wait_for(PROMPT)
    terminal.type("echo code=$?\n")
    terminal.wait_for("code=130")
