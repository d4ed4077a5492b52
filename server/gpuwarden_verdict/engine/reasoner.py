"""The steps of a pass, from events or a sweep to outcomes; who owns it makes them true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.desk import EventDesk
from gpuwarden_verdict.engine.domain import Findings, Key, Outcome, merge_findings
from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_verdict.engine.failures import Failure
from gpuwarden_verdict.engine.judge import Judge
from gpuwarden_verdict.engine.relocation import Relocation
from gpuwarden_verdict.engine.sweep import Sweeper, SweepResult


@dataclass(frozen=True, slots=True)
class Reasoner:
    """What a pass works with.

    Attributes:
        book: What is true now.
        desk: Events in, findings out.
        judge: Findings in, conclusions out.
        sweeper: Looks over the fleet.
        relocation: Which GPUs were put into another place.
        chronicle: Keeps the ledger of parts.
        failed: Told what could not be judged; the pass goes on where it returns.
    """

    book: Book
    desk: EventDesk
    judge: Judge
    sweeper: Sweeper
    relocation: Relocation
    chronicle: Chronicle
    failed: Callable[[Failure], None]

    def findings_of(self, events: Sequence[StoredEvent], now: float) -> dict[Key, Findings]:
        """Findings of events in order, by target."""
        return merge_findings(f for stored in events for f in self._findings_of(stored, now))

    def conclude(self, many: Iterable[Findings], now: float) -> tuple[Outcome, ...]:
        """What follows from findings; outcomes without anything new are left out."""
        self.judge.look_for_storms()
        outcomes: list[Outcome] = []
        for findings in many:
            try:
                placed = self.relocation.in_place(findings)
                outcome = self.judge.reassess(placed, now)
            except Exception as error:
                self.failed(Failure("reassess", findings.target.key, "", error))
                continue
            if not outcome.is_empty:
                outcomes.append(outcome)
        return tuple(outcomes)

    def conclude_sweep(
        self, result: SweepResult, touched: Collection[Key], now: float
    ) -> tuple[Outcome, ...]:
        """What follows from a sweep, and from the time that passed for what is live.

        Args:
            result: What it saw.
            touched: Targets of events that came while it looked: it is older than they are.
            now: Epoch seconds.
        """
        waiting = {key for key in self.book.live_targets() if key not in result.findings}
        refs = [ref for key in waiting if (ref := self.book.ref(key)) is not None]
        findings = [f for key, f in result.findings.items() if key not in touched]
        findings += [Findings(ref) for ref in refs]
        return self.conclude(findings, now)

    def _findings_of(self, stored: StoredEvent, now: float) -> list[Findings]:
        try:
            return self.desk.findings_of(stored, now)
        except Exception as error:
            self.failed(Failure("detect", stored.ref.key, stored.event.id, error))
            return []
