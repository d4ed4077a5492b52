"""`gpuwarden silence`: tell nobody what matches, for a while."""

from __future__ import annotations

from datetime import UTC, datetime
from re import fullmatch
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.reservations import import_reservations
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Silences and maintenance windows of notifications.")
    group.command("create")(create)
    group.command("list")(list_silences)
    group.command("expire")(expire)
    group.command("import")(import_reservations)
    app.add_typer(group, name="silence", no_args_is_help=True)


def create(
    context: typer.Context,
    matchers: Annotated[
        list[str],
        typer.Argument(
            help="LABEL=PATTERN, LABEL!=PATTERN, LABEL=~REGEX or LABEL!~REGEX; all must hold."
        ),
    ],
    duration: Annotated[str, typer.Option("--for", help="30m, 2h, 3d.")],
    reason: Annotated[str, typer.Option(help="Why, for those who wonder.")],
    begin: Annotated[
        str | None, typer.Option("--from", help="ISO time with zone; else now.")
    ] = None,
    maintenance: Annotated[
        bool, typer.Option("--maintenance", help="A maintenance window.")
    ] = False,
) -> None:
    """Tell nobody what matches; what still stands at the end is told then."""
    body: dict[str, object] = {
        "kind": "maintenance" if maintenance else "silence",
        "matchers": matchers,
        "duration_s": parse_duration(duration),
        "reason": reason,
    }
    if begin is not None:
        body["starts_at"] = parse_moment(begin)
    with open_client(context) as client:
        made = client.raw_post("/v1/silences", body)
    print(f"{made['id']} holds from {moment(made['starts_at'])} to {moment(made['ends_at'])}")


def list_silences(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List silences that hold or will."""
    with open_client(context) as client:
        items = client.raw("/v1/silences", {"active": str(not every).lower()})["items"]
    if as_json:
        print_json(items)
        return
    columns = ("SILENCE", "KIND", "PHASE", "FROM", "TO", "BY", "WHAT")
    print_table(columns, map(_row, items), "no silence")


def expire(
    context: typer.Context,
    silence_id: Annotated[str, typer.Argument(help="sil-…")],
    reason: Annotated[str, typer.Option(help="Why, for the audit.")],
) -> None:
    """End a silence now."""
    with open_client(context) as client:
        client.raw_post(f"/v1/silences/{silence_id}/expire", {"reason": reason})
    print(f"{silence_id} has ended")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    what = f"{' '.join(one['matchers'])}: {one['reason']}"
    times = moment(one["starts_at"]), moment(one["ends_at"])
    return one["id"], one["kind"], one["phase"], *times, one["author"], what


def parse_duration(text: str) -> float:
    """Seconds of "30m", "2h", "3d", "90s".

    Raises:
        CommandError: Not of that form.
    """
    found = fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if found is None:
        raise CommandError(
            ExitCode.USAGE, f"--for {text!r} is no duration", "write 90s, 30m, 2h or 3d"
        )
    return float(found[1]) * _UNITS[found[2]]


def parse_moment(text: str) -> float:
    """Epoch seconds of an ISO time with a zone.

    Raises:
        CommandError: No such time.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE, f"--from {text!r} is no ISO time", "write 2030-01-31T08:00:00+01:00"
        ) from error
    if found.tzinfo is None:
        raise CommandError(
            ExitCode.USAGE,
            f"--from {text!r} has no zone",
            f"write {found.replace(tzinfo=UTC).isoformat()} for UTC",
        )
    return found.timestamp()
