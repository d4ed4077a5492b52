"""`gpuwarden lemons`: parts and places by their own severe past."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpuwarden_cli.output import console, moment, print_json, print_table
from gpuwarden_cli.session import open_client


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(lemons)


def lemons(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most entries.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List parts and places by their own severe past; no verdict, nothing acts on it."""
    with open_client(context) as client:
        answer = client.raw("/v1/lemons", {"limit": limit})
    if as_json:
        print_json(answer)
        return
    columns = ("BECAUSE", "KIND", "ENTITY", "NODE", "SERIAL", "WEIGHT", "EVENTS")
    print_table(columns, map(_row, answer["items"]), "nobody: no severe event of late")
    days = answer["followed_within_days"]
    for name in ("parts", "places"):
        console().print(_record(name, answer[name], days), markup=False)
    console().print("No verdict: nothing acts on this list.")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["because"],
        one["entity_kind"],
        one["entity"],
        one["node_id"],
        one["serial"],
        f"{one['weight']:.2f}",
        ", ".join(f"{event['fault']} {moment(event['at'])}" for event in one["events"]),
    )


def _record(name: str, record: dict[str, Any], days: float) -> str:
    if record["precision"] is None:
        return (
            f"Precision of {name}: unknown yet, no entry is {days:.0f} days old"
            f" ({record['young']} younger)"
        )
    return (
        f"Precision of {name}: {record['followed']} of {record['entries']} former entries had"
        f" another severe event within {days:.0f} days: {record['precision']:.0%}"
        f" (95 %: {record['low']:.0%} to {record['high']:.0%}); {record['young']} are too young"
    )
