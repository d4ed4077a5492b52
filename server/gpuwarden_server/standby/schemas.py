"""JSON forms of the book of spares."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.ids import NODE_ID_PATTERN
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_server.standby.ports import AddOrder, Keeps, PromoteOrder, Proposal, SeenSpare
from gpuwarden_verdict.standby import Lease, Obstacle, Spare, SpareState


class AddBody(ReasonBody):
    """A node is to stand by, or a spare is as far as is said."""

    model_config = ConfigDict(extra="forbid")

    node_id: str = Field(pattern=NODE_ID_PATTERN)
    pool: str | None = Field(
        default=None, max_length=200, description="whose nodes it may replace; null: its own pool's"
    )
    state: Literal["cold", "warming", "warm"] = Field(
        default="cold", description="a promotion alone makes it leased", examples=["warm"]
    )
    proven: bool = Field(default=False, description="you vouch for its health as of now")

    def order(self) -> AddOrder:
        """As a value."""
        state = SpareState(self.state)
        return AddOrder(self.node_id, self.pool, state, self.proven, self.reason)


class PromoteBody(ReasonBody):
    """A spare is to work for a node that leaves."""

    model_config = ConfigDict(extra="forbid")

    leaver: str = Field(pattern=NODE_ID_PATTERN, examples=["gpu-017"])
    joiner: str | None = Field(
        default=None, pattern=NODE_ID_PATTERN, description="null: the best that may be taken"
    )
    lease_s: float | None = Field(
        default=None,
        ge=0,
        le=10 * 365 * 86_400,
        description="null: as the policy says; 0: until it is released",
    )

    def order(self) -> PromoteOrder:
        """As a value."""
        return PromoteOrder(self.leaver, self.joiner, self.lease_s, self.reason)


class ReleaseBody(ReasonBody):
    """The end of a lease."""

    model_config = ConfigDict(extra="forbid")

    keep: Keeps = Field(
        description="who goes on in service: leaver: it returns, and the spare stands by again; "
        "joiner: it stays for good, and the node that left stands by from now on",
    )


class SpareView(BaseModel):
    """A spare as the book has it."""

    node_id: str
    pool: str
    state: SpareState
    added_at: float
    added_by: str
    proven_at: float | None = Field(description="when a person vouched for it")
    reason: str

    @classmethod
    def of(cls, spare: Spare) -> SpareView:
        """Of a value."""
        return cls(**asdict(spare))


class SeenSpareView(SpareView):
    """A spare, and how it does now."""

    rack: str
    leaf: str
    proof_at: float | None = Field(description="newest passed check, or a person's word")
    lemon: float = Field(description="weight in the list of lemons, 0: not in it")
    obstacles: list[Obstacle] = Field(description="why it may not be taken; empty where it may")

    @classmethod
    def seen(cls, one: SeenSpare) -> SeenSpareView:
        """Of a value."""
        look = one.look
        return cls(
            **asdict(look.spare),
            rack=look.rack,
            leaf=look.leaf,
            proof_at=look.proof_at,
            lemon=look.lemon,
            obstacles=list(one.obstacles),
        )


class LeaseView(BaseModel):
    """A spare works, or worked, for a node that left."""

    epoch: int = Field(description="rises with each lease: an older one is stale")
    joiner: str = Field(examples=["gpu-099"])
    leaver: str = Field(examples=["gpu-017"])
    pool: str
    decision_id: str
    reason: str = Field(examples=["same leaf switch, warm, proven 2.0 h ago"])
    author: str
    begun_at: float
    expires_at: float | None = Field(description="null: until it is released")
    ended_at: float | None
    ended_by: str
    ended_why: str

    @classmethod
    def of(cls, lease: Lease) -> LeaseView:
        """Of a value."""
        return cls(**asdict(lease))


class ProposalView(BaseModel):
    """A node without a replacement, and who would be taken for it."""

    leaver: str = Field(examples=["gpu-017"])
    pool: str
    decision_id: str
    waiting: bool = Field(description="its exclusion is not in force")
    automatic: bool = Field(description="carried out by itself once the exclusion is in force")
    joiner: str | None = Field(examples=["gpu-099"])
    why: str

    @classmethod
    def of(cls, one: Proposal) -> ProposalView:
        """Of a value."""
        return cls(**asdict(one))


class StandbyView(BaseModel):
    """The book."""

    spares: list[SeenSpareView]
    leases: list[LeaseView] = Field(description="those that hold")
    proposals: list[ProposalView]


class LeasePage(BaseModel):
    """Leases, newest first, those that ended too."""

    items: list[LeaseView]
