"""`gpuwarden simulate --live`: a simulated fleet that reports to a real server."""

from __future__ import annotations

import signal
from threading import Event

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.session import settings_of
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.records import Role

Sizes = tuple[int, int, float, int, float]
"""Nodes, GPUs of each, hours of faults, seed, seconds between readings."""


def play_live(context: typer.Context, sizes: Sizes) -> None:
    """Play a fleet to the server of the settings until SIGTERM or Ctrl-C.

    Raises:
        CommandError: The key may not speak for every node, or a number is out of range.
    """
    settings = settings_of(context)
    with Client(settings) as client:
        caller = client.fleet().caller
    if caller is None or caller.role is not Role.ADMIN:
        raise CommandError(
            ExitCode.REFUSED,
            "this key may not report for a whole fleet",
            "set GPUWARDEN_KEY to an admin key",
        )
    build = load("gpuwarden_models.simulate", "live_fleet", "train")
    try:
        player = build(settings.url, settings.key, *sizes)
    except ValueError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    player.start()
    print(f"{sizes[0]} nodes of {sizes[1]} GPUs report to {settings.url}; Ctrl-C ends")
    stop.wait()
    player.stop()
