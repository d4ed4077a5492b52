"""JSON forms of the ledger of costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, Field

from gpuwarden_server.decisions.schemas import CostView
from gpuwarden_server.savings.desk import Booked, cost_view
from gpuwarden_server.savings.sizing import Sized
from gpuwarden_verdict.savings import (
    ASSUMPTIONS,
    Assumptions,
    Concentration,
    FalseRate,
    Totals,
)


class AssumptionView(BaseModel):
    """A number that is assumed."""

    name: str
    value: float
    default: float
    unit: str
    what: str
    source: str = Field(description="where the default is from")


class PricesView(BaseModel):
    """What things cost; empty where the operator named no price."""

    currency: str = Field(examples=["USD"])
    gpu_hour: dict[str, float] = Field(
        description="by pattern of the GPU's model", examples=[{"*H100*": 2.1}]
    )
    kwh: float | None


class TotalsView(BaseModel):
    """Sums; of energy and money over those decisions of which it is known."""

    decisions: int
    right: int
    wrong: int
    unsettled: int
    saved_gpu_hours: float
    lost_gpu_hours: float
    saved_kwh: float
    lost_kwh: float
    kwh_unknown: int = Field(description="settled decisions whose energy is unknown")
    saved_money: float
    lost_money: float
    money_unknown: int = Field(description="settled decisions whose money is unknown")
    open_saved_gpu_hours: float = Field(description="of unsettled ones, if all were right")
    open_lost_gpu_hours: float = Field(description="of unsettled ones, if all were wrong")

    @classmethod
    def of(cls, totals: Totals) -> TotalsView:
        """Of a value."""
        return cls(**asdict(totals))


class FalseRateView(BaseModel):
    """How often exclusions in force turned out to be false."""

    of: Literal["fleet", "class", "rung"]
    name: str
    wrong: int
    settled: int
    unsettled: int
    share: float | None
    low: float = Field(description="of the exact 95 % interval (Clopper and Pearson)")
    high: float
    high_if_open_are_false: float = Field(description="bound with all unsettled ones as false")

    @classmethod
    def from_rate(cls, rate: FalseRate) -> FalseRateView:
        """Of a value."""
        return cls.model_validate(asdict(rate))


class TopView(BaseModel):
    """Share of the exclusions on the nodes with the most of them."""

    nodes: int
    share: float


class WorstView(BaseModel):
    """A node that was excluded more than once."""

    node_id: str
    exclusions: int


class ConcentrationView(BaseModel):
    """How exclusions in force spread over nodes."""

    exclusions: int
    nodes: int
    nodes_excluded: int
    top: list[TopView]
    gini: float | None = Field(description="0: all nodes alike; towards 1: all on one")
    worst: list[WorstView]

    @classmethod
    def of(cls, found: Concentration) -> ConcentrationView:
        """Of a value."""
        return cls(
            exclusions=found.exclusions,
            nodes=found.nodes,
            nodes_excluded=found.nodes_excluded,
            top=[TopView(nodes=k, share=share) for k, share in found.top],
            gini=found.gini,
            worst=[WorstView(node_id=node, exclusions=count) for node, count in found.worst],
        )


class BookedView(BaseModel):
    """One decision with what it cost."""

    decision_id: str
    entity_kind: str
    entity: str
    node_id: str
    fault_class: str
    rung: str
    begun_at: float
    ended_at: float | None
    gpus_out: int
    job_gpus: int | None = Field(description="null: no inventory told what ran there")
    ledger: CostView

    @classmethod
    def at(cls, one: Booked, assumed: Assumptions) -> BookedView:
        """Of a value."""
        facts, entity = one.facts, one.span.decision.entity
        return cls(
            decision_id=facts.decision_id,
            entity_kind=entity.kind.value,
            entity=entity.key,
            node_id=facts.node_id,
            fault_class=facts.fault_class.value,
            rung=facts.rung.name.lower(),
            begun_at=facts.begun_at,
            ended_at=facts.ended_at,
            gpus_out=facts.gpus_out,
            job_gpus=facts.job_gpus,
            ledger=cost_view(one, assumed),
        )


class LedgerView(BaseModel):
    """The ledger of costs over some days."""

    since: float
    until: float
    complete: bool = Field(description="false: more decisions than one answer counts")
    acted: TotalsView = Field(description="exclusions that were in force")
    would: TotalsView = Field(description="those that observe mode, advice or a guard kept back")
    false_rates: list[FalseRateView]
    concentration: ConcentrationView
    assumptions: list[AssumptionView]
    prices: PricesView
    items: list[BookedView] = Field(description="the newest decisions")


class AdviceView(BaseModel):
    """How many spares a pool wants, and has."""

    pool: str
    nodes: int = Field(description="with GPUs, in service")
    node_days: float = Field(description="that they were watched, of the latest 90 days")
    leaves: int = Field(description="times that one was, or should have been, taken out")
    returns: int
    rate: float = Field(description="leaves a node-day, with the prior")
    rate_upper: float | None = Field(description="upper 95 % bound of what was seen alone")
    mean_out_s: float
    share_out: float = Field(description="of the nodes, at a time")
    wanted: int = Field(description="spares that suffice 99 % of the time")
    wanted_upper: int | None = Field(description="the same at the upper bound of the rate")
    spares: int = Field(description="in the book for it, leased ones too")
    ready: int = Field(description="of these, those that may be taken now")
    says: list[str] = Field(description="what to know before believing it")

    @classmethod
    def of(cls, sized: Sized) -> AdviceView:
        """Of a value."""
        advice, seen = sized.advice, sized.advice.seen
        return cls(
            pool=seen.pool,
            nodes=seen.nodes,
            node_days=seen.node_days,
            leaves=seen.leaves,
            returns=seen.returns,
            rate=advice.rate,
            rate_upper=advice.rate_upper,
            mean_out_s=advice.mean_out_s,
            share_out=advice.share_out,
            wanted=advice.wanted,
            wanted_upper=advice.wanted_upper,
            spares=sized.spares,
            ready=sized.ready,
            says=list(advice.says),
        )


class AdviceList(BaseModel):
    """By pool."""

    items: list[AdviceView]


def assumption_views(assumed: Assumptions) -> list[AssumptionView]:
    """Each assumption with what holds."""
    return [
        AssumptionView(
            name=one.name,
            value=getattr(assumed, one.name),
            default=one.default,
            unit=one.unit,
            what=one.what,
            source=one.source,
        )
        for one in ASSUMPTIONS
    ]


def prices_view(assumed: Assumptions) -> PricesView:
    """What things cost."""
    return PricesView(
        currency=assumed.currency, gpu_hour=dict(assumed.gpu_hour_prices), kwh=assumed.kwh_price
    )
