"""`gpuwarden backtest`: what the judge would have said about what a fleet showed."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import print_table
from gpuwarden_cli.session import open_client

_MOST_SHOWN = 20
_PROMETHEUS = "gpuwarden_models.recording_prometheus"

Record = Annotated[
    bool,
    typer.Option(
        "--record",
        help="Record it at the server as a trial of these models on its fleet: the gate of the "
        "learnt score goes by it. Needs labels, and an operator's key.",
    ),
]
KeepCaps = Annotated[
    bool,
    typer.Option(
        "--keep-caps",
        help="Let caps hold exclusions back, though nobody repairs what a backtest excludes.",
    ),
]


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(backtest)


def backtest(
    context: typer.Context,
    recording: Annotated[Path | None, typer.Argument(help="Folder of a recording.")] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Play a Prometheus' own history instead of a folder."),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="With --prometheus: from when; ISO 8601 or epoch seconds.")
    ] = None,
    end: Annotated[
        str | None, typer.Option(help="With --prometheus: until when; else now.")
    ] = None,
    kernel_logs: Annotated[
        Path | None, typer.Option(help="With --prometheus: folder of NODE.log[.gz].")
    ] = None,
    jobs: Annotated[Path | None, typer.Option(help="With --prometheus: jobs.csv.")] = None,
    fleet: Annotated[Path | None, typer.Option(help="With --prometheus: fleet.csv.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the whole answer there.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a report for people there: one file.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Policy file; its mode is taken as act.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of models, or of one; else those that ship.")
    ] = None,
    rules_alone: Annotated[
        bool, typer.Option("--rules-alone", help="Without the learnt scores.")
    ] = False,
    keep_caps: KeepCaps = False,
    record: Record = False,
) -> None:
    """Play a recording through the judge: what would be flagged, excluded and missed, and when.

    The same windows, detectors, incidents and policy as the server's, on the recording's own clock.
    """
    beside = _Beside(prometheus, start, end, kernel_logs, jobs, fleet)
    errors = (OSError, load("gpuwarden_models.recording", "RecordingError", "train"))
    try:
        history, source = _history(recording, beside)
        scores = {} if rules_alone else models_in(model)
        played = _Played(recording, getattr(history, "origin", ""))
        if record:
            _refuse_trial(played, keep_caps=keep_caps)
        report = _play(history, source, _rules(policy), scores, keep_caps)
        _write(report, json_file, html_file)
    except errors as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    _tell(report)
    if record:
        _record(context, report, model, played)


@dataclass(frozen=True, slots=True)
class _Played:
    """A recording: its folder, None for a Prometheus' history, and what made it, "" unsaid."""

    folder: Path | None
    origin: str


def _refuse_trial(played: _Played, *, keep_caps: bool) -> None:
    """Before hours of play: the server refuses what is simulated anyway."""
    if keep_caps:
        raise CommandError(
            ExitCode.USAGE,
            "--record: with --keep-caps, false exclusions that a cap held back would not count",
            "leave --keep-caps away",
        )
    if played.origin == "simulated":
        raise CommandError(
            ExitCode.USAGE,
            f"--record: {played.folder} is simulated: it says nothing of the server's fleet",
            "play the fleet's own history, by --prometheus for one",
        )


def _record(context: typer.Context, report: Any, folder: Path | None, played: _Played) -> None:
    """Tell the server what was false in how much time without a fault; rules count too."""
    form = report.form()
    home = _gpu_model_home(folder) if form["model"]["version"] else None
    if home is None or "scores" not in form:
        raise CommandError(
            ExitCode.USAGE,
            "--record needs a GPU model and labels: without them nobody knows what was false",
            "put labels.csv into the recording, and leave --rules-alone away",
        )
    manifest = (home / load("gpuwarden_verdict.fusion.artifact", "MANIFEST", "train")).read_bytes()
    digest_of = load("gpuwarden_models.datasets", "recording_digest", "train")
    wrong = form["scores"]["false_exclusions"]
    with open_client(context) as client:
        told = client.record_trial(
            "gpu",
            load("msgspec.json", "decode", "train")(manifest)["version"],
            wrong["gpu_days"],
            wrong["count"],
            f"backtest of {form['recording']['source']}",
            digest=hashlib.sha256(manifest).hexdigest(),
            exclude_confidence=form["policy"]["exclude_confidence"],
            entities=report.gpus,
            origin=played.origin,
            recording_digest="" if played.folder is None else digest_of(played.folder),
        )
    print(f"recorded as a trial of {told.version}: below {told.bound_per_day:.2g} false exclusions")
    print(f"  a GPU and day (95 %), over {told.healthy_days:.1f} healthy GPU-days")


def _gpu_model_home(folder: Path | None) -> Path | None:
    """Folder of the GPU model that played."""
    place = folder or load("gpuwarden_server.learning.models", "default_folder", "train")()
    find = load("gpuwarden_server.learning.models", "promoted_home", "train")
    gpu = load("gpuwarden_wire.metrics", "EntityKind", "train").GPU
    home: Path | None = find(place, gpu)
    return home


@dataclass(frozen=True, slots=True)
class _Beside:
    """A Prometheus, and what it does not know."""

    url: str | None
    start: str | None
    end: str | None
    kernel_logs: Path | None
    jobs: Path | None
    fleet: Path | None

    @property
    def is_given(self) -> bool:
        """Whether any of what goes beside it is given."""
        beside = (self.start, self.end, self.kernel_logs, self.jobs, self.fleet)
        return any(one is not None for one in beside)


def _history(recording: Path | None, beside: _Beside) -> tuple[Any, str]:
    """What is to be played, and its name."""
    if (recording is None) == (beside.url is None):
        raise CommandError(ExitCode.USAGE, "give a recording's folder, or --prometheus URL")
    if recording is None:
        return _ask(beside)
    if beside.is_given:
        raise CommandError(
            ExitCode.USAGE,
            "--start, --end, --kernel-logs, --jobs and --fleet go with --prometheus",
            "a recording's folder has all of these in it",
        )
    kinds = load("gpuwarden_models.names", "KEY_COLUMNS", "train")
    opened = load("gpuwarden_models.recording", "Recording", "train")
    return opened(recording, tuple(kinds)), str(recording)


def _ask(beside: _Beside) -> tuple[Any, str]:
    begin = _moment("--start", beside.start)
    until = time.time() if beside.end is None else _moment("--end", beside.end)
    tables = load(_PROMETHEUS, "tables_beside", "train")
    read = load(_PROMETHEUS, "read_prometheus", "train")
    known = tables(beside.fleet, beside.jobs, beside.kernel_logs)
    return read(beside.url, begin, until, known), _bare(str(beside.url))


def _moment(option: str, text: str | None) -> float:
    if text is None:
        raise CommandError(ExitCode.USAGE, f"--prometheus needs {option}")
    try:
        at: float = load("gpuwarden_models.recording_tables", "parse_time", "train")(text)
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE,
            f"{option} {text!r} is no time",
            "give ISO 8601, as 2026-03-01T12:00:00, or epoch seconds",
        ) from error
    return at


def _bare(url: str) -> str:
    """An address without its credentials, which belong in no report."""
    scheme, _, rest = url.rpartition("://")
    host = rest.rpartition("@")[2]
    return f"{scheme}://{host}" if scheme else host


def _rules(path: Path | None) -> Any:
    parse = load("gpuwarden_verdict.policy.parse", "parse_policy", "train")
    wrong: type[Exception] = load("gpuwarden_verdict.policy.problem", "PolicyError", "train")
    try:
        return parse(path.read_text(encoding="utf-8") if path is not None else "")
    except wrong as error:
        raise CommandError(ExitCode.USAGE, f"{path}: {error}") from error


def models_in(folder: Path | None) -> Any:
    """The models of a folder, None for those that ship.

    Raises:
        CommandError: They cannot be used.
    """
    loaded = load("gpuwarden_server.learning.models", "load_models", "train")(folder)
    if not loaded.models or loaded.trouble:
        raise CommandError(
            ExitCode.USAGE,
            f"no model: {loaded.trouble}",
            "name a model's folder with --model, or judge with --rules-alone",
        )
    return loaded.models


def _play(history: Any, source: str, rules: Any, scores: Any, keep_caps: bool) -> Any:
    run = load("gpuwarden_models.backtest.running", "backtest", "train")
    with playing(f"{len(history.nodes)} nodes") as show:
        return run(history, source, rules, scores, show, keep_caps=keep_caps)


@contextmanager
def playing(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error; what it gives is told the share that is done."""
    with _progress() as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error; nothing where that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        disable=not sys.stderr.isatty(),
    )  # fmt: skip
    with bar:
        yield bar


def _write(report: Any, json_file: Path | None, html_file: Path | None) -> None:
    if json_file is not None:
        encode = load("msgspec.json", "encode", "train")
        tidy = load("msgspec.json", "format", "train")
        json_file.write_bytes(tidy(encode(report.form()), indent=2) + b"\n")
    if html_file is not None:
        page = load("gpuwarden_models.backtest.page", "page", "train")
        html_file.write_text(page(report), encoding="utf-8")


def _tell(report: Any) -> None:
    form = report.form()
    played, flags = form["recording"], form["flags"]
    hours = (played["end"] - played["start"]) / 3600.0
    print(
        f"{played['nodes']} nodes, {played['gpus']} GPUs, {hours:.1f} h at"
        f" {played['interval_s']:g} s: {len(flags)} flags"
    )
    excluded = sum(flag["rung"] != "suspect" for flag in flags)
    print(f"  excluded by the policy in act mode: {excluded}")
    if form["blind_planes"]:
        print(f"  blind on: {', '.join(form['blind_planes'])}")
    if "scores" in form:
        _tell_scores(form["scores"])
    if flags:
        _tell_flags(flags)


def _tell_scores(scores: Any) -> None:
    labels = scores["labels"]
    flagged = sum(one["flagged_at"] is not None for one in labels)
    false, wrong = scores["false_alarms"], scores["false_exclusions"]
    print(f"  labelled faults flagged before their end: {flagged} of {len(labels)}")
    print(
        f"  false alarms: {false['count']} in {false['gpu_days']:.1f} healthy GPU-days,"
        f" false exclusions: {wrong['count']} in {wrong['gpu_days']:.1f} without a fault"
    )
    print(f"  confounders excluded: {scores['confounders_excluded']} of {scores['confounders']}")
    rows = [
        (
            name,
            one["labels"],
            one["flagged"],
            one["excluded"],
            one["ahead"],
            "" if one["median_lead_s"] is None else f"{one['median_lead_s'] / 60:z.1f} min",
            f"{one['healthy_flagged']} of {one['healthy_windows']}",
            one["false_alarms"],
        )
        for name, one in scores["by_class"].items()
    ]
    columns = (
        *("CLASS", "FAULTS", "FLAGGED", "EXCLUDED", "AHEAD", "MEDIAN LEAD"),
        *("HEALTHY WINDOWS FLAGGED", "FALSE"),
    )
    print_table(columns, rows, "no labelled fault")


def _tell_flags(flags: Any) -> None:
    utc = load("gpuwarden_runtime.place", "utc", "cli")
    rows = [
        (
            flag["entity_kind"],
            flag["entity"],
            flag["fault_class"],
            flag["rung"],
            utc(flag["first_flagged_at"]),
            flag["reasons"][0] if flag["reasons"] else "",
        )
        for flag in flags[:_MOST_SHOWN]
    ]
    print_table(("KIND", "ENTITY", "CLASS", "RUNG", "FIRST", "WHY"), rows, "nothing was flagged")
    if len(flags) > _MOST_SHOWN:
        print(f"  {len(flags) - _MOST_SHOWN} more with --json or --html")
