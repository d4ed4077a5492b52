"""`gpuwarden incidents`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuwarden_cli.output import age, number, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.records import IncidentRecord

Phase = Annotated[
    str | None, typer.Option(help="open, acknowledged, mitigated or resolved; else all.")
]
Node = Annotated[str | None, typer.Option(help="Only of this node.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many, newest first.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Faults from first evidence to recovery.")
    group.callback(invoke_without_command=True)(_root)
    group.command("list")(list_incidents)
    group.command("acknowledge")(acknowledge)
    group.command("clear")(clear)
    app.add_typer(group, name="incidents")
    app.add_typer(group, name="incident", hidden=True)


def _root(
    context: typer.Context,
    phase: Phase = None,
    node: Node = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List incidents, or act on one."""
    if context.invoked_subcommand is None:
        list_incidents(context, phase, node, limit, as_json)


def list_incidents(
    context: typer.Context,
    phase: Phase = None,
    node: Node = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List incidents, newest first."""
    with open_client(context) as client:
        items = client.incidents(phase, node, limit=limit).items
    if as_json:
        print_json(items)
        return
    columns = ("INCIDENT", "PHASE", "SEVERITY", "CLASS", "CONF.", "AGE", "ENTITY", "WHY")
    print_table(columns, map(_row, items), "no incident")


def acknowledge(
    context: typer.Context,
    incident_id: Annotated[str, typer.Argument(help="inc-…")],
    reason: Annotated[str, typer.Option(help="Who looks after it, and how.")],
) -> None:
    """Say that somebody looks after an incident."""
    with open_client(context) as client:
        client.acknowledge_incident(incident_id, reason)
    print(f"{incident_id} is acknowledged")


def clear(
    context: typer.Context,
    incident_id: Annotated[str, typer.Argument(help="inc-…")],
    reason: Annotated[str, typer.Option(help="Why it is over, for the record.")],
) -> None:
    """Close an incident: its exclusion ends, and it comes back on new evidence only."""
    with open_client(context) as client:
        client.clear_incident(incident_id, reason)
    print(f"{incident_id} is cleared; it comes back on new evidence only")


def _row(item: IncidentRecord) -> tuple[str, ...]:
    entity = item.entity if item.entity_kind != "gpu" else f"{item.node_id} {item.entity}"
    return (
        item.id,
        item.phase,
        item.severity,
        item.fault_class,
        number(item.confidence),
        age(item.opened_at),
        entity,
        item.why,
    )
