"""`gpuwarden kernel-log scan`: what a kernel log says about the GPUs, without any server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from re import fullmatch
from typing import Annotated, BinaryIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import console, styled
from gpuwarden_kernel_log import KernelEvent, LineContext, event_to_json, scan_lines

# A log without line ends must not fill the memory; what the parser reads of a line is far shorter.
_MAX_LINE_BYTES = 65536


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    group = typer.Typer(help="Read kernel logs.")
    group.callback()(_root)
    group.command()(scan)
    app.add_typer(group, name="kernel-log", no_args_is_help=True)


def _root() -> None:
    """Read kernel logs."""


def scan(
    file: Annotated[str, typer.Argument(help="Kernel log in any form; - for standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    timezone: Annotated[
        str | None,
        typer.Option(help="Zone of time stamps without one: Europe/Berlin, UTC, +01:00."),
    ] = None,
    year: Annotated[
        int | None, typer.Option(min=1970, max=2100, help="Year of time stamps without one.")
    ] = None,
    driver_version: Annotated[
        str | None, typer.Option(help="NVIDIA driver, which decides how XID 144-150 are read.")
    ] = None,
) -> None:
    """Print every recognised line with family, code, address, severity and NVIDIA's action."""
    zone = None if timezone is None else parse_zone(timezone)
    context = LineContext(timezone=zone, year=year, driver_version=driver_version)
    with _opened(file) as stream:
        events = scan_lines(_lines(stream, file), context)
        if as_json:
            _print_objects(events)
        else:
            _print_rows(events)


def parse_zone(text: str) -> tzinfo:
    """A zone by IANA name or offset.

    Raises:
        CommandError: Neither.
    """
    offset = fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise CommandError(
            ExitCode.USAGE,
            f"--timezone {text!r} is no zone known here",
            "give an IANA name such as Europe/Berlin (package tzdata), UTC, or +01:00",
        ) from error


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise _unreadable(file, error) from error


def _lines(stream: BinaryIO, file: str) -> Iterator[bytes]:
    """Physical lines, each cut to _MAX_LINE_BYTES."""
    try:
        while line := stream.readline(_MAX_LINE_BYTES):
            yield line
            while line and not line.endswith(b"\n"):
                line = stream.readline(_MAX_LINE_BYTES)  # the rest of an overlong line
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: str, error: OSError) -> CommandError:
    return CommandError(
        ExitCode.LOCAL,
        f"cannot read {file}: {error.strerror or error}",
        "give a readable kernel log, or - and pipe it in: dmesg | gpuwarden kernel-log scan -",
    )


def _print_objects(events: Iterator[tuple[int, KernelEvent]]) -> None:
    for line_number, event in events:
        sys.stdout.write(json.dumps(event_to_json(line_number, event)) + "\n")


def _print_rows(events: Iterator[tuple[int, KernelEvent]]) -> None:
    """Rows as they come: a log may be long, or never end."""
    families: Counter[str] = Counter()
    undated = 0
    out = console()
    for line_number, event in events:
        families[event.family.value] += 1
        undated += event.observed_at is None
        code = event.xid if event.xid is not None else event.sxid
        name = event.family.value if code is None else f"{event.family.value} {code}"
        when = "" if event.observed_at is None else f"{event.observed_at:%Y-%m-%d %H:%M:%SZ}"
        row = f"{line_number:>7}  {when:<20}  {name:<17}  {event.pci_bus_id or '-':<12}  "
        out.print(row, end="", markup=False)
        out.print(styled(event.severity.value), end=" " * (10 - len(event.severity.value)))
        out.print(f"{event.action or '-':<16}  {event.text}", markup=False, soft_wrap=True)
    if not families:
        print("no line that speaks of a fault")
        return
    print("; ".join(f"{family} {count}" for family, count in families.most_common()))
    if undated:
        print(
            f"{undated} without a time: a stamp without year or zone is dated with --year YEAR and "
            "--timezone ZONE; seconds since boot alone have no date (dmesg --time-format iso has)"
        )
