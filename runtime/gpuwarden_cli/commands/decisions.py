"""`gpuwarden decisions`: what was decided; take it back or put it in force."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuwarden_cli.commands.silences import parse_duration
from gpuwarden_cli.cost_words import cost_words
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import age, moment, number, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.records import DecisionRecord

Phase = Annotated[
    str | None,
    typer.Option(help="proposed, in_force, held_back, revoked, expired or lifted; else all."),
]
Node = Annotated[str | None, typer.Option(help="Only of this node.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many, newest first.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_RUNGS = ("exclude", "drain", "evict")
DecisionId = Annotated[str, typer.Argument(help="dec-…")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="What was decided about nodes and GPUs.")
    group.callback(invoke_without_command=True)(_root)
    group.command("list")(list_decisions)
    group.command("revoke")(revoke)
    group.command("approve")(approve)
    group.command("hold")(hold)
    group.command("let-go")(let_go)
    app.add_typer(group, name="decisions")


def _root(
    context: typer.Context,
    phase: Phase = None,
    node: Node = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List decisions, or act on one."""
    if context.invoked_subcommand is None:
        list_decisions(context, phase, node, limit, as_json)


def list_decisions(
    context: typer.Context,
    phase: Phase = None,
    node: Node = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List decisions, newest first."""
    with open_client(context) as client:
        items = client.decisions(phase, node, limit=limit, ledger=True).items
    if as_json:
        print_json(items)
        return
    columns = (
        "DECISION",
        "PHASE",
        "RUNG",
        "MODE",
        "BY",
        "CONF.",
        "AGE",
        "ENTITY",
        "REASONS",
        "LEDGER",
    )
    print_table(columns, map(_row, items), "no decision")


def revoke(context: typer.Context, decision_id: DecisionId, reason: Reason) -> None:
    """Take a decision back and acquit its incident for a day."""
    with open_client(context) as client:
        client.revoke_decision(decision_id, reason)
    print(f"{decision_id} is revoked; its incident decides again only on worse evidence")


def approve(
    context: typer.Context,
    decision_id: DecisionId,
    reason: Reason,
    rung: Annotated[
        str | None, typer.Option(help="Only where it asks for this: exclude, drain or evict.")
    ] = None,
) -> None:
    """Put an advised decision in force: what is printed, or nothing where it changes meanwhile."""
    with open_client(context) as client:
        found = client.decision(decision_id)
        asked = found.advised or str(found.rung)
        why = "; ".join(found.reasons[:1])
        print(f"{decision_id}: {asked} {found.entity} on {found.node_id}: {why}")
        if rung is not None and rung != asked:
            raise CommandError(
                ExitCode.NEGATIVE, f"it asks for {asked}, not {rung}", "nothing was approved"
            )
        client.approve_decision(decision_id, reason, asked if asked in _RUNGS else None)
    print(f"{decision_id} is in force")


def hold(
    context: typer.Context,
    decision_id: DecisionId,
    reason: Reason,
    duration: Annotated[str, typer.Option("--for", help="30m, 2h, 3d.")],
) -> None:
    """Let a decision neither come into force nor rise for a time; that it ends is not held."""
    body = {"duration_s": parse_duration(duration), "reason": reason}
    with open_client(context) as client:
        held = client.raw_post(f"/v1/decisions/{decision_id}/hold", body)["held"]
    print(f"{decision_id} goes no further until {moment(held['until'])}")


def let_go(context: typer.Context, decision_id: DecisionId, reason: Reason) -> None:
    """End a hold: the decision is judged again at once."""
    with open_client(context) as client:
        client.raw_post(f"/v1/decisions/{decision_id}/let-go", {"reason": reason})
    print(f"{decision_id} is held no more")


def _row(item: DecisionRecord) -> tuple[str, ...]:
    entity = item.entity if item.entity_kind != "gpu" else f"{item.node_id} {item.entity}"
    more = tuple(text for text in (item.held_back_by, item.waits_for) if text)
    return (
        item.id,
        item.phase,
        str(item.rung),
        item.mode,
        item.decided_by,
        number(item.confidence),
        age(item.decided_at),
        entity,
        "; ".join((*item.reasons, *more)),
        cost_words(item.ledger),
    )
