"""The pages of command and launcher name everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwarden_cli.app import build_app
from gpuwarden_cli.demo.summary import DemoSummary, EventCounts, StepSummary
from gpuwarden_cli.exits import ExitCode
from gpuwarden_runtime import exits
from gpuwarden_runtime.arguments import parse_arguments
from gpuwarden_runtime.config import RuntimeSettings

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
LAUNCHER = (DOCS / "launcher.md").read_text(encoding="utf-8")


def test_every_exit_code_is_documented() -> None:
    assert all(f"\n| {code.value} |" in CLI for code in ExitCode)
    shells = f"| {exits.ExitCode.NOT_EXECUTABLE}, {exits.ExitCode.NOT_FOUND} |"
    assert shells in LAUNCHER
    own = set(exits.ExitCode) - {exits.ExitCode.NOT_EXECUTABLE, exits.ExitCode.NOT_FOUND}
    assert all(f"\n| {code.value} |" in LAUNCHER for code in own)


def test_every_launcher_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help", "--version"}
    assert len(options) >= 7
    assert [option for option in sorted(options) if f"`{option}" not in LAUNCHER] == []


def test_every_command_is_documented() -> None:
    app = build_app()
    names = [command.callback.__name__ for command in app.registered_commands if command.callback]
    names += [str(group.name) for group in app.registered_groups]
    assert len(names) >= 10
    assert [name for name in names if f"`gpuwarden {name}" not in CLI] == []


def test_every_setting_of_the_runtime_is_documented() -> None:
    names = set(re.findall(r"GPUWARDEN_[A-Z_]+", str(RuntimeSettings.__doc__)))
    assert len(names) == len(RuntimeSettings.__dataclass_fields__) + 1  # the key has two
    assert [name for name in sorted(names) if f"`{name}`" not in LAUNCHER] == []


def test_every_field_of_the_summary_is_documented() -> None:
    for record in (DemoSummary, StepSummary, EventCounts):
        assert all(f"`{name}`" in CLI for name in record.__struct_fields__)
