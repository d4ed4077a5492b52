"""`gpuwarden shadow`: what the learnt scores would have excluded."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuwarden_cli.output import age, moment, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.learning_records import ShadowRecord, WouldExclude


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(shadow)


def shadow(
    context: typer.Context,
    node: Annotated[str | None, typer.Option(help="Only exclusions of this node.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What the learnt scores would have excluded, and what is missing before they may."""
    with open_client(context) as client:
        items = client.shadow(node)
    if as_json:
        print_json(items)
        return
    counts = ("HEALTHY DAYS", "WOULD", "NEEDED", "FALSE", "UNSETTLED", "FALSE A DAY <", "WANTED")
    columns = ("KIND", "VERSION", "ROLE", "TRIED", *counts)
    print_table(columns, map(_row, items), "no model is loaded: rules judge alone")
    for item in items:
        print(f"\n{item.kind} {item.version} ({item.role}): {_gate(item)}")
        for line in item.missing:
            print(f"  - {line}")
        if item.exclusions:
            heads = ("ID", "SINCE", "UNTIL", "NODE", "ENTITY", "PROB.", "CLASS", "PLANES")
            print_table((*heads, "OUTCOME"), map(_exclusion, item.exclusions), "")


def _gate(item: ShadowRecord) -> str:
    if not item.missing:
        return "may exclude where evidence of two planes supports it"
    return "may not exclude; missing is"


def _row(item: ShadowRecord) -> tuple[str | int, ...]:
    bound = "-" if item.bound_per_day is None else f"{item.bound_per_day:.2g}"
    return (
        item.kind,
        item.version,
        item.role,
        age(item.begun_at),
        f"{item.healthy_days:,.1f}",
        item.would_exclude,
        item.needed,
        item.false,
        item.unsettled,
        bound,
        f"{item.tolerated_per_day:.2g}",
    )


def _exclusion(one: WouldExclude) -> tuple[str, ...]:
    return (
        one.id,
        moment(one.since),
        moment(one.until),
        one.node_id,
        one.entity,
        f"{one.probability:.2f}",
        one.fault_class,
        ", ".join(one.planes),
        one.outcome,
    )
