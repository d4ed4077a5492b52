"""Entry point of `gpuwarden`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_EXTRA = {"typer", "rich", "click", "httpx", "httpx_sse"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code for the process."""
    try:
        from gpuwarden_cli.app import run
    except ModuleNotFoundError as error:
        # The base install is the agent's; its entry points are those of all extras.
        if error.name not in _EXTRA:
            raise
        sys.stderr.write("gpuwarden: needs the extra: pip install 'gpuwarden[cli]'\n")
        return 5
    try:
        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # `gpuwarden … | head`: the reader has enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
