"""JSON forms of actuators and of what they did."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.actuators.document import FilesTarget, SlurmTarget, Target, WebhookTarget
from gpuwarden_server.actuators.domain import Actuation, Phase
from gpuwarden_server.actuators.worker import ActuatorWorker
from gpuwarden_server.core.bodies import Body
from gpuwarden_verdict.actuation import Act, Drift, Hold, Standing, Step


class StandingView(BaseModel):
    """How one node stands between what is wanted and what the consumer holds."""

    model_config = ConfigDict(frozen=True)

    node_id: str
    standing: Standing
    due: Annotated[list[Act], Field(description="steps due; in a dry run they stay due")]
    why: str
    hold: Annotated[Hold, Field(description="how the consumer holds it")]
    found_reason: Annotated[str, Field(description="as the consumer keeps it")]
    by: Annotated[str, Field(description="who wrote it there, '' unknown")]
    decisions: list[str]

    @classmethod
    def of(cls, step: Step) -> StandingView:
        """The JSON form of a plan's line."""
        return cls(
            node_id=step.node_id,
            standing=step.standing,
            due=list(step.acts),
            why=step.why,
            hold=step.found.hold,
            found_reason=step.found.reason,
            by=step.found.by,
            decisions=list(step.wanted.decisions) if step.wanted is not None else [],
        )


class ActuatorView(BaseModel):
    """One consumer."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Annotated[str, Field(examples=["slurm"])]
    dry_run: bool
    drift: Drift
    trouble: Annotated[str, Field(description="why the last look failed, '' for nothing")]
    looked_at: Annotated[float | None, Field(description="epoch seconds of the last good look")]
    nodes: list[StandingView]

    @classmethod
    def of(cls, worker: ActuatorWorker, node_id: str | None) -> ActuatorView:
        """The JSON form of a consumer, of one node or all."""
        look, common = worker.look, worker.target.common
        return cls(
            name=common.name,
            kind=kind_of(worker.target),
            dry_run=common.dry_run,
            drift=common.drift,
            trouble=worker.trouble,
            looked_at=look.looked_at,
            nodes=[
                StandingView.of(step)
                for step in look.steps
                if node_id is None or step.node_id == node_id
            ],
        )


class ActuatorList(BaseModel):
    """All consumers, in file order."""

    model_config = ConfigDict(frozen=True)

    items: list[ActuatorView]


class ActuationView(BaseModel):
    """One step at a node, from its intent to what was read back."""

    model_config = ConfigDict(frozen=True)

    row: int
    actuator: str
    node_id: str
    act: Act
    phase: Phase
    decisions: list[str]
    jobs: list[str]
    reason: str
    before: Hold
    after: Hold | None
    detail: str
    begun_at: float
    ended_at: float | None

    @classmethod
    def of(cls, step: Actuation) -> ActuationView:
        """The JSON form of a step."""
        return cls(
            row=step.row,
            actuator=step.actuator,
            node_id=step.node_id,
            act=step.act,
            phase=step.phase,
            decisions=list(step.decisions),
            jobs=list(step.jobs),
            reason=step.reason,
            before=step.before,
            after=step.after,
            detail=step.detail,
            begun_at=step.begun_at,
            ended_at=step.ended_at,
        )


class RemedyBody(Body):
    """What is to be done to the hardware of a node that is out."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"act": "reboot", "reason": "XID 79, vendor case 4711"}]},
    )

    act: Annotated[
        Literal["reset", "reboot", "replace"],
        Field(description="reset its excluded GPUs, start it anew, or give another machine"),
    ]
    actuator: Annotated[
        str | None,
        Field(max_length=40, description="who does it; null where only one of the file may"),
    ] = None
    reason: Annotated[
        str, Field(min_length=1, max_length=1000, description="Kept in history and audit.")
    ]


class ActuationPage(BaseModel):
    """Steps, newest first."""

    model_config = ConfigDict(frozen=True)

    items: list[ActuationView]
    next_cursor: str | None


def kind_of(target: Target) -> str:
    """The word for it in the actuators' file."""
    if isinstance(target, SlurmTarget):
        return "slurm"
    if isinstance(target, WebhookTarget):
        return "webhook"
    return "files" if isinstance(target, FilesTarget) else "command"
