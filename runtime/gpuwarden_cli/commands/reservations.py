"""`gpuwarden silence import`: Slurm's maintenance reservations as maintenance windows."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import moment, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_cli.slurm_reservations import Reservation, ReservationFault, read_reservations
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.errors import GpuwardenError

COMMAND_S = 60.0
LONGEST_S = 90 * 86_400.0
"""The server's own limit: what goes on beyond it is made longer by a later import."""
RENEWED_AT_S = 60 * 86_400.0
SAME_S = 120.0
"""Times that differ by less are the same: a window that began before begins when it is made."""
_REASON = "Slurm reservation "

Window = dict[str, Any]


def import_reservations(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="What `scontrol show reservation` writes, as text or with --json."),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Ask scontrol.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
) -> None:
    """Make a maintenance window of each reservation with the flag MAINT; end those that are gone.

    Run it again whenever reservations may have changed, such as each minute by a timer: what is
    the same stays as it is. Windows that people made are not touched.
    """
    if (file is None) is not slurm:
        raise CommandError(ExitCode.USAGE, "which reservations?", "name a FILE, or give --slurm")
    now = time.time()
    wanted = [one for one in _read(file) if one.ends_at > now]
    with open_client(context) as client:
        standing = _standing(client)
        fresh = [one for one in wanted if not any(_same(w, one, now) for w in standing)]
        gone = [w for w in standing if not any(_same(w, one, now) for one in wanted)]
        _show(fresh, gone, len(wanted) - len(fresh))
        if dry_run:
            return
        for one in fresh:  # first: no moment is left between a window and its successor
            client.raw_post("/v1/silences", _body(one, now))
        for window in gone:
            body = {"reason": f"{window['reason']} has changed or is gone"}
            client.raw_post(f"/v1/silences/{window['id']}/expire", body)


def _read(file: Path | None) -> Sequence[Reservation]:
    try:
        if file is not None:
            return read_reservations(file.read_text(encoding="utf-8"), None)
        return read_reservations(_asked(), UTC)
    except (ReservationFault, GpuwardenError) as error:
        raise CommandError(
            ExitCode.USAGE, str(error), "docs/notifications.md has the forms"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            ExitCode.LOCAL, f"cannot read {file}: {error}", "name a text file"
        ) from error


def _asked() -> str:
    """What scontrol writes, in UTC, whatever the zone and form of times that users set."""
    command = ("scontrol", "show", "reservation", "-o")
    zone = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    mend = f"run `{' '.join(command)} > FILE` where it works, and import FILE"
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **zone},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(ExitCode.LOCAL, f"cannot run scontrol: {error}", mend) from error
    if done.returncode != 0:
        said = done.stderr.strip()[:300]
        raise CommandError(ExitCode.LOCAL, f"scontrol failed ({done.returncode}): {said}", mend)
    return done.stdout


def _standing(client: Client) -> list[Window]:
    """Windows that an earlier import made, and that hold or will."""
    items = client.raw("/v1/silences", {"active": "true", "limit": "1000"})["items"]
    return [
        one for one in items if one["kind"] == "maintenance" and one["reason"].startswith(_REASON)
    ]


def _same(window: Window, one: Reservation, now: float) -> bool:
    if window["reason"] != _REASON + one.name or window["matchers"] != [_matcher(one)]:
        return False
    begins = abs(window["starts_at"] - one.starts_at) < SAME_S
    if not begins and max(window["starts_at"], one.starts_at) > now:
        return False
    if one.ends_at - now > LONGEST_S:
        return bool(window["ends_at"] - now > RENEWED_AT_S)
    return bool(abs(window["ends_at"] - one.ends_at) < SAME_S)


def _body(one: Reservation, now: float) -> dict[str, object]:
    starts_at = max(one.starts_at, now)
    return {
        "kind": "maintenance",
        "matchers": [_matcher(one)],
        "starts_at": starts_at,
        "duration_s": min(one.ends_at - starts_at, LONGEST_S),
        "reason": _REASON + one.name,
    }


def _matcher(one: Reservation) -> str:
    return f"node=~{'|'.join(re.escape(node) for node in one.nodes)}"


def _show(fresh: Sequence[Reservation], gone: Sequence[Window], kept: int) -> None:
    rows = [
        ("new", one.name, f"{len(one.nodes)} nodes", moment(one.starts_at), moment(one.ends_at))
        for one in fresh
    ]
    rows += [
        ("ends", w["reason"].removeprefix(_REASON), w["id"], moment(w["starts_at"]), "now")
        for w in gone
    ]
    print_table(("CHANGE", "RESERVATION", "WHAT", "FROM", "TO"), rows, "nothing changes")
    if kept:
        print(f"{kept} stay as they are")
