"""`gpuwarden diagnose`: where a job or the fleet is slow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.diagnosis_page import diagnosis_page
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import console, moment, number, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.call import segment


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(diagnose)


def diagnose(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(help="KIND:ID (slurm:4711) or the id; without one, the whole fleet."),
    ] = None,
    window: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="START END, as 2026-03-01T10:00Z or epoch seconds; else the latest hour, or the "
            "last of a job that has ended."
        ),
    ] = None,
    past: Annotated[
        float | None,
        typer.Option(min=0, max=24, help="Hours before it to compare with; else as much again."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page that can be sent to whoever owns the culprit.")
    ] = None,
    show: Annotated[
        str | None, typer.Option(metavar="ID", help="One that was made before: dia-….")
    ] = None,
    list_them: Annotated[
        bool, typer.Option("--list", help="Those that were made, newest first.")
    ] = False,
    node: Annotated[str | None, typer.Option(help="With --list: about this node.")] = None,
    culprit: Annotated[
        str | None, typer.Option(help="With --list: that blame this kind (storage, gpu …).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="With --list: at most so many.")] = 20,
) -> None:
    """Say where a job or the fleet is slow: who is to blame, who is not, since when, how sure."""
    begin, end = (None, None) if window is None else (_time(window[0]), _time(window[1]))
    _refuse_mixed(list_them, show, job, window)
    if list_them:
        where = {"job": job, "node": node, "culprit": culprit, "begin": begin, "end": end}
        _list(context, where | {"limit": limit}, as_json)
        return
    asked = {
        "job": job,
        "begin": begin,
        "end": end,
        "past_s": None if past is None else past * 3600,
    }
    with open_client(context) as client:
        told = (
            client.raw_post("/v1/diagnoses", asked)
            if show is None
            else client.raw(f"/v1/diagnoses/{segment(show)}", {})
        )
    if html is not None:
        _write(html, diagnosis_page(told))
    if as_json:
        print_json(told)
    else:
        _print(told)


def _refuse_mixed(
    list_them: bool, show: str | None, job: str | None, window: tuple[str, str] | None
) -> None:
    """One that was made needs no question.

    Raises:
        CommandError: Two things are asked at once.
    """
    if show is not None and (list_them or job is not None or window is not None):
        raise CommandError(
            ExitCode.USAGE,
            "--show names a diagnosis already",
            "Leave JOB, --window and --list out.",
        )


def _list(context: typer.Context, where: Mapping[str, object], as_json: bool) -> None:
    with open_client(context) as client:
        answer = client.raw("/v1/diagnoses", where)
    if as_json:
        print_json(answer)
        return
    columns = ("DIAGNOSIS", "MADE", "BY", "JOB", "CULPRIT", "CONF.", "LINE")
    print_table(columns, map(_row, answer["items"]), "no diagnosis")


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    culprit = f"{one['kind']} {one['entity']}".rstrip()
    made, job = moment(one["at"]), one["job"] or "the fleet"
    return one["id"], made, one["asked_by"], job, culprit, number(one["confidence"]), one["line"]


def _time(text: str) -> float:
    """Epoch seconds of what a person writes.

    Raises:
        CommandError: It is neither a date nor a number.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE, f"{text!r} is no time", "Write 2026-03-01T10:00Z, or epoch seconds."
        ) from error
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(
            ExitCode.LOCAL, f"{file} cannot be written: {error.strerror}", "Name another file."
        ) from error


def _print(told: Mapping[str, Any]) -> None:
    console().print(told["line"], markup=False, soft_wrap=True)
    by = told["asked_by"]
    console().print(f"{told['id']}, made {moment(told['at'])} for {by}", markup=False)
    phases = told["phases"]
    if phases is not None:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in phases["shares"].items())
        console().print(f"phases: {shares or 'none was seen'}", markup=False)
    for one in told["culprits"]:
        console().print(
            f"\n{one['words']}: score {one['score']:.2f}, {moment(one['since'])} to "
            f"{moment(one['until'])}",
            markup=False,
            soft_wrap=True,
        )
        for link in one["evidence"]:
            console().print(f"  - {link['sentence']}", markup=False, soft_wrap=True)
        console().print(f"  scale: {one['scale']['sentence']}", markup=False, soft_wrap=True)
    rows = [(one["what"], one["sentence"]) for one in told["acquitted"]]
    console().print("\nWhat it is not:")
    print_table(("PLANE", "WHY"), rows, "nothing is excluded")
    for words in told["blind"]:
        console().print(f"not seen: {words}", markup=False, soft_wrap=True)
    if told["nodes_left_out"]:
        console().print(f"not seen: {told['nodes_left_out']} further nodes", markup=False)
