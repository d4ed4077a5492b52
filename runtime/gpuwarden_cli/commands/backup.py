"""`gpuwarden backup` and `gpuwarden restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.server import server_settings
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load

_StateFolder = Annotated[Path | None, typer.Option(help="Folder of the databases.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    app.command()(backup)
    app.command()(restore)


def backup(
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER_OR_URL",
            help="A folder, or a PostgreSQL URL; none: a new folder here, named by the time.",
        ),
    ] = None,
    state_folder: _StateFolder = None,
) -> None:
    """Copy the server's whole store, while the server runs or not.

    Which store it is, is set as for `gpuwarden server`: GPUWARDEN_STATE_FOLDER or
    GPUWARDEN_DATABASE_URL. The copy is a store itself: a folder, or a PostgreSQL database.
    """
    copied = _run("run_backup", state_folder, to)
    print(f"Copied {copied.rows:,} rows and their history to {copied.where}.")


def restore(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A folder, or a PostgreSQL URL.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace what is in the store: it is lost.")
    ] = False,
    state_folder: _StateFolder = None,
) -> None:
    """Bring a backup back into the server's store; no server may run on it.

    The exclusion feed gets a new id, so that every client reads the whole set anew.
    """
    copied = _run("run_restore", state_folder, source, force=force)
    print(f"{copied.where} has {copied.rows:,} rows and their history: start the server.")


def _run(name: str, state_folder: Path | None, *values: Any, **options: Any) -> Any:
    given = {} if state_folder is None else {"state_folder": state_folder}
    settings = server_settings(given)
    error_type = load("gpuwarden_server.core.errors", "StoreError", "server")
    try:
        return load("gpuwarden_server.backup", name, "server")(settings, *values, **options)
    except error_type as error:
        detail = str(error).removesuffix(error.mend).rstrip(" .")
        raise CommandError(ExitCode.USAGE, detail, error.mend) from error
