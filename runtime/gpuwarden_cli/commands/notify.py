"""`gpuwarden notify`: who is told, whether that works, and what could not be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import age, moment, number, print_json, print_table
from gpuwarden_cli.session import open_client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of the endpoint.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit.")]
OnlyName = Annotated[str | None, typer.Option(help="Only of this endpoint.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]
After = Annotated[int, typer.Option(min=0, help="Rows above this one.")]

_ROUTE = "/v1/notifications"


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Who is told of incidents and decisions, and how that goes.")
    group.command("check")(check)
    group.command("endpoints")(endpoints)
    group.command("test")(test)
    group.command("enable")(enable)
    group.command("given-up")(given_up)
    group.command("replay")(replay)
    group.command("log")(log)
    app.add_typer(group, name="notify", no_args_is_help=True)


def check(file: Annotated[Path, typer.Argument(help="Notification file in TOML.")]) -> None:
    """Read a notification file as the server would, and say what is wrong with it."""
    parse = load("gpuwarden_server.notifications.parse", "parse_notify", "server")
    wrong = load("gpuwarden_server.notifications.parse", "NotifyError", "server")
    variable = load("gpuwarden_server.config", "variable", "server")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            ExitCode.LOCAL, f"cannot read {file}: {error}", "give a readable TOML file"
        ) from error
    try:
        document = parse(text, variable)
    except wrong as error:
        raise CommandError(
            ExitCode.USAGE, f"{file}: {error.key}: {error.detail}", error.mend
        ) from error
    rows = [
        (one.name, one.kind.value, one.route.severity.value, ", ".join(one.route.pools) or "all")
        for one in document.endpoints
    ]
    print_table(("ENDPOINT", "KIND", "SEVERITY", "POOLS"), rows, "no endpoint: nobody is told")


def endpoints(context: typer.Context, as_json: AsJson = False) -> None:
    """List the endpoints with what waits, what was given up, and who is disabled."""
    with open_client(context) as client:
        items = client.raw(f"{_ROUTE}/endpoints")["items"]
    if as_json:
        print_json(items)
        return
    rows = [
        (
            *(lane["lane"], item["kind"], item["severity"], lane["waiting"], lane["given_up"]),
            *(age(lane["failing_since"]), lane["disabled_why"]),
        )
        for item in items
        for lane in item["lanes"]
    ]
    columns = ("ENDPOINT", "KIND", "SEVERITY", "WAITING", "GIVEN UP", "FAILS FOR", "DISABLED")
    print_table(columns, rows, "no endpoint: set GPUWARDEN_NOTIFY_FILE")


def test(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Send a test to an endpoint, now; exit code 1 where it was not taken."""
    with open_client(context) as client:
        items = client.raw_post(f"{_ROUTE}/endpoints/{quote(name, safe='')}/test", {})["items"]
    if as_json:
        print_json(items)
    else:
        rows = [
            (
                one["lane"],
                "taken" if one["delivered"] else "not taken",
                number(one["duration_s"], 3),
                one["error"],
            )
            for one in items
        ]
        print_table(("ENDPOINT", "TEST", "SECONDS", "ERROR"), rows, "nothing was sent")
    if not all(one["delivered"] for one in items):
        raise typer.Exit(ExitCode.NEGATIVE)


def enable(context: typer.Context, name: Name, reason: Reason) -> None:
    """Send again to an endpoint that was disabled."""
    with open_client(context) as client:
        client.raw_post(f"{_ROUTE}/endpoints/{quote(name, safe='')}/enable", {"reason": reason})
    print(f"{name} is enabled; what was given up is told with: gpuwarden notify replay {name}")


def given_up(
    context: typer.Context,
    name: OnlyName = None,
    limit: Limit = 100,
    after: After = 0,
    as_json: AsJson = False,
) -> None:
    """List messages that no attempt delivered within a day, or that were refused for good."""
    query = {"endpoint": name, "phase": "given_up", "limit": limit, "after": after}
    with open_client(context) as client:
        items = client.raw(f"{_ROUTE}/messages", query)["items"]
    if as_json:
        print_json(items)
        return
    rows = [
        (one["row"], one["lane"], one["message_id"], moment(one["created_at"]), one["error"])
        for one in items
    ]
    print_table(("ROW", "ENDPOINT", "MESSAGE", "OF", "ERROR"), rows, "nothing was given up")


def replay(
    context: typer.Context,
    name: Name,
    reason: Reason,
    message: Annotated[
        str | None, typer.Option(help="One message; else all that were given up.")
    ] = None,
) -> None:
    """Tell anew what was given up."""
    body = {"message_id": message, "reason": reason}
    with open_client(context) as client:
        answer = client.raw_post(f"{_ROUTE}/endpoints/{quote(name, safe='')}/replay", body)
    print(f"{answer['replayed']} messages wait anew")


def log(
    context: typer.Context,
    name: OnlyName = None,
    message: Annotated[str | None, typer.Option(help="Only of this message.")] = None,
    limit: Limit = 100,
    after: After = 0,
    as_json: AsJson = False,
) -> None:
    """List delivery attempts, oldest first."""
    query = {"endpoint": name, "message_id": message, "limit": limit, "after": after}
    with open_client(context) as client:
        items = client.raw(f"{_ROUTE}/deliveries", query)["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        ("ROW", "AT", "ENDPOINT", "MESSAGE", "TRY", "SECONDS", "HTTP", "ERROR"),
        map(_attempt_row, items),
        "no attempt yet",
    )


def _attempt_row(one: dict[str, Any]) -> tuple[str | int | None, ...]:
    return (
        *(one["row"], moment(one["at"]), one["lane"], one["message_id"], one["attempt"]),
        *(number(one["duration_s"], 3), one["http_status"], one["error"]),
    )
