"""What the demo says at its end: the same facts as JSON and for people."""

from __future__ import annotations

import msgspec

from gpuwarden_cli.demo.telling import Outcome, Progress


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what was told, what was seen, how long it took."""

    name: str
    title: str
    expected: str
    seen: str
    outcome: Outcome
    seconds: float


class EventCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Events of the played fleet.

    Attributes:
        made: Made by the simulator.
        acknowledged: That the server called durable.
        stored: That are in the server's database.
    """

    made: int
    acknowledged: int
    stored: int


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The real agent of this machine.

    Attributes:
        node: Its name.
        gpus_visible: GPUs it sees, None where it cannot say.
        kernel_log: "read", or why it cannot be.
        trouble: Sources it cannot read, with the reason.
    """

    node: str
    gpus_visible: int | None
    kernel_log: str
    trouble: dict[str, str]


class DemoSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole demo; `outcome` is as_told only where every step was and nothing forbidden was."""

    outcome: Outcome
    seconds: float
    steps: tuple[StepSummary, ...]
    forbidden: tuple[str, ...]
    events: EventCounts
    agent: AgentSummary
    nodes: int
    gpus: int
    epoch: int
    url: str
    folder: str


def step_summaries(progress: Progress) -> tuple[StepSummary, ...]:
    """Every step of a story."""
    return tuple(
        StepSummary(
            name=item.step.name,
            title=item.step.title,
            expected=item.step.told,
            seen=item.seen,
            outcome=item.outcome,
            seconds=round(item.seconds, 1),
        )
        for item in progress.told
    )
