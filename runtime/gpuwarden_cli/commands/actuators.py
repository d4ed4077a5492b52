"""`gpuwarden actuators`: how nodes stand at schedulers, folders and commands, and what was done."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpuwarden_cli.output import age, print_json, print_table
from gpuwarden_cli.session import open_client

Node = Annotated[str | None, typer.Option(help="Only of this node.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Schedulers, folders and commands that exclusions are carried into.")
    group.callback(invoke_without_command=True)(_root)
    group.command("list")(list_actuators)
    group.command("log")(log)
    group.command("ask")(ask)
    app.add_typer(group, name="actuators")


def _root(context: typer.Context, node: Node = None, as_json: AsJson = False) -> None:
    """Show how nodes stand there, or what was done."""
    if context.invoked_subcommand is None:
        list_actuators(context, node, as_json)


def list_actuators(context: typer.Context, node: Node = None, as_json: AsJson = False) -> None:
    """Show each consumer, and the nodes that are wanted out or carry our tag there."""
    with open_client(context) as client:
        items = client.raw("/v1/actuators", {} if node is None else {"node": node})["items"]
    if as_json:
        print_json(items)
        return
    columns = ("ACTUATOR", "KIND", "MODE", "LAST LOOK", "TROUBLE")
    print_table(columns, map(_consumer, items), "no actuator: nothing outside is changed")
    if rows := [_standing(one, at) for one in items for at in one["nodes"]]:
        print_table(("ACTUATOR", "NODE", "STANDING", "DUE", "DECISIONS", "WHY"), rows, "")


def log(
    context: typer.Context,
    node: Node = None,
    actuator: Annotated[str | None, typer.Option(help="Only of this actuator.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what was done there, newest first: each step with what was read back."""
    wanted: dict[str, Any] = {"limit": limit}
    wanted |= {} if node is None else {"node": node}
    wanted |= {} if actuator is None else {"actuator": actuator}
    with open_client(context) as client:
        items = client.raw("/v1/actuations", wanted)["items"]
    if as_json:
        print_json(items)
        return
    columns = ("AGE", "ACTUATOR", "NODE", "ACT", "PHASE", "BEFORE", "AFTER", "REASON")
    print_table(columns, map(_step, items), "nothing was done so far")


def ask(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="A node that exclusions in force keep out.")],
    act: Annotated[str, typer.Argument(help="reset, reboot or replace.")],
    reason: Annotated[str, typer.Option(help="Kept in history and audit.")],
    actuator: Annotated[str | None, typer.Option(help="Who does it, where several can.")] = None,
) -> None:
    """Ask a command or webhook for a reset, reboot or replacement of a node that is out.

    The node goes into repair: a passed check brings it back. It is done once, and what fails is not
    tried again by itself.
    """
    body = {"act": act, "actuator": actuator, "reason": reason}
    with open_client(context) as client:
        one = client.raw_post(f"/v1/nodes/{node}/remedies", body)
    told = "would be asked (dry run)" if one["phase"] == "dry_run" else "is asked"
    print(f"{one['actuator']} {told} to {one['act']} {one['node_id']}")
    print(f"gpuwarden actuators log --node {node} shows how it ends")


def _consumer(one: dict[str, Any]) -> tuple[str, ...]:
    looked = "never" if one["looked_at"] is None else age(one["looked_at"])
    mode = "dry run" if one["dry_run"] else f"acts, drift: {one['drift']}"
    return one["name"], one["kind"], mode, looked, one["trouble"] or "-"


def _standing(one: dict[str, Any], at: dict[str, Any]) -> tuple[str, ...]:
    due, decisions = ", ".join(at["due"]) or "-", ", ".join(at["decisions"]) or "-"
    return one["name"], at["node_id"], at["standing"], due, decisions, at["why"]


def _step(one: dict[str, Any]) -> tuple[str, ...]:
    told = one["reason"] if one["phase"] != "failed" else one["detail"]
    return (
        age(one["begun_at"]),
        one["actuator"],
        one["node_id"],
        one["act"],
        one["phase"],
        one["before"],
        one["after"] or "-",
        told,
    )
