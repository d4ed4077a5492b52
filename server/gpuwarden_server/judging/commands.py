"""People's commands, taken by the judge in turn with everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.principals import Role
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions.ports import Author, Shown, shown_of
from gpuwarden_server.decisions.schemas import rung_name
from gpuwarden_server.judging.ledger import decision_audit
from gpuwarden_server.judging.pins import Pinning, ended_audits
from gpuwarden_server.judging.renaming import Renamed, Renaming
from gpuwarden_server.judging.retirement import Retirement
from gpuwarden_server.judging.worker import CommandWork, Concluded, JudgeWorker
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.commands import cleared, decided, repairs_begun, revoked
from gpuwarden_verdict.engine.domain import Findings, Outcome, Step, key_of, merge_findings
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.moves import (
    LifecycleError,
    acknowledge,
)
from gpuwarden_verdict.policy.approval import may_approve
from gpuwarden_verdict.policy.document import Decision, DecisionMove, Mode, Pin, Stay
from gpuwarden_verdict.policy.evaluate import (
    DecisionError,
    approvable,
    approve,
    decision_target,
    hold,
    let_go,
    revoke,
)
from gpuwarden_verdict.signals import Recovery, Signal

COMMAND_TIMEOUT_S = 10.0
T = TypeVar("T")


Conclude = Callable[[Iterable[Findings], float], tuple[Outcome, ...]]
"""What follows from findings; the reasoner knows."""
_MakeMove = Callable[[Decision, str, str, float], DecisionMove]
"""`revoke`, `hold` or `let_go`."""


class JudgeDesk:
    """Implements what the incident and decision routes need."""

    def __init__(
        self,
        worker: JudgeWorker,
        book: Book,
        pools: PoolBook,
        retirement: Retirement,
        renaming: Renaming,
        pinning: Pinning,
        contact_of: Callable[[str], Contact],
        conclude: Conclude,
    ) -> None:
        """Make a desk; all but `worker` and `contact_of` is touched in the judge's thread only."""
        self._worker = worker
        self._book = book
        self._pools = pools
        self._retirement = retirement
        self._renaming = renaming
        self._pinning = pinning
        self._contact_of = contact_of
        self._conclude = conclude

    def acknowledge(self, incident_id: str, name: str, key_id: str | None, reason: str) -> Incident:
        """Note that a person has seen it."""

        def work(now: float) -> Concluded:
            incident = self._book.find_incident(incident_id)
            if incident is None:
                raise _not_live("incident", incident_id)
            try:
                move = acknowledge(incident, name, reason, now)
            except LifecycleError as error:
                raise ProblemError(409, "wrong_phase", str(error), "Read it again.") from error
            before, after = {"phase": incident.phase.value}, {"phase": move.incident.phase.value}
            entry = AuditEntry(
                now, name, key_id, "acknowledge_incident", incident_id, reason, before, after
            )
            outcome = Outcome(_target_of(incident), incident_moves=(move,))
            return Concluded((outcome,), (entry,), move.incident)

        return self.run(work, Incident)

    def clear(self, incident_id: str, name: str, key_id: str | None, reason: str) -> Incident:
        """Close an incident by a person's word; it comes back on new evidence only."""

        def work(now: float) -> Concluded:
            incident = self._book.find_incident(incident_id)
            if incident is None:
                raise _not_live("incident", incident_id)
            try:
                move, outcome = cleared(incident, name, reason, now)
            except LifecycleError as error:
                raise ProblemError(409, "wrong_phase", str(error), "Read it again.") from error
            before, after = {"phase": incident.phase.value}, {"phase": move.incident.phase.value}
            entry = AuditEntry(
                now, name, key_id, "clear_incident", incident_id, reason, before, after
            )
            return Concluded((outcome,), (entry,), move.incident)

        return self.run(work, Incident)

    def revoke(self, decision_id: str, author: Author) -> Decision:
        """End a decision and acquit everything that is open against its target."""

        def work(now: float) -> Concluded:
            move = self._decision_move(decision_id, author, now, revoke)
            outcome = revoked(self._book, self._pools, move, now)
            entry = _audit("revoke_decision", self._book.find_decision(decision_id), move, author)
            # Else the pin decides the same again at the next sweep.
            pins = self._pinning.behind(move.decision, now)
            outcome = replace(outcome, ended_pins=pins)
            end_windows = self._pinning.ending(pins, author.name, now)
            return Concluded((outcome,), (entry,), move.decision, first=end_windows)

        return self.run(work, Decision)

    def approve(self, decision_id: str, author: Author, shown: Shown | None = None) -> Decision:
        """Bring waiting advice into force; in observe mode nothing ever is."""

        def work(now: float) -> Concluded:
            self._require_as_shown(decision_id, shown)
            return self.approved(decision_id, author, now)

        return self.run(work, Decision)

    def approved(self, decision_id: str, author: Author, now: float) -> Concluded:
        """What an approval amounts to; called in the judge's thread.

        Raises:
            ProblemError: 403 or 409.
        """
        self._require_approvable(decision_id, author)
        move = self._decision_move(decision_id, author, now, approve)
        self._pools.fold(move.decision.entity.node_id, (move,))
        outcome = decided(self._book, self._pools, move, now)
        entry = _audit("approve_decision", self._book.find_decision(decision_id), move, author)
        return Concluded((outcome,), (entry,), move.decision)

    def begin_repair(self, target: EntityRef, author: Author) -> EntityState:
        """Move an excluded entity into repair; a node takes its excluded GPUs along."""

        def work(now: float) -> Concluded:
            outcomes = repairs_begun(self._book, target, author.name, author.reason, now)
            if not outcomes:
                raise ProblemError(
                    409,
                    "not_excluded",
                    f"{target.kind.value} {target.key} is "
                    f"{self._book.record_of(key_of(target)).state.value}, not excluded",
                    "Only what is excluded or draining goes into repair.",
                )
            entries = tuple(_repair_audit(outcome, author, now) for outcome in outcomes)
            return Concluded(outcomes, entries, EntityState.IN_REPAIR)

        return self.run(work, EntityState)

    def retire_node(self, node_id: str, author: Author) -> EntityState:
        """Take a node that is switched off out of the fleet, with all that stands against it."""

        def work(now: float) -> Concluded:
            contact = self._contact_of(node_id)
            if contact is not Contact.SILENT:
                raise _not_silent(node_id, contact)
            left = self._retirement.leave(node_id, author, now)
            self._pools.recount()
            # Else a pin, or a leave at its time, excludes a node that is not of the fleet any more.
            pins = [pin for outcome in left.outcomes for pin in outcome.ended_pins]
            audits = (*left.audits, *ended_audits(pins, author, now))
            end_windows = self._pinning.ending(pins, author.name, now)
            return Concluded(left.outcomes, audits, EntityState.RETIRED, first=end_windows)

        return self.run(work, EntityState)

    def rename_node(self, old: str, new: str, author: Author, elsewhere: Renamed) -> Future[object]:
        """Call a node something else; who asks waits, however long it takes."""

        def work(now: float) -> Concluded:
            return self._renaming.rename(old, new, author, elsewhere, now)

        return self._worker.submit(work)

    def hold(self, decision_id: str, until: float, author: Author) -> Decision:
        """Let a decision go no further for a time."""

        def make(decision: Decision, by: str, reason: str, now: float) -> DecisionMove:
            return hold(decision, Stay(by, reason, until), now)

        return self._moved("hold_decision", decision_id, author, make)

    def let_go(self, decision_id: str, author: Author) -> Decision:
        """End a hold."""
        return self._moved("let_go_decision", decision_id, author, let_go)

    def _moved(self, action: str, decision_id: str, author: Author, make: _MakeMove) -> Decision:
        def work(now: float) -> Concluded:
            move = self._decision_move(decision_id, author, now, make)
            entry = _audit(action, self._book.find_decision(decision_id), move, author)
            outcome = decided(self._book, self._pools, move, now)
            return Concluded((outcome,), (entry,), move.decision)

        return self.run(work, Decision)

    def take_findings(self, signals: Sequence[Signal], recoveries: Sequence[Recovery]) -> None:
        """Take evidence over that a diagnosis gives."""

        def work(now: float) -> Concluded:
            found = [Findings(decision_target(r.entity), [Step([r])]) for r in recoveries]
            found += [Findings(decision_target(s.entity), [Step([], [s])]) for s in signals]
            return Concluded(self._conclude(merge_findings(found).values(), now), (), None)

        self.run(work, type(None))

    def set_pins(
        self, made: Sequence[Pin], author: Author, *, checks_by_policy: bool = False
    ) -> list[Pin]:
        """Set pins, and decide about what they name at once."""

        def work(now: float) -> Concluded:
            pinning = self._pinning
            wanted = [pinning.as_pool_says(one) if checks_by_policy else one for one in made]
            beside = pinning.approvers_beside(wanted, author)
            if beside and author.role != Role.ADMIN.value:
                raise _not_pinner(beside, author)
            return pinning.set(wanted, author, now, beside)

        taken = self.run(work, list)
        self._worker.look_soon()  # a node's pin may speak for its GPUs
        return taken

    def end_pin(self, pin_id: str, author: Author) -> Pin:
        """End a pin."""
        ended = self.run(lambda now: self._pinning.end(pin_id, author, now), Pin)
        self._worker.look_soon()
        return ended

    def run(self, work: CommandWork, answer: type[T]) -> T:
        """Let the judge carry a command out, and wait for its commit.

        Raises:
            ProblemError: 503 where it does not come to it in time, or as the command says.
        """
        try:
            result = self._worker.submit(work).result(COMMAND_TIMEOUT_S)
        except TimeoutError as error:
            raise ProblemError(
                503,
                "judge_busy",
                f"no answer within {COMMAND_TIMEOUT_S:g} s; the command may still be carried out",
                "Read the state again before you repeat it; /readyz tells how the server is.",
            ) from error
        if not isinstance(result, answer):
            raise TypeError(f"the command answered {type(result).__name__}")
        return result

    def _require_as_shown(self, decision_id: str, shown: Shown | None) -> None:
        """Advice keeps its id when it rises: nobody approves what they did not see."""
        decision = self._book.find_decision(decision_id)
        if shown is None or decision is None or approvable(decision) is None:
            return  # said by who looks for it
        if shown.differs(decision):
            asks = shown_of(decision)
            held = f", held back by {asks.guard}" if asks.guard else ""
            raise ProblemError(
                409,
                "changed",
                f"decision {decision_id} asks for {rung_name(asks.rung)} by now, for a fault of "
                f"class {decision.fault_class.value}{held}; what was shown asked for something "
                f"else ({rung_name(shown.rung)})",
                "Read it again, then approve what it asks for now.",
            )

    def _require_approvable(self, decision_id: str, author: Author) -> None:
        """What is only observed is never put in force, and the policy may name who approves."""
        decision = self._book.find_decision(decision_id)
        rung = None if decision is None else approvable(decision)
        if decision is None or rung is None:
            return  # said by who looks for it
        pool = self._pools.pool(decision.entity.node_id)
        of_class = decision.fault_class
        if pool.mode_of(of_class, rung) is Mode.OBSERVE:
            raise ProblemError(
                409,
                "observe_mode",
                f"decision {decision_id} is of pool {pool.name!r}, whose mode is observe: "
                "what it would do is recorded, and nothing is ever put in force",
                f'Set mode = "advise" for pool {pool.name!r} in the policy file, start the server '
                "anew, then approve.",
            )
        approvers = pool.approvers_of(of_class, rung)
        if not may_approve(approvers, author.name, author.role):
            raise ProblemError(
                403,
                "not_approver",
                f"{author.name} may not approve {of_class.value} at rung {rung.name.lower()} in "
                f"pool {pool.name!r}: its approvers are {', '.join(approvers)}",
                "Ask one of them, or name this key under approvers in the policy file.",
            )

    def _decision_move(
        self, decision_id: str, author: Author, now: float, make: _MakeMove
    ) -> DecisionMove:
        decision = self._book.find_decision(decision_id)
        if decision is None:
            raise _not_live("decision", decision_id)
        try:
            return make(decision, author.name, author.reason, now)
        except DecisionError as error:
            raise ProblemError(409, "wrong_phase", str(error), "Read it again.") from error


def _target_of(incident: Incident) -> EntityRef:
    return decision_target(incident.entity)


def _audit(action: str, before: Decision | None, move: DecisionMove, author: Author) -> AuditEntry:
    return AuditEntry(
        at=move.at,
        author=author.name,
        key_id=author.key_id,
        action=action,
        target=move.decision.id,
        reason=author.reason,
        before=decision_audit(before),
        after=decision_audit(move.decision),
    )


def _repair_audit(outcome: Outcome, author: Author, now: float) -> AuditEntry:
    move = outcome.state_move
    return AuditEntry(
        at=now,
        author=author.name,
        key_id=author.key_id,
        action="begin_repair",
        target=f"{outcome.target.kind.value}:{outcome.target.key}",
        reason=author.reason,
        before={"state": move.before.state.value} if move else None,
        after={"state": move.after.state.value} if move else None,
    )


def _not_silent(node_id: str, contact: Contact) -> ProblemError:
    if contact is Contact.RETIRED:
        return ProblemError(
            409, "already_retired", f"node {node_id} is retired", "There is nothing left to do."
        )
    return ProblemError(
        409,
        "node_heard",
        f"node {node_id} was heard of a moment ago (or this server has just started): "
        "retired, it would come back at once, without its exclusions",
        "Switch it or its agent off, and retire it when it is shown as silent.",
    )


def _not_pinner(beside: Mapping[str, tuple[str, ...]], author: Author) -> ProblemError:
    named = sorted({one for approvers in beside.values() for one in approvers})
    return ProblemError(
        403,
        "not_approver",
        f"{author.name} may not pin {', '.join(sorted(beside)[:10])}: the approvers there are "
        f"{', '.join(named)}",
        "Ask one of them; in an emergency a key of role admin may. To let others pin, name them in "
        'a rule of the pool: classes = ["operator"], approvers = [...].',
    )


def _not_live(what: str, wanted: str) -> ProblemError:
    return ProblemError(
        409,
        "not_live",
        f"{what} {wanted!r} has ended",
        f"See GET /v1/{what}s?phase=live.",
    )
