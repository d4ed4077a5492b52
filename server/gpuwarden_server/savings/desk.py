"""Puts together what decisions cost; read-only, from any thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.decisions.schemas import CostView
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.learning.labels.domain import Label
from gpuwarden_server.savings.energy import LOOK_S, EnergyMeter
from gpuwarden_server.savings.repository import (
    Ran,
    Span,
    read_exclusions,
    read_jobs,
    read_labels,
    read_spans,
)
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_verdict.savings import (
    Assumptions,
    Cost,
    Facts,
    Outcome,
    cost_of,
    counted_once,
    outcome_of,
)
from gpuwarden_wire.metrics import EntityKind

MOST_DECISIONS = 2000
"""Decisions of one answer; the newest."""


@dataclass(frozen=True, slots=True)
class Booked:
    """A decision with what it cost.

    Attributes:
        span: When it excluded.
        facts: What is known of it.
        cost: What follows.
        label: What its incident turned out to be, None where that is gone.
    """

    span: Span
    facts: Facts
    cost: Cost
    label: Label | None


@dataclass(frozen=True, slots=True)
class SavingsDesk:
    """The ledger of costs.

    Attributes:
        state: state.db.
        directory: Nodes and GPUs.
        energy: Power by energy counters.
        assumed: Prices and assumptions.
        clock: Time.
    """

    state: Database
    directory: FleetDirectory
    energy: EnergyMeter
    assumed: Assumptions
    clock: Clock

    def booked(self, since: float, node_id: str | None = None) -> list[Booked]:
        """Decisions that excluded, or would have, since a time (epoch seconds), newest first.

        Each failure of a job is saved once among them.
        """
        with self.state.read() as connection:
            found = read_exclusions(connection, since, MOST_DECISIONS, node_id)
            booked = self._booked(connection, found)
        lasts_s = self.assumed.hang_s + self.assumed.restart_s
        counted = counted_once([(one.facts, one.cost) for one in booked], lasts_s)
        return [replace(one, cost=cost) for one, (_, cost) in zip(booked, counted, strict=True)]

    def tell(self, decisions: Sequence[Decision]) -> dict[str, CostView]:
        """What decisions cost, each by itself, by id.

        Of those that exclude nothing there is nothing to tell.
        """
        with self.state.read() as connection:
            booked = self._booked(connection, decisions)
        return {one.facts.decision_id: cost_view(one, self.assumed) for one in booked}

    def _booked(self, connection: Connection, found: Sequence[Decision]) -> list[Booked]:
        """What rests on an incident: a person's own word (a pin, a leave) has no right or wrong."""
        now = self.clock.now()
        judged = [one for one in found if one.incident_id is not None]
        spans = read_spans(connection, judged)
        ids = {one.decision.incident_id or "" for one in spans}
        labels = read_labels(connection, ids, now)
        jobs = read_jobs(connection, spans)
        booked = []
        for span in spans:
            label = labels.get(span.decision.incident_id or "")
            facts = self._facts(span, label, jobs.get(span.decision.id), now)
            booked.append(Booked(span, facts, cost_of(facts, self.assumed, now), label))
        return booked

    def _facts(self, span: Span, label: Label | None, ran: Ran | None, now: float) -> Facts:
        entity, begun = span.decision.entity, span.begun_at
        gpus = self._gpus(entity)
        end = now if span.ended_at is None else span.ended_at
        first = self.directory.gpu(gpus[0]) if gpus else None
        outcome = outcome_of(label.needed) if label is not None else Outcome.UNSETTLED
        before = out = None  # history is read for what counts alone
        if outcome is Outcome.RIGHT:
            before = self.energy.watts(entity.node_id, gpus, begun - LOOK_S, begun, now)
        elif outcome is Outcome.WRONG:
            out = self.energy.watts(entity.node_id, gpus, begun, end, now)
        return Facts(
            decision_id=span.decision.id,
            node_id=entity.node_id,
            fault_class=span.decision.fault_class,
            rung=span.rung,
            acted=span.acted,
            begun_at=begun,
            ended_at=span.ended_at,
            gpus_out=len(gpus),
            job_gpus=None if ran is None else ran.gpus,
            model=first.model if first is not None else "",
            watts_before=before,
            watts_out=out,
            outcome=outcome,
            incident_id=span.decision.incident_id or "",
            jobs=frozenset() if ran is None else ran.jobs,
        )

    def _gpus(self, entity: EntityRef) -> list[str]:
        if entity.kind is EntityKind.GPU:
            return [entity.key]
        return [gpu.gpu_uuid for gpu in self.directory.gpus_of(entity.node_id) if gpu.present]


def cost_view(one: Booked, assumed: Assumptions) -> CostView:
    """The JSON form of what a decision cost."""
    cost, label = one.cost, one.label
    return CostView(
        outcome=cost.outcome.value,
        why=label.why if label is not None else "its incident is gone: nobody can tell any more",
        acted=one.facts.acted,
        saved_gpu_hours=cost.saved_gpu_hours,
        lost_gpu_hours=cost.lost_gpu_hours,
        saved_kwh=cost.saved_kwh,
        lost_kwh=cost.lost_kwh,
        saved_money=cost.saved_money,
        lost_money=cost.lost_money,
        currency=assumed.currency,
        if_right_gpu_hours=cost.if_right_gpu_hours,
        if_wrong_gpu_hours=cost.if_wrong_gpu_hours,
        says=list(cost.says),
    )
