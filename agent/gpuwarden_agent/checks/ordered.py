"""Runs that somebody on the node ordered: which are wanted, and what they are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwarden_agent.checks.definitions import CheckDefinition, When
from gpuwarden_agent.checks.orders import OrderFolder, RunAnswer, RunOrder, Said, Stage
from gpuwarden_agent.checks.results import CheckResult
from gpuwarden_agent.checks.runner import CheckRunner, Run
from gpuwarden_agent.logs import get_logger

_log = get_logger("checks")


@dataclass(slots=True)
class _Pending:
    """An order that is not carried out yet.

    Attributes:
        order: What was ordered.
        overtaken: A run began before the order; its end does not answer it.
        told: Last stage and reason that the command was told.
    """

    order: RunOrder
    overtaken: bool
    told: tuple[Stage, str] | None = None


class OrderedRuns:
    """Reads orders and answers them; the collector's thread calls."""

    def __init__(
        self, folder: OrderFolder, checks: Mapping[str, CheckDefinition], runner: CheckRunner
    ) -> None:
        self._folder = folder
        self._checks = checks
        self._runner = runner
        self._pending: dict[str, _Pending] = {}
        folder.forget_answers()

    def look(self) -> None:
        """Take up new orders, and drop those that were taken back or are over."""
        orders = {order.id: order for order in self._folder.orders()}
        for order_id in [one for one in self._pending if one not in orders]:
            if self._pending[order_id].told != (Stage.RUNS, ""):
                del self._pending[order_id]
        for order in orders.values():
            if order.check not in self._checks:
                there = ", ".join(sorted(self._checks))
                self._end(order, Stage.REFUSED, "no_such_check", f"There are: {there}.")
            elif order.id not in self._pending:
                overtaken = self._runner.is_running(order.check)
                self._pending[order.id] = _Pending(order, overtaken)

    @property
    def wanted(self) -> frozenset[str]:
        """Checks to be started whether they are due or not."""
        return frozenset(one.order.check for one in self._pending.values())

    def even_if_busy(self, name: str) -> bool:
        """Whether a check may start though GPUs are in use."""
        found = (one.order for one in self._pending.values() if one.order.check == name)
        return any(order.even_if_busy for order in found)

    def tell(self, *, idle: bool | None) -> None:
        """Say of each order how far it is; behind the runner's start of what is due."""
        for pending in tuple(self._pending.values()):
            check = self._checks[pending.order.check]
            running = self._runner.is_running(check.name) and not pending.overtaken
            if pending.told == (Stage.RUNS, ""):
                continue
            if running:
                _log.info("check_ordered", check=check.name)
                self._folder.done(pending.order.id)
                self._say(pending, Stage.RUNS, "", "")
            else:
                self._say(pending, Stage.WAITS, *self._why(pending, check, idle))

    def took(self, run: Run) -> bool:
        """Whether a run that has ended was ordered; to be followed by `ended`."""
        mine = [one for one in self._pending.values() if one.order.check == run.check.name]
        return any(not one.overtaken for one in mine)

    def ended(self, run: Run, results: Sequence[CheckResult], mend: str = "") -> None:
        """Answer who ordered the run; none where it was ended from outside."""
        for pending in tuple(self._pending.values()):
            if pending.order.check != run.check.name:
                continue
            if pending.overtaken:
                pending.overtaken = False
                continue
            said = tuple(_said(one) for one in results)
            stage, reason = (Stage.ENDED, "") if said else (Stage.REFUSED, run.outcome.reason)
            self._end(pending.order, stage, reason, mend, said, run.outcome.took_s)

    def _why(self, pending: _Pending, check: CheckDefinition, idle: bool | None) -> tuple[str, str]:
        if pending.overtaken:
            return "runs_already", "A run that began before the order has not ended yet."
        if check.when is When.IDLE and not pending.order.even_if_busy and idle is not True:
            if idle is None:
                return (
                    "idle_unknown",
                    "NVML is off, or a GPU does not answer; --even-if-busy.",
                )
            return "not_idle", "GPUs must be unused for a minute; else --even-if-busy."
        return "in_turn", "Other checks run, or a former run of it cannot be ended."

    def _say(self, pending: _Pending, stage: Stage, reason: str, mend: str) -> None:
        if pending.told != (stage, reason):
            pending.told = (stage, reason)
            self._folder.say(self._answer(pending.order, stage, reason, mend))

    def _end(
        self,
        order: RunOrder,
        stage: Stage,
        reason: str,
        mend: str,
        said: tuple[Said, ...] = (),
        took_s: float = 0.0,
    ) -> None:
        self._pending.pop(order.id, None)
        self._folder.done(order.id)
        self._folder.say(self._answer(order, stage, reason, mend, said, took_s))

    def _answer(
        self,
        order: RunOrder,
        stage: Stage,
        reason: str,
        mend: str,
        said: tuple[Said, ...] = (),
        took_s: float = 0.0,
    ) -> RunAnswer:
        check = self._checks.get(order.check)
        return RunAnswer(
            id=order.id,
            check=order.check,
            stage=stage,
            reason=reason,
            mend=mend,
            deadline_s=check.deadline_s if check else 0.0,
            proves_repair=check.proves_repair if check else False,
            said=said,
            took_s=round(took_s, 3),
        )


def _said(result: CheckResult) -> Said:
    return Said(
        entity=result.gpu_uuid or result.pci_bus_id,
        state=result.state.name.lower(),
        text=result.text,
        reason=result.reason,
        figures=result.figures,
    )
