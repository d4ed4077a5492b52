"""`gpuwarden simulate` and `gpuwarden train`: recordings of a played fleet, models from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.live import play_live
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import print_json
from gpuwarden_wire.metrics import EntityKind

_MODELS = Path("gpuwarden-models")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    app.command()(simulate)
    app.command()(train)


def simulate(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(help="New or empty folder: write a recording there.")
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Play to the server instead, in real time, until Ctrl-C; needs an admin key.",
        ),
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 16,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=8, help="GPUs of each.")] = 8,
    hours: Annotated[float, typer.Option(help="Time over which faults are spread.")] = 24.0,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal recordings.")] = 1,
    interval_s: Annotated[
        float | None,
        typer.Option(help="Seconds between readings; 30 for a recording, 5 with --live."),
    ] = None,
    form: Annotated[
        str, typer.Option(help="Of the recording's metrics: parquet, openmetrics or both.")
    ] = "parquet",
    common_causes: Annotated[
        bool,
        typer.Option(
            "--common-causes",
            help="Put reboots, outages, stalls and storms of many nodes into the recording too.",
        ),
    ] = False,
    gpu_model: Annotated[str, typer.Option(help="Of the fleet: h100 or a100.")] = "h100",
    rates: Annotated[
        str, typer.Option(help="How often faults come: dense, or calibrated as in life.")
    ] = "dense",
    fault_factor: Annotated[
        float, typer.Option(help="Moves the rates of faults, and not those of confounders.")
    ] = 1.0,
    scale_parameters: Annotated[
        float, typer.Option(help="Moves all rates, noise and losses of readings.")
    ] = 1.0,
    only: Annotated[
        str, typer.Option(help="Mechanisms that come alone, as docs/simulator.md names them: A,B.")
    ] = "",
    without: Annotated[str, typer.Option(help="Mechanisms that do not come: A,B.")] = "",
    confounders_only: Annotated[
        bool, typer.Option("--confounders-only", help="Nothing that needs action.")
    ] = False,
    no_precursors: Annotated[
        bool, typer.Option("--no-precursors", help="A control: no fault announces itself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a fleet with random faults: a recording for `gpuwarden train`, or a live fleet."""
    if (out is None) != live:
        raise CommandError(
            ExitCode.USAGE, "give --out DIR for a recording, or --live to play to the server"
        )
    if out is None:
        play_live(context, (nodes, gpus_per_node, hours, seed, interval_s or 5.0))
        return
    module = "gpuwarden_models.simulate"
    run, variation = load(module, "simulate", "train"), load(module, "Variation", "train")
    varied = variation(
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
    sizes = (nodes, gpus_per_node, hours, seed, interval_s or 30.0)
    try:
        report = run(out, *sizes, form, varied)
    except (ValueError, OSError) as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    if as_json:
        print_json(report)
        return
    _tell_recording(report)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _tell_recording(report: Any) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(report.faults.items()))
    print(f"{report.folder}: {report.nodes} nodes, {report.gpus} GPUs, {report.frames} moments")
    print(f"  {report.events} events; {faults or 'no fault'}; seed {report.seed}")
    print(f"  parameters {report.parameters_sha256[:12]}")
    print(f"  next: gpuwarden train {report.folder}")


def train(
    recordings: Annotated[
        list[Path], typer.Argument(help="Folders of recordings with their labels.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the models, a folder a kind.")] = _MODELS,
    seed: Annotated[int, typer.Option(help="Deals the nodes out to training and test.")] = 0,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="gpu, node or nic; else every kind that there are faults of."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keeps features of recordings; else OUT/features.")
    ] = None,
    promote: Annotated[
        bool, typer.Option("--promote", help="Make them the versions that servers take from there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train the learnt scores from recordings and measure them on nodes that they have not seen."""
    module = "gpuwarden_models.train"
    run, course = load(module, "train", "train"), load(module, "Course", "train")
    try:
        done = run(recordings, out, course(seed), _kinds(kind or []), cache)
        if promote:
            for report in done.reports:
                load(module, "promote", "train")(report.folder.parent, report.version)
    except _errors_of_training() as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    if as_json:
        print_json(done)
        return
    for report in done.reports:
        _tell(report)
    for name, why in done.skipped.items():
        print(f"no {name} model: {why}")
    if promote:
        print(f"promoted; a server uses them with GPUWARDEN_MODEL_FOLDER={out}")


def _kinds(names: list[str]) -> list[EntityKind]:
    kinds = load("gpuwarden_verdict.features", "FEATURE_SETS", "train")
    known = [kind.value for kind in kinds]
    for name in names:
        if name not in known:
            raise CommandError(ExitCode.USAGE, f"--kind {name!r}: one of {', '.join(known)}")
    return [EntityKind(name) for name in names]


def _tell(report: Any) -> None:
    figures = report.held_out
    marked = "held-out nodes (simulated)" if report.simulated else "held-out nodes"
    print(f"{report.folder}: model {report.version} in {report.seconds:.0f} s")
    print(f"  {marked}: {figures.flagged} of {figures.incidents} incidents flagged,")
    print(f"  {figures.false_episodes} false episodes in {figures.healthy_days:.0f} days,")
    print(f"  Brier skill {figures.brier_skill:.2f}; more in {report.folder / 'card.md'}")


def _errors_of_training() -> tuple[type[Exception], ...]:
    return (
        OSError,
        load("gpuwarden_models.train", "TrainingError", "train"),
        load("gpuwarden_models.recording", "RecordingError", "train"),
    )
