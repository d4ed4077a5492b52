"""The `gpuwarden` command put together, and its errors turned into sentences and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuwarden_cli.commands import (
    actuators,
    backtest,
    backup,
    checkpoints,
    config,
    decisions,
    diagnose,
    enrolment,
    entities,
    evaluate,
    exclusions,
    incidents,
    inject,
    inventory,
    jobs,
    kernel_log,
    keys,
    learning,
    ledger,
    lemons,
    models,
    notify,
    pins,
    policy,
    replaying,
    server,
    shadow,
    silences,
    simulating,
    standby,
    thresholds,
    verdicts,
)
from gpuwarden_cli.demo import command as demo
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.session import Connection
from gpuwarden_runtime.errors import GpuwardenError, ServerUnreachable, SettingError
from gpuwarden_wire.version import __version__

_EPILOG = (
    "Exit codes: 0 done; 1 the answer is no; 2 wrong usage, setting or input; 3 server unreachable;"
    " 4 refused by the server; 5 a local file or missing extra."
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gpuwarden {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Server; else GPUWARDEN_URL, else http://127.0.0.1:8750.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="File with the key; else GPUWARDEN_KEY, GPUWARDEN_KEY_FILE.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Finds failing GPUs in training clusters and makes the training runtime stop using them."""
    context.obj = Connection(url, key_file)


def build_app() -> typer.Typer:
    """The command with all sub-commands."""
    app = typer.Typer(
        name="gpuwarden",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog=_EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for part in (demo, server, entities, incidents, decisions, exclusions, keys, enrolment):
        part.register(app)
    for part in (
        diagnose,
        checkpoints,
        inject,
        inventory,
        jobs,
        backup,
        simulating,
        learning,
        backtest,
        evaluate,
        kernel_log,
        config,
    ):
        part.register(app)
    for part in (
        notify,
        silences,
        thresholds,
        lemons,
        models,
        verdicts,
        shadow,
        actuators,
        standby,
        pins,
        ledger,
        policy,
        replaying,
    ):
        part.register(app)
    return app


def run(argv: Sequence[str]) -> int:
    """Run with these arguments; returns the exit code."""
    try:
        build_app()(args=list(argv), prog_name="gpuwarden")
        return ExitCode.DONE
    except SystemExit as ending:  # typer's way to end; it has said what there is to say
        return ending.code if isinstance(ending.code, int) else ExitCode.DONE
    except CommandError as error:
        return _fail(error.code, str(error), error.mend)
    except GpuwardenError as error:
        return _fail(_code_of(error), error.detail, error.mend)


def _code_of(error: GpuwardenError) -> ExitCode:
    match error:
        case SettingError():
            return ExitCode.USAGE
        case ServerUnreachable():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.REFUSED


def _fail(code: ExitCode, detail: str, mend: str) -> ExitCode:
    sys.stderr.write(f"gpuwarden: {detail}\n")
    if mend:
        sys.stderr.write(f"  mend: {mend}\n")
    return code
