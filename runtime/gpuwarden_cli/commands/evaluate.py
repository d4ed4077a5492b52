"""`gpuwarden evaluate`: how good verdicts are, as a report that can be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load

_OUT = Path("gpuwarden-evaluation")
_MODULE = "gpuwarden_models.evaluation"


Out = Annotated[Path, typer.Option(help="Folder for report.md and report.json.")]
State = Annotated[
    Path | None,
    typer.Option(help="Folder of what is done so far; else OUT/state. Call again to go on."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A small run in seconds; no sizes, no public data.")
]
Model = Annotated[Path | None, typer.Option(help="Folder of models; else those that ship.")]
PublicData = Annotated[
    Path | None,
    typer.Option(
        envvar="GPUWARDEN_PUBLIC_DATA",
        help="Folder of public data; without it the parts that need it are left out.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Equal seeds give equal reports.")]
Minutes = Annotated[float, typer.Option(help="No step begins after so long.")]
Nodes = Annotated[int, typer.Option(min=1, help="Nodes of 8 GPUs in each set.")]
Hours = Annotated[float, typer.Option(help="Length of each set.")]
IntervalS = Annotated[float, typer.Option(help="Seconds between readings.")]
TrainSets = Annotated[
    int, typer.Option(min=0, help="Recordings that baselines and ablations learn from.")
]
TestSets = Annotated[int, typer.Option(min=1, help="Recordings with other seeds.")]
HealthyDays = Annotated[float, typer.Option(min=0, help="Days of a nearly healthy fleet.")]
CurveNodes = Annotated[int, typer.Option(min=1, help="Nodes of the interval curve.")]
CurveHours = Annotated[float, typer.Option(help="Length of the interval curve.")]
CurveInterval = Annotated[
    list[float] | None,
    typer.Option(help="Seconds; give it for each interval. Else 1 to 600; 0 for no curve."),
]
Trees = Annotated[int, typer.Option(min=1, help="Boosting rounds of what is retrained.")]
FaultFactor = Annotated[
    float, typer.Option(help="How often faults come, times the simulator's dense rates.")
]
TreeSeeds = Annotated[
    int, typer.Option(min=1, help="How often trees of the exclusion benchmark are grown.")
]


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(evaluate)


def evaluate(
    out: Out = _OUT,
    state: State = None,
    quick: Quick = False,
    model: Model = None,
    public_data: PublicData = None,
    seed: Seed = 1,
    minutes: Minutes = 45.0,
    nodes: Nodes = 64,
    hours: Hours = 96.0,
    interval_s: IntervalS = 120.0,
    train_sets: TrainSets = 2,
    test_sets: TestSets = 2,
    healthy_days: HealthyDays = 100.0,
    curve_nodes: CurveNodes = 64,
    curve_hours: CurveHours = 24.0,
    curve_interval: CurveInterval = None,
    trees: Trees = 120,
    fault_factor: FaultFactor = 0.15,
    tree_seeds: TreeSeeds = 3,
) -> None:
    """Measure verdicts and write the report; a long run may be stopped and called again."""
    usual = load(f"{_MODULE}.sets", "Sizes", "train")
    intervals = usual().curve_intervals_s if curve_interval is None else curve_interval
    sizes = usual(
        nodes=nodes,
        hours=hours,
        interval_s=interval_s,
        train_sets=train_sets,
        test_sets=test_sets,
        healthy_days=healthy_days,
        curve_nodes=curve_nodes,
        curve_hours=curve_hours,
        curve_intervals_s=tuple(one for one in intervals if one > 0),
        trees=trees,
        fault_factor=fault_factor,
    )
    options: Any = load(f"{_MODULE}.options", "Options", "train")(
        state=state or out / "state",
        out=out,
        seed=seed,
        public=None if quick else public_data,
        minutes=minutes,
        tree_seeds=tree_seeds,
        sizes=load(f"{_MODULE}.sets", "QUICK", "train") if quick else sizes,
    )
    _tell(_run(options, model))


def _run(options: Any, model: Path | None) -> Any:
    run = load(f"{_MODULE}.running", "evaluate", "train")
    errors = (
        OSError,
        ValueError,
        load(f"{_MODULE}.steps", "EvaluationError", "train"),
        load(f"{_MODULE}.exclusion.tables", "PublicRecordsError", "train"),
        load("gpuwarden_models.recording", "RecordingError", "train"),
    )
    loaded = load("gpuwarden_server.learning.models", "load_models", "train")(model)
    if loaded.trouble:
        raise CommandError(
            ExitCode.USAGE,
            f"models cannot be used: {loaded.trouble}",
            "name a folder of models with --model",
        )
    try:
        return run(options, loaded.models, print)
    except errors as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error


def _tell(outcome: Any) -> None:
    if outcome.left:
        print(f"{len(outcome.left)} steps are left: {', '.join(outcome.left)}; call again to go on")
    else:
        print(f"report: {outcome.report}")
