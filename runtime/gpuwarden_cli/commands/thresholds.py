"""`gpuwarden thresholds`: against which limits detectors hold what they see."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpuwarden_cli.output import print_json, print_table
from gpuwarden_cli.session import open_client


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(thresholds)


def thresholds(
    context: typer.Context,
    detector: Annotated[str | None, typer.Argument(help="Only this detector.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the limits in force, where they come from, and the alarms a day they let expect."""
    wanted = {} if detector is None else {"detector": detector}
    with open_client(context) as client:
        items = client.raw("/v1/thresholds", wanted)["items"]
    if as_json:
        print_json(items)
        return
    columns = ("DETECTOR", "SCOPE", "LIMIT", "FOR", "FROM", "BUDGET", "SEEN", "EXPECTED")
    print_table(
        columns, map(_row, items), "no limit: nothing was seen yet, or nothing of this name"
    )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    budget, expected = one["budget"], one["expected_a_day"]
    return (
        one["detector"],
        one["scope"] or "-",
        f"{one['limit']:.3g} {one['unit']}",
        f"{one['persist_s']:.0f} s",
        one["source"],
        "-" if budget is None else f"{budget:g} in 1,000 days",
        f"{one['entity_hours']:,.0f} h",
        "-" if expected is None else f"{expected:.2g} a day",
    )
