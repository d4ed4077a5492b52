"""Policy files as the commands read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load

SERVER = "server"
"""In place of a file: the policy in force at the server."""


def read_file(path: Path) -> str:
    """The text of a policy file.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            ExitCode.USAGE, f"policy file {path} cannot be read: {error}", "name a TOML file"
        ) from error


def parse_file(path: Path) -> Any:
    """The policy in a file.

    Raises:
        CommandError: It cannot be read, or is no policy; names the key and the mend.
    """
    return parse_text(read_file(path), str(path))


def parse_text(text: str, source: str, mode: str = "") -> Any:
    """The policy in a text; `mode` is GPUWARDEN_MODE where it was set.

    Raises:
        CommandError: It is no policy; names the key and the mend.
    """
    make = load("gpuwarden_server.decisions.policy", "make_policy", "server")
    wrong: type[Exception] = load("gpuwarden_verdict.policy.problem", "PolicyError", "server")
    modes = load("gpuwarden_verdict.policy.document", "Mode", "server")
    try:
        return make(text, modes(mode) if mode else None)
    except wrong as error:
        told: Any = error
        raise CommandError(
            ExitCode.USAGE,
            f"policy {source}: {told.key} = {told.value!r} cannot be used",
            told.mend,
        ) from error
