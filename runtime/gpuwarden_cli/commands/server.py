"""`gpuwarden server`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(server)


def server(
    policy: Annotated[
        Path | None, typer.Option(help="Policy in TOML; none: observe everywhere.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    state_folder: Annotated[Path | None, typer.Option(help="Folder of the databases.")] = None,
    mode: Annotated[
        str | None, typer.Option(help="observe, advise or act, for pools that name none.")
    ] = None,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Bring older databases to this version, then end.")
    ] = False,
) -> None:
    """Run the server until SIGTERM or Ctrl-C.

    Every option is also a setting GPUWARDEN_…, and there are more of those: see docs/settings.md.
    """
    given = {
        "policy_file": policy,
        "host": host,
        "port": port,
        "state_folder": state_folder,
        "mode": mode,
    }
    settings = server_settings({name: value for name, value in given.items() if value is not None})
    run = load("gpuwarden_server.app", "run_migration" if migrate else "run_server", "server")
    raise typer.Exit(int(run(settings)))


def server_settings(given: dict[str, Any]) -> Any:
    """The server's settings: what was given, and the environment for the rest.

    Raises:
        CommandError: One of them is not valid; names it.
    """
    settings_type = load("gpuwarden_server.config", "Settings", "server")
    validation_error = load("pydantic", "ValidationError", "server")
    try:
        return settings_type(**given)
    except validation_error as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise CommandError(
            ExitCode.USAGE,
            f"setting {name}: {first['msg']}",
            f"set --{name.replace('_', '-')} or GPUWARDEN_{name.upper()} to something else",
        ) from error
