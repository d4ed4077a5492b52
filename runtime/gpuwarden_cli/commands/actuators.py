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
