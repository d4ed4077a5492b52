"""JSON forms of verdicts and labels."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.learning.labels.domain import Case, Label, Source, Truth, Verdict
from gpuwarden_verdict.entities import FaultClass


class VerdictBody(Body):
    """What a person says of an incident."""

    model_config = ConfigDict(extra="forbid")

    verdict: Verdict = Field(examples=["hardware"])
    note: str = Field(
        default="", max_length=1000, description="Kept in the audit.", examples=["RMA 4711"]
    )


class GivenVerdictView(BaseModel):
    """A person's verdict as it stands; a later one takes its place."""

    incident_id: str
    verdict: Verdict = Field(examples=["hardware"])
    note: str = Field(examples=["RMA 4711"])
    author: str
    at: float = Field(examples=[1764500000.1])


class LabelView(BaseModel):
    """What an incident turned out to be."""

    incident_id: str
    entity_kind: str
    entity: str
    node_id: str
    fault_class: FaultClass
    opened_at: float
    resolved_at: float | None
    excluded_at: float | None = Field(
        description="when the first exclusion in force in its time began: what its readings show"
        " from then on is our own act; null for none"
    )
    label: Truth = Field(
        description="uncertain: our exclusion hid what would have come, or only the score had it"
        " repaired",
        examples=["hardware"],
    )
    source: Source = Field(
        description="what settles it, the strongest word alone", examples=["verdict"]
    )
    needed: bool | None = Field(
        description="whether action was needed; null: nothing is learnt from it", examples=[True]
    )
    note: str = Field(examples=["RMA 4711"])
    author: str
    at: float = Field(description="since when it is known", examples=[1764500000.1])


class LabelPage(BaseModel):
    """A page of labels, newest incident first."""

    items: list[LabelView]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page.")


def label_view(case: Case, label: Label) -> LabelView:
    """The JSON form of what an incident turned out to be."""
    incident = case.incident
    return LabelView(
        incident_id=incident.id,
        entity_kind=incident.entity.kind.value,
        entity=incident.entity.key,
        node_id=incident.entity.node_id,
        fault_class=incident.fault_class,
        opened_at=incident.opened_at,
        resolved_at=incident.resolved_at,
        excluded_at=case.excluded_at,
        label=label.truth,
        source=label.source,
        needed=label.needed,
        note=label.why,
        author=label.author,
        at=label.at,
    )
