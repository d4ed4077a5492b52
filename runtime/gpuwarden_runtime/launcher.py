"""Entry point of `gpuwarden-run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the launcher; returns the exit code for the process."""
    try:
        from gpuwarden_runtime.launch import launch
    except ModuleNotFoundError as error:
        # The base install is the agent's; its entry points are those of all extras.
        if error.name not in ("httpx", "httpx_sse"):
            raise
        sys.stderr.write("gpuwarden-run: needs the extra: pip install 'gpuwarden[runtime]'\n")
        return 64
    return launch(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
