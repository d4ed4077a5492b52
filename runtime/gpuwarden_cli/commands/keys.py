"""`gpuwarden keys`: who may talk to the server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.records import Role

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Keys of agents, readers, runtimes, operators and admins.")
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("delete")(delete)
    app.add_typer(group, name="keys", no_args_is_help=True)


def create(
    context: typer.Context,
    role: Annotated[Role, typer.Option(help="What the key may do.")],
    node: Annotated[
        str | None, typer.Option(help="Node of an agent's key: it speaks for this node only.")
    ] = None,
    name: Annotated[str, typer.Option(help="Who holds it, for the audit.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once: the server keeps only its hash."""
    if (role is Role.AGENT) != (node is not None):
        raise CommandError(
            ExitCode.USAGE,
            "--node goes with --role agent, and an agent's key needs it",
            "gpuwarden keys create --role agent --node NODE",
        )
    with open_client(context) as client:
        made = client.create_key(role, node, name)
    if as_json:
        print_json(made)
        return
    # The key alone on standard output, so that `> key-file` holds just it.
    print(made.key)
    sys.stderr.write(f"key {made.id} for role {role}; it is not shown again\n")


def list_keys(context: typer.Context, as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    with open_client(context) as client:
        items = client.keys()
    if as_json:
        print_json(items)
        return
    rows = [
        (
            *(item.id, item.role, item.node_id, moment(item.created_at)),
            *(moment(item.revoked_at), item.name),
        )
        for item in items
    ]
    print_table(("KEY", "ROLE", "NODE", "MADE", "ENDED", "NAME"), rows, "no key")


def delete(
    context: typer.Context, key_id: Annotated[str, typer.Argument(help="Id from `keys list`.")]
) -> None:
    """End a key at once."""
    with open_client(context) as client:
        client.delete_key(key_id)
    print(f"key {key_id} is deleted")
