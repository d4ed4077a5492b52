"""The thread that turns facts into messages, each fact once, whatever ends the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import assert_never

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.notifications.document import Endpoint, EndpointKind
from gpuwarden_server.notifications.domain import Fact
from gpuwarden_server.notifications.facts import repository as facts_rows
from gpuwarden_server.notifications.meters import NotifyMeters
from gpuwarden_server.notifications.planning import repository as case_rows
from gpuwarden_server.notifications.planning.case_plan import CasePlan
from gpuwarden_server.notifications.planning.desk import PlanDesk
from gpuwarden_server.notifications.planning.plans import AlertPlan, Plan, WebhookPlan
from gpuwarden_server.notifications.quiet import repository as silence_rows
from gpuwarden_server.notifications.sending import repository as queue
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

FACTS_A_PASS = 50
PASS_S = 0.05
"""Events wait for the same writer: a storm is planned in short transactions."""
TICK_S = 1.0
RETRY_S = 0.5
PRUNE_EVERY_S = 3600.0
KEEP_S = 14 * 86_400.0
"""Messages, delivery log and closed cases stay so long."""
_log = structlog.get_logger(__name__)


def plan_for(endpoint: Endpoint) -> Plan | None:
    """How an endpoint is told; None for a heartbeat, which tells nothing."""
    match endpoint.kind:
        case EndpointKind.WEBHOOK:
            return WebhookPlan(endpoint)
        case EndpointKind.ALERTMANAGER:
            return AlertPlan(endpoint)
        case (
            EndpointKind.PAGERDUTY | EndpointKind.SLACK | EndpointKind.TEAMS | EndpointKind.APPRISE
        ):
            return CasePlan(endpoint)
        case EndpointKind.HEARTBEAT:
            return None
        case _:
            assert_never(endpoint.kind)


class Planner:
    """Reads the outbox from where it was left; `wake` after a commit that wrote facts."""

    def __init__(
        self,
        state: Database,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        meters: NotifyMeters,
        planned: Callable[[], None],
    ) -> None:
        """Make a planner; `start` makes it run.

        Args:
            state: state.db.
            endpoints: Who is told.
            clock: Time.
            meters: Figures.
            planned: Called after each commit that may have queued messages.
        """
        self._state = state
        self._plans = [plan for one in endpoints if (plan := plan_for(one)) is not None]
        self._clock = clock
        self._meters = meters
        self._planned = planned
        self._wake = Event()
        self._stopping = False
        self._failing = False
        self._pruned_at = clock.now()
        self._thread = Thread(target=self._run, name="notify-planner", daemon=True)

    def start(self) -> None:
        """Start; what an earlier process left is planned first."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Look at the outbox now; callable from any thread."""
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the transaction under way."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def run_once(self) -> None:
        """Plan all that is there and all that is due."""
        while not self._stopping and self._plan_facts():
            self._planned()
        if self._is_due():
            self._state.writer.call(self._look)
            self._planned()
        if self._clock.now() - self._pruned_at >= PRUNE_EVERY_S:
            self._pruned_at = self._clock.now()
            self._state.writer.call(self._prune)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(TICK_S)
            self._wake.clear()
            try:
                self.run_once()
                self._note(None)
            except (WriteFailed, SQLAlchemyError, TimeoutError) as error:
                self._note(str(error))  # nothing was committed: the same facts are read again
                self._pause()
            except Exception as error:
                self._meters.planning_failures.inc()
                _log.error("notify_planner_failed", worker="notify-planner", exc_info=error)
                self._pause()

    def _pause(self) -> None:
        if not self._stopping:
            self._wake.wait(RETRY_S)
            self._wake.set()

    def _note(self, trouble: str | None) -> None:
        if trouble is not None and not self._failing:
            _log.error("notify_planner_stopped", worker="notify-planner", reason=trouble)
        elif trouble is None and self._failing:
            _log.info("notify_planner_recovered", worker="notify-planner")
        self._failing = trouble is not None

    def _plan_facts(self) -> int:
        with self._state.read() as connection:
            if not facts_rows.facts_after(connection, facts_rows.position(connection), 1):
                return 0
        began = self._clock.monotonic()
        count, held_back = self._state.writer.call(self._write_facts)
        self._meters.planning.observe(self._clock.monotonic() - began)
        self._meters.facts.inc(count)
        self._count(held_back)
        return count

    def _write_facts(self, connection: Connection) -> tuple[int, Counter[tuple[str, str]]]:
        desk = self._desk(connection)
        row = facts_rows.position(connection)
        began, count = self._clock.monotonic(), 0
        for fact in facts_rows.facts_after(connection, row, FACTS_A_PASS):
            for plan in self._plans:
                self._take(connection, desk, plan, fact)
            row, count = fact.row, count + 1
            if self._clock.monotonic() - began > PASS_S:
                break
        facts_rows.write_position(connection, row)
        return count, desk.held_back

    def _take(self, connection: Connection, desk: PlanDesk, plan: Plan, fact: Fact) -> None:
        """One fact for one endpoint; what cannot be planned must not stop the others."""
        try:
            with connection.begin_nested():
                plan.take(desk, fact)
        except OperationalError:
            raise
        except Exception as error:
            self._meters.planning_failures.inc()
            _log.error(
                "notify_fact_failed",
                worker="notify-planner",
                endpoint=plan.endpoint.name,
                message=fact.message_id,
                exc_info=error,
            )

    def _is_due(self) -> bool:
        with self._state.read() as connection:
            desk = self._desk(connection)
            return any(plan.is_due(desk) for plan in self._plans)

    def _look(self, connection: Connection) -> None:
        desk = self._desk(connection)
        for plan in self._plans:
            plan.look(desk)

    def _desk(self, connection: Connection) -> PlanDesk:
        now = self._clock.now()
        return PlanDesk(connection, now, silence_rows.not_ended(connection, now))

    def _prune(self, connection: Connection) -> None:
        before = self._clock.now() - KEEP_S
        facts_rows.prune(connection, before)
        case_rows.prune(connection, before)
        queue.prune(connection, before)

    def _count(self, held_back: Counter[tuple[str, str]]) -> None:
        kinds = {plan.endpoint.name: plan.endpoint.kind.value for plan in self._plans}
        for (endpoint, why), count in held_back.items():
            self._meters.held_back.labels(endpoint, kinds[endpoint], why).inc(count)
