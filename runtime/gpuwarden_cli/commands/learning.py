"""`gpuwarden simulate` and `gpuwarden train`: recordings of a played fleet, models from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import print_json

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    app.command()(simulate)


def simulate(
    out: Annotated[Path, typer.Option(help="New or empty folder for the recording.")],
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 16,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=8, help="GPUs of each.")] = 8,
    hours: Annotated[float, typer.Option(help="Length.")] = 24.0,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal recordings.")] = 1,
    interval_s: Annotated[float, typer.Option(help="Seconds between readings.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Simulate a fleet with random faults and write a recording for `gpuwarden train`."""
    run = load("gpuwarden_models.simulate", "simulate", "train")
    try:
        report = run(out, nodes, gpus_per_node, hours, seed, interval_s)
    except (ValueError, OSError) as error:
        raise CommandError(ExitCode.USAGE, str(error), "") from error
    if as_json:
        print_json(report)
        return
    faults = ", ".join(f"{count} {name}" for name, count in sorted(report.faults.items()))
    print(f"{report.folder}: {report.nodes} nodes, {report.gpus} GPUs, {report.frames} moments")
    print(f"  {report.events} events; {faults or 'no fault'}; seed {report.seed}")
    print(f"  next: gpuwarden train {report.folder}")
