"""`python -m gpuwarden_server [--migrate]`: the server with settings from the environment."""

from __future__ import annotations

import argparse
import sys

from gpuwarden_server.app import run_migration, run_server
from gpuwarden_server.config import load_settings
from gpuwarden_server.core.errors import StartError


def main() -> int:
    """Run; returns the exit code of `run_server` or `run_migration`, 2 for invalid settings."""
    parser = argparse.ArgumentParser(prog="gpuwarden_server", description=__doc__)
    parser.add_argument(
        "--migrate", action="store_true", help="bring older database files up to date, then end"
    )
    options = parser.parse_args()
    try:
        settings = load_settings()
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return run_migration(settings) if options.migrate else run_server(settings)


if __name__ == "__main__":
    sys.exit(main())
