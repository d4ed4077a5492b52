"""Loading the parts that not every install has, by name."""

from __future__ import annotations

import importlib
from typing import Any

from gpuwarden_cli.exits import CommandError, ExitCode


def load(module: str, attribute: str, extra: str) -> Any:
    """An attribute of a module that comes with an extra.

    Raises:
        CommandError: The module or something it needs is not installed; names the extra.
    """
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise CommandError(
            ExitCode.LOCAL,
            f"this command needs {error.name}, which is not installed",
            f"pip install 'gpuwarden[{extra}]'",
        ) from error
