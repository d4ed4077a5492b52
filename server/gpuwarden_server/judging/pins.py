"""What setting and ending pins amounts to; the judge decides about their targets at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions.pins import repository as pin_rows
from gpuwarden_server.decisions.ports import Author, Windows
from gpuwarden_server.judging.worker import Concluded
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.domain import Findings, Outcome, key_of
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.policy.approval import may_approve
from gpuwarden_verdict.policy.document import Decision, Pin, PinKind, PoolPolicy
from gpuwarden_verdict.policy.guards import BY_PIN

Reassess = Callable[[Findings, float, Sequence[Pin] | None], Outcome]


@dataclass(frozen=True, slots=True)
class Pinning:
    """Sets and ends pins in the judge's thread.

    Attributes:
        book: What is true now.
        reassess: What follows for a target with other pins.
        windows: Maintenance windows that go with leaves.
        pool_of: The policy's pool of a node.
    """

    book: Book
    reassess: Reassess
    windows: Windows
    pool_of: Callable[[str], PoolPolicy]

    def as_pool_says(self, leave: Pin) -> Pin:
        """A planned leave that returns as the policy of its node's pool says."""
        return replace(leave, check=self.pool_of(leave.entity.node_id).leave_check)

    def approvers_beside(self, made: Sequence[Pin], author: Author) -> dict[str, tuple[str, ...]]:
        """Who may pin instead of an author, by the node of each pin that the policy binds.

        A pin puts out or keeps in as an approval does, for a reason of people's own: who may
        approve an exclusion of class operator may set it.
        """
        beside: dict[str, tuple[str, ...]] = {}
        for pin in made:
            pool = self.pool_of(pin.entity.node_id)
            approvers = pool.approvers_of(FaultClass.OPERATOR, Rung.EXCLUDE)
            if not may_approve(approvers, author.name, author.role):
                beside[pin.entity.node_id] = approvers
        return beside

    def set(
        self,
        made: Sequence[Pin],
        author: Author,
        now: float,
        beside: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> Concluded:
        """Each takes the place of what its target had of its sort.

        Args:
            made: In order.
            author: Who sets them.
            now: Epoch seconds.
            beside: Approvers whom the author passes by, by node; it goes into the audit.

        Raises:
            ProblemError: 409: a node is retired.
        """
        self._require_of_the_fleet(made)
        former = {pin.id: self._former(pin) for pin in made}
        outcomes = tuple(self._set(pin, former[pin.id], now) for pin in made)

        def write_windows(connection: Connection) -> None:
            for pin in made:
                for one in former[pin.id]:
                    self.windows.end(connection, one.window_id, now, author.name)
                if pin.window_id:
                    self.windows.begin(connection, pin, now)

        action = "plan_leave" if any(pin.leave for pin in made) else "set_pin"
        audits = tuple(
            _passing_by(
                _audit(action, former[one.id], (one,), author, now),
                beside.get(one.entity.node_id, ()),
            )
            for one in made
        )
        return Concluded(outcomes, audits, list(made), first=write_windows)

    def end(self, pin_id: str, author: Author, now: float) -> Concluded:
        """What a person's end of a pin amounts to.

        Raises:
            ProblemError: 409: it does not hold, and will not.
        """
        pin = self.book.find_pin(pin_id)
        if pin is None:
            raise ProblemError(
                409,
                "not_live",
                f"pin {pin_id!r} has ended",
                "See GET /v1/pins for those that hold.",
            )
        left = [one for one in self.book.pins_of(key_of(pin.entity)) if one is not pin]
        # Where a check is asked for, a person's end asks for it too: as if its time were over.
        over = [replace(pin, expires_at=now)] if pin.check and pin.holds(now) else []
        outcome = self.reassess(Findings(pin.entity), now, [*left, *over])
        stays = bool(over) and not any(one.id == pin_id for one in outcome.ended_pins)
        if not stays:
            outcome = replace(outcome, ended_pins=(*_others(outcome.ended_pins, pin_id), pin))

        audit = _audit(_end_action(pin), (pin,), tuple(over) if stays else (), author, now)
        outcome = replace(outcome, changed_pins=tuple(over) if stays else ())
        return Concluded((outcome,), (audit,), pin, first=self.ending([pin], author.name, now))

    def follow(
        self,
        node: EntityRef,
        plans: Sequence[Pin],
        ended: Sequence[Pin],
        author: Author,
        now: float,
    ) -> Concluded:
        """Leaves of a node that follow something else than a person's word.

        Args:
            node: The node.
            plans: To be made.
            ended: Of those that follow too: what they followed is over, or moved.
            author: Who stands behind it.
            now: Epoch seconds.
        """
        left = [one for one in self.book.pins_of(key_of(node)) if one not in ended]
        outcome = self.reassess(Findings(node), now, [*left, *plans])
        gone = {one.id for one in (*ended, *plans)}
        others = tuple(one for one in outcome.ended_pins if one.id not in gone)
        outcome = replace(outcome, pins=tuple(plans), ended_pins=(*others, *ended))
        audits = [_audit("end_leave", (one,), (), author, now) for one in ended]
        audits += [_audit("plan_leave", (), (one,), author, now) for one in plans]

        def write_windows(connection: Connection) -> None:
            for pin in ended:
                self.windows.end(connection, pin.window_id, now, author.name)
            for pin in plans:
                self.windows.begin(connection, pin, now)
            pin_rows.let_go(connection, ended)

        return Concluded((outcome,), tuple(audits), None, write_windows, self.windows.forget)

    def behind(self, decision: Decision, now: float) -> tuple[Pin, ...]:
        """Pins that an exclusion rests on."""
        if decision.decided_by != BY_PIN:
            return ()
        held = self.book.pins_of(key_of(decision.entity))
        out = (one for one in held if one.kind is PinKind.EXCLUDE)
        return tuple(one for one in out if one.holds(now) or one.is_over(now))

    def ending(self, pins: Sequence[Pin], by: str, now: float) -> Callable[[Connection], None]:
        """Ends the windows of pins, in a transaction."""

        def end_windows(connection: Connection) -> None:
            for pin in pins:
                self.windows.end(connection, pin.window_id, now, by)

        return end_windows

    def _require_of_the_fleet(self, made: Sequence[Pin]) -> None:
        gone = sorted({one.entity.node_id for one in made} & self.book.retired)
        if gone:
            raise ProblemError(
                409,
                "retired",
                f"retired: {', '.join(gone[:10])}; nothing is decided about such a node",
                "Leave it out; its agent's next message brings it back.",
            )

    def _former(self, pin: Pin) -> tuple[Pin, ...]:
        held = self.book.pins_of(key_of(pin.entity))
        # What follows a cloud stands beside people's own, and ends with what it follows.
        return tuple(one for one in held if one.leave is pin.leave and not one.source)

    def _set(self, pin: Pin, former: Sequence[Pin], now: float) -> Outcome:
        held = self.book.pins_of(key_of(pin.entity))
        wanted = [*(one for one in held if one not in former), pin]
        outcome = self.reassess(Findings(pin.entity), now, wanted)
        ended = _others(outcome.ended_pins, pin.id)
        return replace(outcome, pins=(pin,), ended_pins=(*ended, *former))


def ended_audits(pins: Sequence[Pin], author: Author, now: float) -> tuple[AuditEntry, ...]:
    """What the audit says of pins that end with something else."""
    return tuple(_audit(_end_action(one), (one,), (), author, now) for one in pins)


def _end_action(pin: Pin) -> str:
    return "end_leave" if pin.leave else "end_pin"


def _others(pins: Sequence[Pin], pin_id: str) -> tuple[Pin, ...]:
    return tuple(one for one in pins if one.id != pin_id)


def _audit(
    action: str, before: Sequence[Pin], after: Sequence[Pin], author: Author, now: float
) -> AuditEntry:
    entity = (*after, *before)[0].entity
    return AuditEntry(
        at=now,
        author=author.name,
        key_id=author.key_id,
        action=action,
        target=f"{entity.kind.value}:{entity.key}",
        reason=author.reason,
        before=_told(before),
        after=_told(after),
    )


def _passing_by(entry: AuditEntry, approvers: tuple[str, ...]) -> AuditEntry:
    """An entry that says whose word the author did without, where it did."""
    if not approvers:
        return entry
    return replace(entry, after={**(entry.after or {}), "without_approvers": list(approvers)})


def _told(pins: Sequence[Pin]) -> dict[str, object] | None:
    if not pins:
        return None
    pin = pins[0]
    told: dict[str, object] = {
        "id": pin.id,
        "kind": pin.kind.value,
        "starts_at": pin.starts_at,
        "expires_at": pin.expires_at,
        "check": pin.check,
    }
    return {**told, "follows": pin.source} if pin.source else told
