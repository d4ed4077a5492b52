"""`gpuwarden pin`, `unpin`, `pins` and `maintenance`: people's standing words."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.entities import gpu_of
from gpuwarden_cli.commands.silences import parse_duration, parse_moment
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.client import Client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Entity = Annotated[str, typer.Argument(help="A node, a GPU by its UUID, or NODE:INDEX.")]
Reason = Annotated[str, typer.Option(help="Why, for those who wonder.")]
Duration = Annotated[
    str | None, typer.Option("--for", help="30m, 2h, 3d; else until it is ended by hand.")
]


def register(app: typer.Typer) -> None:
    """Put the commands into the app."""
    app.command("pin")(pin)
    app.command("unpin")(unpin)
    app.command("pins")(pins)
    app.command("maintenance")(maintenance)


def pin(
    context: typer.Context,
    entity: Entity,
    reason: Reason,
    exclude: Annotated[bool, typer.Option("--exclude", help="Keep it out.")] = False,
    allow: Annotated[bool, typer.Option("--allow", help="Keep it in.")] = False,
    until: Annotated[str | None, typer.Option(help="ISO time with zone.")] = None,
    duration: Duration = None,
) -> None:
    """Keep a node or GPU out, or in whatever gpuwarden sees; takes the place of its last pin."""
    if exclude == allow:
        raise CommandError(ExitCode.USAGE, "in or out?", "give --exclude or --allow")
    lasts_s = _lasts_s(until, duration)
    with open_client(context) as client:
        named = _named(client, entity)
        body = {
            "entity_kind": "gpu" if named.startswith("GPU-") else "node",
            "entity": named,
            "kind": "exclude" if exclude else "allow",
            "reason": reason,
            "duration_s": lasts_s,
        }
        made = client.raw_post("/v1/pins", body)
    print(f"{made['id']} keeps {entity} {'out' if exclude else 'in'} {_until(made)}")


def unpin(context: typer.Context, entity: Entity, reason: Reason) -> None:
    """End the pin or planned leave of a node or GPU."""
    with open_client(context) as client:
        wanted = _named(client, entity)
        found = [one for one in client.raw("/v1/pins")["items"] if wanted in _names(one)]
        if not found:
            raise CommandError(
                ExitCode.NEGATIVE, f"nothing is pinned at {entity}", "see `gpuwarden pins`"
            )
        for one in found:
            client.raw_post(f"/v1/pins/{one['id']}/end", {"reason": reason})
            checked = ": a passed check brings it back" if one["check"] else ""
            print(f"{one['id']} has ended{checked}")


def pins(context: typer.Context, as_json: AsJson = False) -> None:
    """List pins and planned leaves that hold or will."""
    with open_client(context) as client:
        items = client.raw("/v1/pins")["items"]
    if as_json:
        print_json(items)
        return
    columns = ("PIN", "ENTITY", "KIND", "FROM", "UNTIL", "BY", "REASON")
    print_table(columns, map(_row, items), "nothing is pinned")


def maintenance(
    context: typer.Context,
    nodes: Annotated[list[str], typer.Argument(help="Nodes that leave.")],
    at: Annotated[str, typer.Option(help="ISO time with zone, or now.")],
    reason: Reason,
    duration: Duration = None,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help="They return over a passed check only; without either as the policy says.",
        ),
    ] = None,
) -> None:
    """Plan that nodes leave: told ahead, excluded at the time, back when it is over.

    Until then launchers start nothing that would reach into it (--needs), and ask what runs to stop
    at its next checkpoint (--leave-signal, --leave-file). While it lasts faults there are silent.
    """
    body = {
        "nodes": nodes,
        "at": time.time() if at == "now" else parse_moment(at),
        "duration_s": None if duration is None else parse_duration(duration),
        "check": check,
        "reason": reason,
    }
    with open_client(context) as client:
        items = client.raw_post("/v1/leaves", body)["items"]
    for one in items:
        over = ", then back over a passed check" if one["check"] else ""
        at = moment(one["starts_at"])
        print(f"{one['id']}: {one['entity']} leaves at {at} {_until(one)}{over}")


def _named(client: Client, entity: str) -> str:
    """A node, or the UUID of a GPU that may be named as NODE:INDEX."""
    is_place = entity.rpartition(":")[2].isdecimal() and ":" in entity
    return gpu_of(client, entity) if is_place else entity


def _names(pin: dict[str, Any]) -> tuple[str, str]:
    return pin["entity"], pin["id"]


def _lasts_s(until: str | None, duration: str | None) -> float | None:
    if until is not None and duration is not None:
        raise CommandError(ExitCode.USAGE, "two ends", "give --until or --for")
    if duration is not None:
        return parse_duration(duration)
    if until is None:
        return None
    lasts_s = parse_moment(until) - time.time()
    if lasts_s <= 0:
        raise CommandError(ExitCode.USAGE, f"--until {until} has passed", "give a later time")
    return lasts_s


def _until(pin: dict[str, Any]) -> str:
    ends = pin["expires_at"]
    return "until it is ended" if ends is None else f"until {moment(ends)}"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    kind = "leave" if one["leave"] else one["kind"]
    kind += ", back over a check" if one["check"] else ""
    begins = one["starts_at"] if one["starts_at"] is not None else one["set_at"]
    times = moment(begins), moment(one["expires_at"])
    return one["id"], one["entity"], kind, *times, one["by"], one["reason"]
