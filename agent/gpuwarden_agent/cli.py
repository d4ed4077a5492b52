"""The `gpuwarden-agent` command."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwarden_agent.config import AgentSettings, ConfigError, read_settings, setting_docs
from gpuwarden_agent.service.config import read_notify_socket
from gpuwarden_wire.version import __version__

if TYPE_CHECKING:
    from gpuwarden_agent.once import Snapshot


class ExitCode(IntEnum):
    """How the command ends."""

    OK = 0
    CONFIG = 2  # a setting or argument cannot be used (argparse's own code)
    SPOOL = 3  # the spool folder cannot be used, or another agent has it
    ADDRESS = 4  # the address of /metrics is taken


_EXIT_CODES = """exit codes:
  0  ended well, or stopped by SIGTERM or SIGINT
  2  a setting or argument cannot be used
  3  the spool folder cannot be used, or another agent has it
  4  the address of /metrics is taken"""

_DOCTOR_CODES = """exit codes:
  0  all is fine
  1  warnings: the agent works, and misses something
  2  something vital: the agent does not do its work like this, or a setting cannot be used"""

_MAINTENANCE_CODES = """exit codes:
  0  start: the agent holds no device, or none runs; stop: it goes on
  1  the order stands, and the agent still holds something (it says what), or has not gone on yet
  2  the order cannot be given"""

_ENROL_CODES = """exit codes:
  0  the key file is written, mode 600
  1  the server refuses the token, or this node
  2  a setting, the token or the key file cannot be used
  3  no answer from the server"""


_CHECK_CODES = """exit codes:
  0  it passed (list: listed)
  1  it says warning or critical
  2  a setting or argument cannot be used
  3  unknown: it ran, and nobody can say what it found
  4  it was not run: no agent runs, maintenance, GPUs in use, no such check (it says which)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(argv)
    names = {one.name for one in setting_docs()}
    flags = {n: raw for n, raw in vars(options).items() if n in names and raw is not None}
    try:
        settings = read_settings(flags, options.env_file)
        match options.command:
            case "once":
                return _once(settings, as_json=options.json)
            case "doctor":
                return _examine(settings, as_json=options.json)
            case "maintenance":
                return _maintain(settings, options)
            case "check":
                return _check(settings, options)
            case "enrol":
                return _enrol(settings, options)
            case _:
                return _run(settings)
    except ConfigError as error:
        _complain(str(error))
        return ExitCode.CONFIG


def _run(settings: AgentSettings) -> int:
    from gpuwarden_agent.agent import Agent
    from gpuwarden_agent.logs import configure_logs
    from gpuwarden_agent.spool.entry import SpoolUnusable

    configure_logs(settings.log_level)
    try:
        agent = Agent(settings, read_notify_socket())
    except SpoolUnusable as error:
        _complain(str(error))
        return ExitCode.SPOOL
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        agent.run(stop)
    except OSError as error:
        _complain(
            f"/metrics on {settings.metrics_host}:{settings.metrics_port}: {error.strerror}. "
            "Set GPUWARDEN_AGENT_METRICS_PORT to a free port, or to 0."
        )
        return ExitCode.ADDRESS
    return ExitCode.OK


def _once(settings: AgentSettings, *, as_json: bool) -> int:
    import msgspec

    from gpuwarden_agent.logs import configure_logs
    from gpuwarden_agent.once import collect_once

    configure_logs("error")
    snapshot = collect_once(settings)
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(snapshot.to_json()), indent=1)
        sys.stdout.write(text.decode() + "\n")
    else:
        _print_snapshot(snapshot)
    return ExitCode.OK


def _examine(settings: AgentSettings, *, as_json: bool) -> int:
    import msgspec

    from gpuwarden_agent.doctor.finding import exit_code
    from gpuwarden_agent.doctor.report import as_json as json_of
    from gpuwarden_agent.doctor.report import as_table, examine
    from gpuwarden_agent.logs import configure_logs

    configure_logs("error")
    findings = examine(settings)
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(json_of(findings)), indent=1).decode() + "\n"
    else:
        text = as_table(findings)
    sys.stdout.write(text)
    return exit_code(findings)


def _maintain(settings: AgentSettings, options: argparse.Namespace) -> int:
    from gpuwarden_agent.maintenance_command import MaintenanceRequest, run_maintenance

    request = MaintenanceRequest(options.action, options.for_s, options.wait_s, options.reason)
    return run_maintenance(settings, request)


def _check(settings: AgentSettings, options: argparse.Namespace) -> int:
    from gpuwarden_agent.check_command import CheckRequest, list_checks, run_one_check

    if options.action == "list":
        return list_checks(settings, as_json=options.json)
    return run_one_check(
        settings, CheckRequest(options.name, options.wait_s, options.even_if_busy, options.json)
    )


def _enrol(settings: AgentSettings, options: argparse.Namespace) -> int:
    from gpuwarden_agent.enrol_command import EnrolRequest, run_enrolment

    token, file = options.token or "", options.token_file
    return run_enrolment(settings, EnrolRequest(token, file, options.owner, options.replace))


def _print_snapshot(snapshot: Snapshot) -> None:
    from gpuwarden_agent.once import reason_of, unit_of

    write = sys.stdout.write
    write(f"node {snapshot.node_id}, boot {snapshot.boot_id}, agent {__version__}\n\ncollectors\n")
    for visit in snapshot.visits:
        told = f"{visit.reason}. {visit.mend}".strip()
        outcome = f"trouble: {told}" if visit.reason else "ok"
        outcome += f" ({visit.note})" if visit.note not in ("", told) else ""
        write(f"  {visit.name:<16} {visit.took_s * 1000:8.1f} ms  {outcome}\n")
    write("\nreadings\n")
    for kind, entity, metric, reading in snapshot.readings():
        value = (
            f"{reading:.15g}" if isinstance(reading, float | int) else f"- ({reason_of(reading)})"
        )
        write(f"  {kind:<5} {entity or '-':<16} {metric:<42} {value} {unit_of(metric)}\n")
    events = snapshot.events()
    write(f"\nevents: {len(events)}\n")
    for event in events:
        repeats = f" x{event.count}" if event.count > 1 else ""
        write(f"  {event.severity:<8} {event.family or event.kind:<18} {event.text}{repeats}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwarden-agent",
        description="Collects the health of this node and sends it to the gpuwarden server.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpuwarden-agent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="collect and send until stopped",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    once = commands.add_parser("once", help="read everything once and print it; needs no server")
    once.add_argument("--json", action="store_true", help="print one JSON object")
    doctor = commands.add_parser(
        "doctor",
        help="look what can be read and reached, why not, and the mend; sends no telemetry",
        epilog=_DOCTOR_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    maintenance = commands.add_parser(
        "maintenance",
        help="let the running agent release every device, for a driver unload or a GPU reset",
        epilog=_MAINTENANCE_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_maintenance(maintenance)
    check = commands.add_parser("check", help="list the plug-in checks, or run one of them now")
    actions = check.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the checks that the settings name")
    one_check = actions.add_parser(
        "run",
        help="have the running agent run one check now, and tell the server what came of it",
        epilog=_CHECK_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_check_run(one_check)
    for action in (listing, one_check):
        action.add_argument("--json", action="store_true", help="print one JSON object")
    enrol = commands.add_parser(
        "enrol",
        help="fetch this node's key with an enrolment token, and write the key file",
        epilog=_ENROL_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_enrolment(enrol)
    for command in (run, once, doctor, maintenance, listing, one_check, enrol):
        _add_settings(command)
    return parser


def _add_maintenance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("start", "stop", "show"))
    add = parser.add_argument
    add("--for", dest="for_s", type=float, default=3600.0, metavar="SECONDS",
        help="end by itself after so long. Default: 3600.")  # fmt: skip
    add("--wait", dest="wait_s", type=float, default=30.0, metavar="SECONDS",
        help="longest wait for the agent to let go. Default: 30.")  # fmt: skip
    add("--reason", default="", metavar="TEXT", help="shown beside the node's trouble")


def _add_check_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="of the check, as its definition says")
    add("--wait", dest="wait_s", type=float, default=120.0, metavar="SECONDS",
        help="longest wait for its start, such as until GPUs are idle. Default: 120.")  # fmt: skip
    add("--even-if-busy", dest="even_if_busy", action="store_true",
        help='start one of when = "idle" though GPUs are in use, or nobody can say')  # fmt: skip


def _add_enrolment(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--token",
        metavar="TOKEN",
        help="as `gpuwarden enrolment create` printed it; others may see it in `ps`",
    )
    given.add_argument("--token-file", metavar="FILE", help="file that holds it; - is stdin")
    parser.add_argument(
        "--owner",
        default="",
        metavar="USER",
        help="user that the key file is handed to, where root enrols for the agent",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace the key file; the token must have been made with --re-enrol",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings", "A flag overrides its environment variable.")
    group.add_argument(
        "--env-file",
        dest="env_file",
        type=Path,
        metavar="FILE",
        help="NAME=VALUE lines, such as the unit's /etc/gpuwarden/agent.env; the environment "
        "overrides it.",
    )
    for one in setting_docs():
        default = f" Default: {one.default}." if one.default else ""
        group.add_argument(
            one.flag,
            dest=one.name,
            metavar="VALUE",
            help=f"{one.doc}{default} [{one.variable}]".replace("%", "%%"),
        )


def _complain(message: str) -> None:
    sys.stderr.write(f"gpuwarden-agent: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
