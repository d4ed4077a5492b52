"""`gpuwarden ledger`: what decisions saved and lost, and how often they were wrong."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from gpuwarden_cli.cost_words import cost_words
from gpuwarden_cli.output import age, console, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.cost_records import CostRecord


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(ledger)


def ledger(
    context: typer.Context,
    days: Annotated[float, typer.Option(min=0.001, help="How far back.")] = 30.0,
    node: Annotated[str | None, typer.Option(help="Only of this node.")] = None,
    limit: Annotated[int, typer.Option(min=0, max=1000, help="Most decisions listed.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what decisions saved and lost by stated assumptions, and how often they were wrong."""
    wanted = {"days": days, "limit": limit} | ({} if node is None else {"node": node})
    with open_client(context) as client:
        answer = client.raw("/v1/ledger", wanted)
    if as_json:
        print_json(answer)
        return
    columns = ("DECISION", "BEGAN", "NODE", "CLASS", "RUNG", "TURNED OUT", "LEDGER")
    print_table(columns, map(_row, answer["items"]), "no decision excluded anything")
    currency = answer["prices"]["currency"]
    for title, name in (("In force", "acted"), ("Would have been", "would")):
        console().print(f"\n{title}: {_totals(answer[name], currency)}", markup=False)
    rates = ("FALSE", "OF", "SHARE", "95 % EXACT", "IF ALL OPEN ARE FALSE")
    console().print("")
    print_table(rates, map(_rate, answer["false_rates"]), "")
    console().print(_spread(answer["concentration"]), markup=False)
    console().print("\nAssumed:")
    for one in answer["assumptions"]:
        line = f"  {one['name']} = {one['value']:g} {one['unit']}: {one['what']} ({one['source']})"
        console().print(line, markup=False, soft_wrap=True)
    if not currency:
        console().print("  no prices: set GPUWARDEN_SAVINGS_FILE; see docs/ledger.md")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    cost = msgspec.convert(one["ledger"], CostRecord)
    return (
        *(one["decision_id"], age(one["begun_at"]), one["node_id"], one["fault_class"]),
        *(one["rung"], f"{cost.outcome}: {cost.why}", cost_words(cost)),
    )


def _totals(sums: dict[str, Any], currency: str) -> str:
    def money(name: str) -> str:
        return f", {sums[name]:,.2f} {currency}" if currency else ""

    unknown = sums["kwh_unknown"]
    left = f" ({unknown} without an energy counter)" if unknown else ""
    return (
        f"{sums['decisions']} decisions, {sums['right']} right, {sums['wrong']} wrong,"
        f" {sums['unsettled']} open."
        f" Saved {sums['saved_gpu_hours']:,.1f} GPU-h, {sums['saved_kwh']:,.1f} kWh"
        f"{money('saved_money')};"
        f" lost {sums['lost_gpu_hours']:,.1f} GPU-h, {sums['lost_kwh']:,.1f} kWh"
        f"{money('lost_money')}{left}."
        f" Open: {sums['open_saved_gpu_hours']:,.1f} GPU-h saved if all are right,"
        f" {sums['open_lost_gpu_hours']:,.1f} lost if all are wrong."
    )


def _rate(one: dict[str, Any]) -> tuple[str, ...]:
    name = one["of"] if one["of"] == "fleet" else f"{one['of']} {one['name']}"
    share = "-" if one["share"] is None else f"{one['share']:.1%}"
    counted = f"{one['wrong']} of {one['settled']} settled, {one['unsettled']} open"
    bounds = f"{one['low']:.1%} to {one['high']:.1%}"
    return name, counted, share, bounds, f"below {one['high_if_open_are_false']:.1%}"


def _spread(found: dict[str, Any]) -> str:
    if found["gini"] is None:
        return "No exclusion was in force."
    top = ", ".join(f"top {one['nodes']}: {one['share']:.0%}" for one in found["top"])
    worst = ", ".join(f"{one['node_id']} {one['exclusions']} times" for one in found["worst"])
    return (
        f"{found['exclusions']} exclusions on {found['nodes_excluded']} of {found['nodes']} nodes;"
        f" {top}; Gini {found['gini']:.2f}{'; ' if worst else ''}{worst}."
        " Parts that fail again and again: gpuwarden lemons."
    )
