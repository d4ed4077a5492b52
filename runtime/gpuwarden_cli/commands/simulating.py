"""`gpuwarden simulate`: recordings of a played fleet, or a fleet that plays to a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.live import play_live
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import print_json

_Out = Annotated[Path | None, typer.Option(help="New or empty folder: write a recording there.")]
_Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Play to the server instead, in real time, until Ctrl-C; needs an admin key.",
    ),
]
_Nodes = Annotated[int, typer.Option(min=1, help="Number of nodes.")]
_GpusPerNode = Annotated[int, typer.Option(min=1, max=8, help="GPUs of each.")]
_Hours = Annotated[float, typer.Option(help="Time over which faults are spread.")]
_Seed = Annotated[int, typer.Option(help="Equal seeds give equal recordings.")]
_Interval = Annotated[
    float | None,
    typer.Option(help="Seconds between readings; 30 for a recording, 5 with --live."),
]
_Form = Annotated[
    str, typer.Option(help="Of the recording's metrics: parquet, openmetrics or both.")
]
_CommonCauses = Annotated[
    bool,
    typer.Option(
        "--common-causes",
        help="Put reboots, outages, stalls and storms of many nodes into the recording too.",
    ),
]
_GpuModel = Annotated[str, typer.Option(help="Of the fleet: h100 or a100.")]
_Rates = Annotated[
    str, typer.Option(help="How often faults come: dense, or calibrated as in life.")
]
_FaultFactor = Annotated[
    float, typer.Option(help="Moves the rates of faults, and not those of confounders.")
]
_Scale = Annotated[float, typer.Option(help="Moves all rates, noise and losses of readings.")]
_Only = Annotated[
    str, typer.Option(help="Mechanisms that come alone, as docs/simulator.md names them: A,B.")
]
_Without = Annotated[str, typer.Option(help="Mechanisms that do not come: A,B.")]
_ConfoundersOnly = Annotated[
    bool, typer.Option("--confounders-only", help="Nothing that needs action.")
]
_NoPrecursors = Annotated[
    bool, typer.Option("--no-precursors", help="A control: no fault announces itself.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(simulate)


def simulate(
    context: typer.Context,
    out: _Out = None,
    live: _Live = False,
    nodes: _Nodes = 16,
    gpus_per_node: _GpusPerNode = 8,
    hours: _Hours = 24.0,
    seed: _Seed = 1,
    interval_s: _Interval = None,
    form: _Form = "parquet",
    common_causes: _CommonCauses = False,
    gpu_model: _GpuModel = "h100",
    rates: _Rates = "dense",
    fault_factor: _FaultFactor = 1.0,
    scale_parameters: _Scale = 1.0,
    only: _Only = "",
    without: _Without = "",
    confounders_only: _ConfoundersOnly = False,
    no_precursors: _NoPrecursors = False,
    as_json: _AsJson = False,
) -> None:
    """Simulate a fleet with random faults: a recording for `gpuwarden train`, or a live fleet."""
    if (out is None) != live:
        raise CommandError(
            ExitCode.USAGE, "give --out DIR for a recording, or --live to play to the server"
        )
    if out is None:
        play_live(context, (nodes, gpus_per_node, hours, seed, interval_s or 5.0))
        return
    varied = load("gpuwarden_models.simulate", "Variation", "train")(
        gpu_model=gpu_model,
        rates=rates,
        fault_factor=fault_factor,
        scale_parameters=scale_parameters,
        only=_words(only),
        without=_words(without),
        confounders_only=confounders_only,
        precursors=not no_precursors,
        common_causes=common_causes,
    )
    report = _write(out, (nodes, gpus_per_node, hours, seed, interval_s or 30.0), form, varied)
    if as_json:
        print_json(report)
        return
    _tell(report)


def _write(out: Path, sizes: tuple[int, int, float, int, float], form: str, varied: Any) -> Any:
    try:
        return load("gpuwarden_models.simulate", "simulate", "train")(out, *sizes, form, varied)
    except (ValueError, OSError) as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _tell(report: Any) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(report.faults.items()))
    print(f"{report.folder}: {report.nodes} nodes, {report.gpus} GPUs, {report.frames} moments")
    print(f"  {report.events} events; {faults or 'no fault'}; seed {report.seed}")
    print(f"  parameters {report.parameters_sha256[:12]}")
    print(f"  next: gpuwarden train {report.folder}")
