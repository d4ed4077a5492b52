"""The stage of the demo's story: who plays what, and what a step is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwarden_cli.demo.installation import Installation
from gpuwarden_cli.demo.pace import Pace
from gpuwarden_cli.demo.sight import Sight
from gpuwarden_runtime.client import Client

# Who plays what. The simulator runs jobs on nodes 1-8, 9-12, 13-14, 15 and 16: the burst takes a
# job of eight nodes, and no fault stops the job that another one needs.
BURST_NODE = "gpu-0003"
WORN = ("gpu-0010", 3)
LOST = ("gpu-0015", 1)
PORT_NODE, PORT = "gpu-0013", "mlx5_4/1"
HOT = ("gpu-0011", 5)
SPARE = "gpu-0016"

LEARNED = "learned_score"
"""Name under which the learnt score gives evidence."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a step may use.

    Attributes:
        installation: The running gpuwarden.
        client: With the operator's key.
        pace: Times.
    """

    installation: Installation
    client: Client
    pace: Pace

    def uuid(self, place: tuple[str, int]) -> str:
        """UUID of a GPU by node and index."""
        return self.installation.fleet.gpu_uuids[place]

    def fail(
        self, fault: str, entity: str, ramp_s: float | None = None, severity: float = 1.0
    ) -> None:
        """Start a fault."""
        self.installation.fleet.fail(fault, entity, ramp_s, severity)

    def repair(self, entity: str) -> None:
        """End the faults of an entity; its node reports a passed check."""
        self.installation.fleet.player.repair(entity)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the story.

    Attributes:
        name: Stable name in the summary.
        title: For people.
        told: What must be seen, in words.
        begin: Makes it happen.
        seen: What is seen of it, "" as long as it is not what is told.
        deadline_s: How long that may take.
        hold_s: How long to look at least, so that what must not come could have come.
        steady_s: How long it must then be seen at every look.
    """

    name: str
    title: str
    told: str
    begin: Callable[[Stage], None]
    seen: Callable[[Stage, Sight], str]
    deadline_s: float
    hold_s: float = 0.0
    steady_s: float = 0.0


def named(place: tuple[str, int]) -> str:
    """A GPU by node and index, for people."""
    return f"{place[0]} GPU {place[1]}"
