"""`gpuwarden keys`: who may talk to the server."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.records import KeyRecord, Role

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ExpiresIn = Annotated[
    float | None, typer.Option("--expires-in-days", min=0.001, help="Days until it is refused.")
]
DAY_S = 86_400.0
WARN_S = 14 * DAY_S
"""How long before its end the list says so; the server's metrics use the same."""


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Keys of agents, readers, runtimes, feeders, operators and admins.")
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("rotate")(rotate)
    group.command("delete")(delete)
    app.add_typer(group, name="keys", no_args_is_help=True)


def create(
    context: typer.Context,
    role: Annotated[Role, typer.Option(help="What the key may do.")],
    node: Annotated[
        str | None, typer.Option(help="Node of an agent's key: it speaks for this node only.")
    ] = None,
    name: Annotated[str, typer.Option(help="Who holds it, for the audit.")] = "",
    expires_in_days: ExpiresIn = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--only-nodes", help="Narrow it to nodes: a pattern (gpu-0*); repeatable."),
    ] = None,
    pools: Annotated[
        list[str] | None, typer.Option("--only-pool", help="Narrow it to a pool; repeatable.")
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option("--only-resource", help="Narrow it to RESOURCE:read or :write; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once: the server keeps only its hash."""
    if (role is Role.AGENT) != (node is not None):
        raise CommandError(
            ExitCode.USAGE,
            "--node goes with --role agent, and an agent's key needs it",
            "gpuwarden keys create --role agent --node NODE",
        )
    parts = {"nodes": nodes or (), "pools": pools or (), "resources": resources or ()}
    with open_client(context) as client:
        made = client.create_key(
            role,
            node,
            name,
            expires_in_s=_seconds(expires_in_days),
            scope={name: values for name, values in parts.items() if values},
        )
    _show(made, f"key {made.id} for role {role}", as_json)


def list_keys(context: typer.Context, as_json: AsJson = False) -> None:
    """List the keys, without their secrets; those that end soon are marked."""
    with open_client(context) as client:
        items = tuple(client.all_keys())
    if as_json:
        print_json(items)
        return
    now = time.time()
    rows = [
        (
            *(item.id, item.role, item.node_id, moment(item.created_at)),
            *(moment(item.revoked_at), _ends(item, now), _scope(item), item.name),
        )
        for item in items
    ]
    heads = ("KEY", "ROLE", "NODE", "MADE", "ENDED", "ENDS", "NARROWED TO", "NAME")
    print_table(heads, rows, "no key")


def rotate(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(help="Id from `keys list`.")],
    grace_hours: Annotated[
        float, typer.Option(min=0, max=720, help="Hours for which the former secret is taken too.")
    ] = 24.0,
    expires_in_days: ExpiresIn = None,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret and print it; the former one is taken for a while longer."""
    with open_client(context) as client:
        made = client.rotate_key(key_id, grace_hours * 3600, _seconds(expires_in_days))
    _show(made, f"key {made.id}: the former secret ends at {moment(made.former_until)}", as_json)


def delete(
    context: typer.Context, key_id: Annotated[str, typer.Argument(help="Id from `keys list`.")]
) -> None:
    """End a key at once."""
    with open_client(context) as client:
        client.delete_key(key_id)
    print(f"key {key_id} is deleted")


def _show(made: KeyRecord, what: str, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    # The key alone on standard output, so that `> key-file` holds just it.
    print(made.key)
    sys.stderr.write(f"{what}; it is not shown again\n")


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * DAY_S


def _ends(item: KeyRecord, now: float) -> str:
    if item.expires_at is None or item.revoked_at is not None:
        return "-"
    left_s = item.expires_at - now
    if left_s <= 0:
        return f"{moment(item.expires_at)} EXPIRED"
    soon = f" in {left_s / DAY_S:.1f} d!" if left_s < WARN_S else ""
    return f"{moment(item.expires_at)}{soon}"


def _scope(item: KeyRecord) -> str:
    return " ".join(f"{name}={','.join(values)}" for name, values in item.scope.items()) or "-"
