"""`gpuwarden train`: models from recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands.retraining import retrain
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import print_json
from gpuwarden_wire.metrics import EntityKind

_MODELS = Path("gpuwarden-models")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FromStore = Annotated[
    bool,
    typer.Option(
        "--from-store",
        help="Learn from the server instead: what judges there, what it saw, and what people "
        "said of its incidents.",
    ),
]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    app.command()(train)


def train(
    context: typer.Context,
    recordings: Annotated[
        list[Path] | None, typer.Argument(help="Folders of recordings with their labels.")
    ] = None,
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
    from_store: FromStore = False,
    as_json: AsJson = False,
) -> None:
    """Train the learnt scores from recordings and measure them on nodes that they have not seen."""
    if from_store == bool(recordings):
        raise CommandError(ExitCode.USAGE, "give folders of recordings, or --from-store")
    if from_store:
        retrain(context, [one.value for one in _kinds(kind or ["gpu"])], out, seed)
        return
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
