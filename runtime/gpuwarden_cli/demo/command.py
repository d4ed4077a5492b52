"""The sub-command `gpuwarden demo`."""

from __future__ import annotations

import signal
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from gpuwarden_cli.demo.folder import DEFAULT_FOLDER, kernel_log_access, make_folder, take_port
from gpuwarden_cli.demo.installation import Installation
from gpuwarden_cli.demo.pace import BRISK, STROLL
from gpuwarden_cli.demo.screen import LiveScreen, PlainScreen, Screen, SilentScreen
from gpuwarden_cli.demo.stage import Stage
from gpuwarden_cli.demo.story import story, told_events
from gpuwarden_cli.demo.summary import AgentSummary, DemoSummary, EventCounts, step_summaries
from gpuwarden_cli.demo.telling import Outcome, Progress, Teller
from gpuwarden_cli.exits import ExitCode
from gpuwarden_cli.output import print_json
from gpuwarden_runtime.client import Client

_FOREVER_S = 365 * 86400.0


def register(app: typer.Typer) -> None:
    """Put the sub-command into the app."""
    app.command()(demo)


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Tell the story at a brisk pace, check it, and end.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary in JSON; implies --once.")
    ] = False,
    folder: Annotated[
        Path, typer.Option(help="Folder for its files; an earlier demo's are removed.")
    ] = DEFAULT_FOLDER,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port on loopback.")] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = False,
) -> None:
    """A whole gpuwarden on this machine: a played fleet of 128 GPUs, and what goes wrong in it.

    Needs no GPU, no root and no network. Without --once it goes on after the story, until Ctrl-C.
    Exits with 1 where the story did not go as told.
    """
    once = once or as_json
    pace = BRISK if once else STROLL
    chosen = take_port(port)
    installation = Installation(make_folder(folder, pace), pace, chosen)
    with _ended_by_signals():
        try:
            installation.start()
            screen = _screen(installation.page, once, as_json)
            if browser:
                webbrowser.open(installation.page)
            summary = _play(installation, screen, once)
        finally:
            installation.end()
    conclude(summary, as_json)


def conclude(summary: DemoSummary, as_json: bool) -> None:
    """Print the summary, and exit with 1 where the story was not as told."""
    if as_json:
        print_json(summary)
    else:
        print(_conclusion(summary))
    if summary.outcome is not Outcome.AS_TOLD:
        raise typer.Exit(ExitCode.NEGATIVE)


def _screen(page: str, once: bool, as_json: bool) -> Screen:
    if as_json:
        return SilentScreen(page)
    if once or not sys.stdout.isatty():
        return PlainScreen(page)
    return LiveScreen(page)


def _play(installation: Installation, screen: Screen, once: bool) -> DemoSummary:
    with installation.client() as client, screen:
        access = kernel_log_access()
        if access:
            screen.say(f"this machine's kernel log cannot be read ({access}); all else goes on")
        stage = Stage(installation, client, installation.pace)
        teller = Teller(stage, story(installation.pace), screen.show)
        progress = teller.tell()
        summary = _summary(installation, client, stage, progress)
        if not once:
            screen.say(f"The story is told; the fleet goes on: {installation.page}   Ctrl-C ends")
            with suppress(KeyboardInterrupt):
                teller.watch(_FOREVER_S)
    return summary


def _conclusion(summary: DemoSummary) -> str:
    told = sum(step.outcome is Outcome.AS_TOLD for step in summary.steps)
    stored = f"{summary.events.stored} of {summary.events.acknowledged} acknowledged events stored"
    wrong = f", {len(summary.forbidden)} sights that must not be" if summary.forbidden else ""
    return f"{told} of {len(summary.steps)} steps as told{wrong}; {stored}; {summary.seconds:.0f} s"


def _summary(
    installation: Installation, client: Client, stage: Stage, progress: Progress
) -> DemoSummary:
    made, acknowledged = told_events(stage)
    stored = sum(1 for row in client.all_events() if row["id"] in made)
    nodes = progress.sight.nodes if progress.sight else {}
    own = nodes.get(installation.node)
    trouble = {item.source: item.reason for item in own.trouble} if own else {}
    return DemoSummary(
        outcome=Outcome.AS_TOLD if progress.as_told else Outcome.NOT_AS_TOLD,
        seconds=round(progress.elapsed_s, 1),
        steps=step_summaries(progress),
        forbidden=progress.forbidden,
        events=EventCounts(made=len(made), acknowledged=len(acknowledged), stored=stored),
        agent=AgentSummary(
            node=installation.node,
            gpus_visible=own.gpus_visible if own else None,
            kernel_log=kernel_log_access() or "read",
            trouble=trouble,
        ),
        nodes=len(nodes),
        gpus=sum(len(node.gpus) for node in nodes.values()),
        epoch=progress.sight.epoch if progress.sight else 0,
        url=installation.url,
        folder=str(installation.folder.path),
    )


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP unwind the demo as Ctrl-C does: everything it started is ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
