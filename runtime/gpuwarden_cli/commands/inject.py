"""`gpuwarden inject`: write a fault's kernel line where an agent reads, to see the alarm go off."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.fault_lines import (
    FAULTS,
    USUAL_GPU,
    USUAL_NIC,
    Fault,
    KernelLine,
    Place,
    fault_named,
)
from gpuwarden_cli.output import print_table

KMSG = Path("/dev/kmsg")

_ADDRESS = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(inject)


def inject(
    fault: Annotated[
        str | None, typer.Argument(help="A fault of --list, or xid-N for any XID.")
    ] = None,
    pci: Annotated[
        str | None,
        typer.Option(
            help="PCI address of the GPU or NIC that the line names; else "
            f"{USUAL_GPU}, for the NIC lines {USUAL_NIC}."
        ),
    ] = None,
    interface: Annotated[str, typer.Option(help="Net interface, for the NIC lines.")] = "ibp24s0",
    to: Annotated[
        Path, typer.Option(help="Kernel log device, or a file that an agent follows.")
    ] = KMSG,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before writing to the kernel log.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the faults.")] = False,
) -> None:
    """Write a kernel line of real shape, as if this GPU or NIC had failed.

    Who follows a file believes it: in act mode the GPU gets excluded. Into /dev/kmsg a program can
    write only under its own facility: agents keep such a line as evidence that never acts alone.
    """
    if show_list:
        rows = [(name, item.says) for name, item in FAULTS.items()]
        print_table(("FAULT", "LOOKS LIKE"), [*rows, ("xid-N", "any XID")], "")
        return
    wanted = _fault(fault)
    lines = wanted.lines(Place(parse_address(pci or wanted.usual_pci), interface))
    if to == KMSG and not yes:
        shown = "\n".join(f"  {line.text}" for line in lines)
        typer.confirm(f"Write to this machine's kernel log, for good?\n{shown}\n", abort=True)
    for line in lines:
        _write(to, line)
    print(f"{len(lines)} line(s) written to {to}")


def parse_address(text: str) -> str:
    """A PCI address in full, lower case: the domain and function may be left out.

    Raises:
        CommandError: No PCI address.
    """
    found = _ADDRESS.fullmatch(text.strip().lower())
    if not found:
        raise CommandError(
            ExitCode.USAGE,
            f"--pci {text!r} is no PCI address",
            "write it as lspci -D or nvidia-smi does: 0000:3b:00.0",
        )
    domain, bus, device, function = found.groups()
    return f"{domain or '0000'}:{bus}:{device}.{function or '0'}"


def in_file(line: KernelLine, at: datetime, host: str) -> str:
    """The line as rsyslog and journald write it into a file, with zone and host."""
    return f"{at.isoformat(timespec='microseconds')} {host} kernel: {line.text}\n"


def _fault(name: str | None) -> Fault:
    found = fault_named(name) if name else None
    if found is None:
        raise CommandError(
            ExitCode.USAGE,
            f"no fault {name!r}" if name else "which fault?",
            f"one of {', '.join(FAULTS)}, or xid-N with a code of NVIDIA's catalogue",
        )
    return found


def _write(to: Path, line: KernelLine) -> None:
    # The kernel takes one record a write, the level in front (Documentation/ABI/testing/dev-kmsg).
    text = f"<{line.level}>{line.text}"
    if to != KMSG:
        text = in_file(line, datetime.now(UTC), socket.gethostname())
    try:
        with to.open("ab", buffering=0) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise CommandError(
            ExitCode.LOCAL,
            f"cannot write {to}: {error.strerror or error}",
            "writing to the kernel log needs root; a file that the agent follows does not",
        ) from error
