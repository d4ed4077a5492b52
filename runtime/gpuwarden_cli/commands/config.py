"""`gpuwarden config check`: what a start of the server would say, without a start."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuwarden_cli.exits import ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import print_json, print_table


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="The server's settings.", no_args_is_help=True)
    group.callback()(_group)
    group.command()(check)
    app.add_typer(group, name="config")


def _group() -> None:
    """The server's settings."""


def check(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at the server's settings and at each file and service they name; start nothing.

    Reads the environment as `gpuwarden server` does. Ends with 2 where the server would not start.
    """
    looks = load("gpuwarden_server.checkup", "check_config", "server")()
    if as_json:
        print_json(looks)
    else:
        rows = ((look.part, look.outcome, look.says) for look in looks)
        print_table(("PART", "OUTCOME", "SAYS"), rows, "nothing was looked at")
    if any(look.outcome == "wrong" for look in looks):
        raise typer.Exit(ExitCode.USAGE)
