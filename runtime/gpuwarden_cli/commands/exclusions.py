"""`gpuwarden exclusions`: the exclusions in force, in the forms that schedulers take."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client


class Form(StrEnum):
    """How to print."""

    TABLE = "table"  # for people
    JSON = "json"  # the feed's set, with epoch and digest
    HOSTS = "hosts"  # a node a line
    SLURM = "slurm"  # one comma-separated line, as sbatch --exclude takes it


class Scope(StrEnum):
    """Which exclusions put a node into the hosts and slurm forms."""

    ANY = "any"  # of the node or of any of its GPUs
    NODE = "node"  # of the whole node only


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(exclusions)


def exclusions(
    context: typer.Context,
    form: Annotated[Form, typer.Option("--format", help="Form of the output.")] = Form.TABLE,
    scope: Annotated[
        Scope, typer.Option(help="hosts, slurm: by any excluded GPU, or whole nodes only.")
    ] = Scope.ANY,
) -> None:
    """Print the exclusions in force."""
    with open_client(context) as client:
        if form in (Form.HOSTS, Form.SLURM):
            text = client.exclusions_text(form, scope)
            sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
            return
        content = client.exclusions()
    if form is Form.JSON:
        print_json(content)
        return
    rows = [
        (
            *(item.node_id, item.entity_kind, item.entity, kind, item.decided_by),
            *(moment(item.since), item.decision_id, item.reason),
        )
        for kind, items in (("yes", content.exclusions), ("would be", content.would_exclude))
        for item in items
    ]
    columns = ("NODE", "KIND", "ENTITY", "IN FORCE", "BY", "SINCE", "DECISION", "REASON")
    print_table(columns, rows, f"nothing is excluded (epoch {content.epoch})")
