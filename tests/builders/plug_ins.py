"""Plug-in checks for tests: programs, definitions and a folder that root may trust."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gpuwarden_agent.checks.definitions import CheckDefinition

RUN = {"interval_s": 10.0, "deadline_s": 5.0}


def program(path: Path, body: str, *, shell: bool = False) -> Path:
    """An executable of this text, Python's or the shell's."""
    path.write_text(f"#!{'/bin/sh' if shell else sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


def definition(name: str, path: Path | str, *arguments: str, **keys: Any) -> CheckDefinition:
    """A check that runs `path`."""
    return CheckDefinition(name=name, command=(str(path), *arguments), **(RUN | keys))


def definitions_file(path: Path, *checks: dict[str, Any]) -> Path:
    """A JSON file of checks."""
    path.write_text(json.dumps({"checks": [RUN | check for check in checks]}))
    path.chmod(0o644)
    return path
