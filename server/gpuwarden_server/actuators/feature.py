"""Actuators as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from prometheus_client import CollectorRegistry

from gpuwarden_server.actuators.command import CommandActuator
from gpuwarden_server.actuators.document import (
    CommandTarget,
    FilesTarget,
    SlurmTarget,
    Target,
    WebhookTarget,
)
from gpuwarden_server.actuators.files import FilesActuator
from gpuwarden_server.actuators.meters import ActuatorMeters
from gpuwarden_server.actuators.parse import load_actuators
from gpuwarden_server.actuators.ports import Actuator, Poster
from gpuwarden_server.actuators.programs import Variables
from gpuwarden_server.actuators.slurm import SlurmActuator
from gpuwarden_server.actuators.webhook import WebhookActuator
from gpuwarden_server.actuators.worker import ActuatorWorker, WorkerParts
from gpuwarden_server.config import Settings, variable
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.decisions.ports import FeedSource
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.leadership import Leadership, Post

STOP_S = 5.0
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SLURM_CONF")
"""Variables that programs get; the server's own hold its keys."""


class Actuators:
    """All actuators of the file, each in a thread of its own.

    Attributes:
        workers: In file order.
    """

    def __init__(self, workers: Sequence[ActuatorWorker]) -> None:
        self.workers = tuple(workers)

    async def start(self) -> None:
        """Look at each consumer at once."""
        for worker in self.workers:
            worker.start()

    async def stop(self) -> None:
        """End after the calls under way."""
        await asyncio.gather(*(asyncio.to_thread(one.stop, STOP_S) for one in self.workers))

    def wake(self) -> None:
        """Exclusions may have changed; callable from any thread."""
        for worker in self.workers:
            worker.wake()

    def trouble(self) -> str | None:
        """Actuators in trouble, None for none; what they say may name secrets, and is not here."""
        names = [one.target.common.name for one in self.workers if one.trouble]
        return f"in trouble: {', '.join(names)}; see `gpuwarden actuators`" if names else None


MakePoster = Callable[[float], Poster]
"""Given a time limit in seconds, HTTP to the addresses that the settings allow."""


def make_actuator(target: Target, variables: Variables, make_poster: MakePoster) -> Actuator:
    """The actuator of a target."""
    match target:
        case SlurmTarget():
            return SlurmActuator(target, variables)
        case FilesTarget():
            return FilesActuator(target)
        case CommandTarget():
            return CommandActuator(target, variables)
        case WebhookTarget():
            return WebhookActuator(target, make_poster(target.common.timeout_s))
        case _:
            assert_never(target)


def passed_variables(variable: Callable[[str], str | None]) -> Mapping[str, str]:
    """What programs of actuators get of the environment."""
    found = ((name, variable(name)) for name in PASSED_ON)
    return {name: value for name, value in found if value is not None}


def make_actuators(
    settings: Settings,
    state: Database,
    clock: Clock,
    source: FeedSource,
    leadership: Leadership,
    registry: CollectorRegistry,
    make_poster: MakePoster,
) -> Actuators:
    """Actuators as the operator's file says.

    Args:
        settings: The operator's.
        state: state.db.
        clock: Time.
        source: The feed; asked once the parts have started.
        leadership: Only the leader acts.
        registry: Metrics.
        make_poster: HTTP for receivers.

    Raises:
        StartError: The file cannot be used; names key and mend.
    """
    document = load_actuators(settings.actuators_file, variable)
    if not document.targets:
        return Actuators(())
    meters = ActuatorMeters(registry)
    variables = passed_variables(variable)
    return Actuators(
        [
            ActuatorWorker(
                WorkerParts(
                    target=target,
                    actuator=make_actuator(target, variables, make_poster),
                    state=state,
                    clock=clock,
                    feed=lambda: source.published().exclusions,
                    may_act=lambda: leadership.post is Post.LEADING,
                    meters=meters,
                )
            )
            for target in document.targets
        ]
    )
