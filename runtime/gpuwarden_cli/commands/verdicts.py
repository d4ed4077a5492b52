"""`gpuwarden verdict` and `gpuwarden labels`: what incidents turned out to be."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from gpuwarden_cli.output import age, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.learning_records import LabelRecord


class Verdict(StrEnum):
    """What a person may say of an incident."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    OPERATOR = "operator"
    FALSE_ALARM = "false_alarm"
    UNKNOWN = "unknown"


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    app.command()(verdict)
    app.command()(labels)


def verdict(
    context: typer.Context,
    incident_id: Annotated[str, typer.Argument(help="inc-…")],
    said: Annotated[
        Verdict,
        typer.Argument(
            metavar="VERDICT",
            help="hardware; application (its program); operator (maintenance, a person's doing); "
            "false_alarm; unknown.",
        ),
    ],
    note: Annotated[str, typer.Option(help="Why, for the record.")] = "",
) -> None:
    """Say what an incident turned out to be: models learn from it. A later word corrects it."""
    with open_client(context) as client:
        given = client.judge_incident(incident_id, said.value, note)
    print(f"{incident_id} was {given.verdict}, says {given.author}")


def labels(
    context: typer.Context,
    node: Annotated[str | None, typer.Option(help="Only of this node.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What incidents turned out to be, by people's verdicts, repairs, checks and jobs."""
    with open_client(context) as client:
        items = list(islice(client.all_labels(node, limit=min(limit, 1000)), limit))
    if as_json:
        print_json(items)
        return
    columns = ("INCIDENT", "AGE", "NODE", "ENTITY", "CLASS", "LABEL", "BY", "WHY")
    print_table(columns, map(_row, items), "no incident")


def _row(item: LabelRecord) -> tuple[str, ...]:
    return (
        item.incident_id,
        age(item.opened_at),
        item.node_id,
        item.entity,
        item.fault_class,
        item.label,
        item.source,
        item.note,
    )
