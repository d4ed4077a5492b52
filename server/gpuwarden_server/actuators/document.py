"""The actuators' file as values: who is acted on, and how far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpuwarden_verdict.actuation import Act, Drift
from gpuwarden_verdict.entities import Rung


@dataclass(frozen=True, slots=True)
class Common:
    """What every actuator has.

    Attributes:
        name: Stands in records, metrics and the audit; each once.
        nodes: Shell-style patterns of nodes that it is for.
        dry_run: Only say what would be done.
        drift: What to do where somebody undid an exclusion of ours.
        every_s: Seconds between two looks at the consumer where nothing changes here.
        timeout_s: Longest time for one call.
    """

    name: str
    nodes: tuple[str, ...] = ("*",)
    dry_run: bool = True
    drift: Drift = Drift.SHOW
    every_s: float = 30.0
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class SlurmTarget:
    """A Slurm cluster, by scontrol.

    Attributes:
        common: What every actuator has.
        programs: Folder of scontrol and squeue, "" to look on PATH.
        config: slurm.conf, None for the machine's own.
        move_from: From which rung on jobs are requeued elsewhere; None never.
    """

    common: Common
    programs: str = ""
    config: Path | None = None
    move_from: Rung | None = None


@dataclass(frozen=True, slots=True)
class FilesTarget:
    """Plain files in a folder that is ours.

    Attributes:
        common: What every actuator has.
        folder: Where they are written.
    """

    common: Common
    folder: Path


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """Any program of the user's.

    Attributes:
        common: What every actuator has.
        command: The program and its arguments; the request comes as JSON on its stdin.
        secret: Signs the request, "" for none.
        move_from: From which rung on it is asked to move what runs there; None never.
        remedies: What people may ask it to do to hardware; nothing unless the file says so.
    """

    common: Common
    command: tuple[str, ...]
    secret: str = ""
    move_from: Rung | None = None
    remedies: frozenset[Act] = frozenset()


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A receiver of the user's over HTTP.

    Attributes:
        common: What every actuator has.
        url: Where requests are posted; may hold a token: never shown.
        secret: Signs requests as Standard Webhooks have it.
        read_url: Where it is asked by GET how nodes stand, "" to post that too.
        move_from: From which rung on it is asked to move what runs there; None never.
        remedies: What people may ask it to do to hardware; nothing unless the file says so.
    """

    common: Common
    url: str = field(repr=False)
    secret: str = field(repr=False)
    read_url: str = field(default="", repr=False)
    move_from: Rung | None = None
    remedies: frozenset[Act] = frozenset()


Target = SlurmTarget | FilesTarget | CommandTarget | WebhookTarget


@dataclass(frozen=True, slots=True)
class ActuatorsDocument:
    """All actuators, in file order."""

    targets: tuple[Target, ...] = ()
