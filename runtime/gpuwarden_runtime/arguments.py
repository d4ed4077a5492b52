"""Command line of `gpuwarden-run`."""

from __future__ import annotations

import argparse
import shlex
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gpuwarden_runtime.place import parse_gpus
from gpuwarden_wire.version import __version__

_EPILOG = """\
exit codes: the command's own (128 + N after signal N), or
  64  wrong options or settings
  66  a host list cannot be read or written
  69  --strict, and neither the server nor a set younger than 24 h could say
  75  the command ran and was ended because its place became excluded: run it elsewhere
  77  the place is excluded, or leaves within --needs: the command was not started
  126, 127  the command cannot be executed, does not exist

settings: GPUWARDEN_URL, GPUWARDEN_KEY or GPUWARDEN_KEY_FILE, GPUWARDEN_VERDICT_FILE,
GPUWARDEN_CACHE_FOLDER, GPUWARDEN_CA_FILE
"""


class UsageError(Exception):
    """Options that make no sense; the message says which and how it is written."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the caller wants.

    Attributes:
        command: Program and arguments; empty where only a host list is to be filtered.
        node: Node that the command runs on.
        gpus: GPUs of it that the command uses; empty for all.
        strict: Refuse where nobody could say.
        grace_s: Time between SIGTERM and SIGKILL.
        hosts_in: Host list to read, None for none.
        hosts_out: Where it goes without the excluded nodes.
        min_hosts: Fewest hosts that must stay.
        needs_s: How long the command takes: not started where a planned leave comes sooner; 0: any.
        leave_notice_s: How long before a planned leave the command is asked to stop.
        leave_signal: Signal by which it is asked, None for none.
        leave_file: File that is written then, None for none.
    """

    command: tuple[str, ...]
    node: str
    gpus: tuple[str, ...]
    strict: bool
    grace_s: float
    hosts_in: Path | None
    hosts_out: Path | None
    min_hosts: int
    needs_s: float = 0.0
    leave_notice_s: float = 600.0
    leave_signal: signal.Signals | None = None
    leave_file: Path | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}")


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """The arguments; everything after the first "--" is the command.

    Raises:
        UsageError: An option is unknown or wrong, or there is nothing to do.
        SettingError: `--gpus` names something else than GPUs.
    """
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    command = tuple(words[cut + 1 :])
    parser = _parser()
    options, rest = parser.parse_known_args(words[:cut])
    if rest:
        parser.error(_unknown(rest, has_dashes=cut < len(words)))
    if (options.hosts_in is None) != (options.hosts_out is None):
        parser.error("--hosts-in and --hosts-out go together")
    if not command and options.hosts_in is None:
        parser.error("no command: write it after --, as in gpuwarden-run -- torchrun train.py")
    return Arguments(
        command=command,
        node=options.node or socket.gethostname(),
        gpus=parse_gpus(options.gpus) if options.gpus is not None else (),
        strict=options.strict,
        grace_s=options.grace,
        hosts_in=options.hosts_in,
        hosts_out=options.hosts_out,
        min_hosts=options.min_hosts,
        needs_s=options.needs,
        leave_notice_s=options.leave_notice,
        leave_signal=options.leave_signal,
        leave_file=options.leave_file,
    )


def _unknown(rest: Sequence[str], *, has_dashes: bool) -> str:
    named = shlex.join(rest)
    if has_dashes or rest[0].startswith("-"):
        return f"unknown before --: {named}"
    return f"write -- before the command: gpuwarden-run [options] -- {named}"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gpuwarden-run",
        usage="gpuwarden-run [options] -- COMMAND [ARGUMENT ...]",
        description="Start COMMAND unless its node or GPUs are excluded; end it when they become.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--gpus", metavar="LIST", help="indices, UUIDs or PCI addresses that COMMAND uses")
    add("--node", metavar="NAME", help="name of this node at the server (default: the host name)")
    add("--strict", action="store_true", help="do not start where nobody can say")
    add(
        "--grace",
        metavar="SECONDS",
        type=_seconds,
        default=30.0,
        help="between SIGTERM and SIGKILL (default: 30)",
    )
    add("--hosts-in", metavar="FILE", type=Path, help="host list, a host a line")
    add("--hosts-out", metavar="FILE", type=Path, help="the same without excluded nodes")
    add(
        "--min-hosts",
        metavar="N",
        type=_count,
        default=1,
        help="refuse where fewer hosts would stay (default: 1)",
    )
    add(
        "--needs",
        metavar="SECONDS",
        type=_long_seconds,
        default=0.0,
        help="do not start where a planned leave comes sooner",
    )
    add(
        "--leave-notice",
        metavar="SECONDS",
        type=_seconds,
        default=600.0,
        help="ask COMMAND to stop so long before a planned leave (default: 600)",
    )
    add("--leave-signal", metavar="NAME", type=_signal, help="by this signal, such as USR1")
    add("--leave-file", metavar="FILE", type=Path, help="by writing this file")
    add("--version", action="version", version=f"gpuwarden-run {__version__}")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 86400.0:  # also false for NaN
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds, 0 to 86400")
    return value


def _long_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 366 * 86400.0:  # also false for NaN
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds")
    return value


def _signal(text: str) -> signal.Signals:
    name = text.upper()
    found = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
    if found is None or found in (signal.SIGKILL, signal.SIGSTOP):
        raise argparse.ArgumentTypeError(f"{text!r} is no signal that a command can take")
    return found


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hosts")
    return int(text)
