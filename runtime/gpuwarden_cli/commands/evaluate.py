"""`gpuwarden evaluate`: how good verdicts are, as a report that can be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load

_OUT = Path("gpuwarden-evaluation")


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(evaluate)


def evaluate(
    out: Annotated[Path, typer.Option(help="Folder for report.md and report.json.")] = _OUT,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of what is done so far; else OUT/state. Call again to go on."),
    ] = None,
    public_data: Annotated[
        Path | None,
        typer.Option(
            envvar="GPUWARDEN_PUBLIC_DATA",
            help="Folder of public data; without it the parts that need it are left out.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal reports.")] = 1,
    minutes: Annotated[float, typer.Option(help="No step begins after so long.")] = 45.0,
    tree_seeds: Annotated[
        int, typer.Option(min=1, help="How often trees of the exclusion benchmark are grown.")
    ] = 3,
) -> None:
    """Measure verdicts and write the report; a long run may be stopped and called again."""
    module = "gpuwarden_models.evaluation"
    options: Any = load(f"{module}.options", "Options", "train")
    run = load(f"{module}.running", "evaluate", "train")
    errors = (
        OSError,
        load(f"{module}.steps", "EvaluationError", "train"),
        load(f"{module}.exclusion.tables", "PublicRecordsError", "train"),
    )
    wanted = options(
        state=state or out / "state",
        out=out,
        seed=seed,
        public=public_data,
        minutes=minutes,
        tree_seeds=tree_seeds,
    )
    try:
        outcome = run(wanted, print)
    except errors as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    if outcome.left:
        print(f"{len(outcome.left)} steps are left: {', '.join(outcome.left)}; call again to go on")
    else:
        print(f"report: {outcome.report}")
