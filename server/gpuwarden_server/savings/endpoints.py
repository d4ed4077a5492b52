"""/v1/ledger: what decisions saved and lost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.savings.desk import MOST_DECISIONS, SavingsDesk
from gpuwarden_server.savings.schemas import (
    AdviceList,
    AdviceView,
    BookedView,
    ConcentrationView,
    FalseRateView,
    LedgerView,
    TotalsView,
    assumption_views,
    prices_view,
)
from gpuwarden_server.savings.sizing import sizes
from gpuwarden_server.standby.ports import StandbySource
from gpuwarden_verdict.savings import concentration_of, false_rates, totals_of

_DAY_S = 86_400.0


def ledger_router(desk: SavingsDesk, source: StandbySource, placements: Placements) -> APIRouter:
    """Routes of what is counted over decisions."""
    router = APIRouter(prefix="/v1", tags=["ledger"])

    @router.get("/ledger", summary="What decisions saved and lost, and how often they were wrong")
    def read_ledger(
        days: Annotated[
            float, Query(gt=0, le=3650, description="how far back, days", examples=[30])
        ] = 30.0,
        node: Annotated[str | None, Query(description="only of this node")] = None,
        limit: Annotated[int, Query(ge=0, le=1000, description="most of `items`")] = 50,
    ) -> LedgerView:
        now = desk.clock.now()
        since = now - days * _DAY_S
        booked = desk.booked(since, node)
        acted = [one for one in booked if one.facts.acted]
        would = [one for one in booked if not one.facts.acted]
        fleet = [one.node_id for one in desk.directory.nodes()] if node is None else [node]
        return LedgerView(
            since=since,
            until=now,
            complete=len(booked) < MOST_DECISIONS,
            acted=TotalsView.of(totals_of((one.facts, one.cost) for one in acted)),
            would=TotalsView.of(totals_of((one.facts, one.cost) for one in would)),
            false_rates=[
                FalseRateView.from_rate(rate) for rate in false_rates([o.facts for o in acted])
            ],
            concentration=ConcentrationView.of(
                concentration_of([one.facts.node_id for one in acted], fleet)
            ),
            assumptions=assumption_views(desk.assumed),
            prices=prices_view(desk.assumed),
            items=[BookedView.at(one, desk.assumed) for one in booked[:limit]],
        )

    @router.get("/standby/advice", summary="How many spares each pool wants, and has")
    def read_advice() -> AdviceList:
        now = desk.clock.now()
        found = sizes(desk.state, desk.directory, placements, source, now)
        return AdviceList(items=[AdviceView.of(one) for one in found])

    return router
