"""Without their extra, commands name it instead of showing a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuwarden_cli.exits import ExitCode


@pytest.mark.parametrize(
    ("missing", "entry", "words", "code", "extra"),
    [
        ("httpx", "gpuwarden_runtime.launcher", ["--", "true"], 64, "gpuwarden[runtime]"),
        ("typer", "gpuwarden_cli.main", ["nodes"], ExitCode.LOCAL, "gpuwarden[cli]"),
        ("uvicorn", "gpuwarden_cli.main", ["server"], ExitCode.LOCAL, "gpuwarden[server]"),
        ("sklearn", "gpuwarden_cli.main", ["train", "x"], ExitCode.LOCAL, "gpuwarden[train]"),
    ],
)
def test_missing_extra_is_named(
    missing: str, entry: str, words: list[str], code: int, extra: str
) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from {entry} import main\n"
        f"sys.exit(main({words!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert extra in done.stderr
    assert "Traceback" not in done.stderr
