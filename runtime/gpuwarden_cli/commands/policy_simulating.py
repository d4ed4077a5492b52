"""`gpuwarden policy simulate`: what another policy would have done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.backtest import models_in, playing
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.policy_files import SERVER, parse_file, parse_text, read_file
from gpuwarden_cli.session import open_client

HISTORY = "history"
_MOST_SHOWN = 20


def simulate(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Policy file to try.")],
    against: Annotated[
        str,
        typer.Option(
            help="Folder of a recording, or `history`: the decisions that the server has stored."
        ),
    ],
    present: Annotated[
        str | None,
        typer.Option(
            help="With a recording, the present policy: a file, or `server` for the one in force "
            "there; else the built-in rules."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="With history: from when, ISO 8601 or epoch seconds; else 30 days ago."),
    ] = None,
    repair_hours: Annotated[
        float,
        typer.Option(
            min=0,
            help="With a recording: after so many hours out, an entity is repaired and passes a "
            "check, since nobody repairs in a recording; 0 for never.",
        ),
    ] = 24.0,
    model: Annotated[
        Path | None,
        typer.Option(help="With a recording: folder of models; else those that ship."),
    ] = None,
    rules_alone: Annotated[
        bool, typer.Option("--rules-alone", help="With a recording: without the learnt scores.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What this policy would have excluded, held back and advised, beside the present one.

    Modes, caps and every other limit hold as both policies say.
    """
    if against == HISTORY:
        form = _history(context, file, since)
    else:
        scores = {} if rules_alone else models_in(model)
        policies = (_present(context, present), parse_file(file))
        form = _recording(Path(against), policies, scores, repair_hours)
    if as_json:
        print_json(form)
        return
    _tell(form)


def _history(context: typer.Context, file: Path, since: str | None) -> dict[str, Any]:
    at = time.time() - 30 * 86400.0 if since is None else _moment(since)
    with open_client(context) as client:
        body = {"policy": read_file(file), "since": at}
        answer: dict[str, Any] = client.raw_ask("/v1/policy/simulation", body)
    return answer


def _moment(text: str) -> float:
    try:
        at: float = load("gpuwarden_models.recording_tables", "parse_time", "train")(text)
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE,
            f"--since {text!r} is no time",
            "give ISO 8601, as 2026-03-01T12:00:00, or epoch seconds",
        ) from error
    return at


def _present(context: typer.Context, present: str | None) -> Any:
    if present is None:
        return parse_text("", "built in")
    if present != SERVER:
        return parse_file(Path(present))
    with open_client(context) as client:
        kept = client.raw(f"/v1/policy/versions/{client.policy().version}")
    return parse_text(kept["text"], SERVER, kept["mode"])


def _recording(
    folder: Path, policies: tuple[Any, Any], scores: Any, repair_hours: float
) -> dict[str, Any]:
    wrong = load("gpuwarden_models.recording", "RecordingError", "train")
    kinds = load("gpuwarden_models.names", "KEY_COLUMNS", "train")
    run = load("gpuwarden_models.backtest.policies", "simulate_policies", "train")
    try:
        history = load("gpuwarden_models.recording", "Recording", "train")(folder, tuple(kinds))
        with playing(f"{len(history.nodes)} nodes") as show:
            found = run(history, str(folder), policies, scores, repair_hours, show)
    except (OSError, wrong) as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    form: dict[str, Any] = found.form()
    return form


def _tell(form: dict[str, Any]) -> None:
    print(f"present policy {form['before']}, this one {form['after']}; {_span(form)}")
    rows = [
        (group["pool"], group["fault_class"], effect, *_counts(group["before"], effect),
         *_counts(group["after"], effect))
        for group in form["by"]
        for effect in ("excluded", "held_back", "advised", "observed", "suspect")
        if any(one["effect"] == effect for one in (*group["before"], *group["after"]))
    ]  # fmt: skip
    columns = ("POOL", "CLASS", "EFFECT", "PRESENT", "GPU-HOURS", "THIS", "GPU-HOURS")
    print_table(columns, rows, "nothing was decided")
    cases = form["cases"]
    print(f"cases that differ: {form['differing']}")
    shown = (
        (moment(one["at"]), one["entity_kind"], one["entity"], one["fault_class"],
         _stand(one, "before"), _stand(one, "after"), one["reason"])
        for one in cases[:_MOST_SHOWN]
    )  # fmt: skip
    if cases:
        print_table(("AT", "KIND", "ENTITY", "CLASS", "PRESENT", "THIS", "WHY"), shown, "")
    if form["differing"] > _MOST_SHOWN:
        print(f"  {form['differing'] - _MOST_SHOWN} more with --json")
    for note in form.get("notes", ()):
        print(f"  note: {note}")


def _span(form: dict[str, Any]) -> str:
    played = form.get("recording")
    if played is None:
        unread = sum(form["unread"].values())
        more = "; there are more: ask about a shorter time" if form["is_cut"] else ""
        lost = f", {unread} could not be read" if unread else ""
        return f"{form['decisions']} decisions since {moment(form['since'])}{lost}{more}"
    hours = (played["end"] - played["start"]) / 3600.0
    return f"{played['nodes']} nodes, {played['gpus']} GPUs, {hours:.1f} h of {played['source']}"


def _counts(lines: list[dict[str, Any]], effect: str) -> tuple[str, str]:
    """Cases whose most was this, and the GPU-hours of all in which it happened."""
    found = next((one for one in lines if one["effect"] == effect), None)
    return ("-", "-") if found is None else (str(found["cases"]), f"{found['gpu_hours']:.1f}")


def _stand(case: dict[str, Any], side: str) -> str:
    stand, hours = case[side], case[f"{side}_gpu_hours"]
    if stand["effect"] == "nothing":
        return "nothing"
    guard = f" by {stand['guard']}" if stand["guard"] else ""
    advised = f", {stand['advised']} advised" if stand["advised"] else ""
    return f"{stand['effect']} ({stand['rung']}{guard}{advised}), {hours:.1f} GPU-h"
