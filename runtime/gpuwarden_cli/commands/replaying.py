"""`gpuwarden replay`: a decision judged again, from what it rested on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.exits import ExitCode
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.policy_files import read_file
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.call import segment


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(replay)


def replay(
    context: typer.Context,
    decision_id: Annotated[str, typer.Argument(help="dec-…")],
    policy: Annotated[
        Path | None, typer.Option(help="Policy file to judge by; else the one that decided.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a decision again, at each of its moves, by the evaluator that decided.

    Ends with 1 where it comes out otherwise.
    """
    body = {} if policy is None else {"policy": read_file(policy)}
    with open_client(context) as client:
        answer = client.raw_ask(f"/v1/decisions/{segment(decision_id)}/replay", body)
    if as_json:
        print_json(answer)
    else:
        _tell(answer, policy)
    if not answer["same"]:
        raise typer.Exit(ExitCode.NEGATIVE)


def _tell(answer: dict[str, Any], policy: Path | None) -> None:
    by = "its own policy" if policy is None else str(policy)
    said = "the same decision" if answer["same"] else "another decision"
    print(f"{answer['decision_id']} by {by}: {said}")
    rows = (
        (moment(one["at"]), one["policy_version"], one["pool"], _stand(one["then"]),
         _stand(one["now"]), "yes" if one["same"] else "no")
        for one in answer["steps"]
    )  # fmt: skip
    print_table(("AT", "POLICY", "POOL", "THEN", "NOW", "SAME"), rows, "it never moved")
    for note in dict.fromkeys(note for one in answer["steps"] for note in one["notes"]):
        print(f"  note: {note}")


def _stand(stand: dict[str, Any]) -> str:
    if stand["effect"] == "nothing":
        return "nothing"
    held = f": {stand['guard_says']}" if stand["guard"] else ""
    advised = f", {stand['advised']} waits for approval" if stand["advised"] else ""
    return f"{stand['effect']} ({stand['rung']}){held}{advised}"
