"""People's orders of a reset, reboot or replacement, each taken once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.actuators import repository
from gpuwarden_server.actuators.domain import Actuation, Phase
from gpuwarden_server.actuators.feature import Actuators
from gpuwarden_server.actuators.remedies import remedies_of
from gpuwarden_server.actuators.worker import ActuatorWorker
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions.ports import Author, FeedSource
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.actuation import REMEDIES, Act, Hold, wanted_nodes
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_wire.metrics import EntityKind


class RepairDesk(Protocol):
    """Moves what is excluded into repair."""

    def begin_repair(self, target: EntityRef, author: Author) -> EntityState:
        """As of `DecisionDesk`."""
        ...


class RemedyDesk:
    """Takes orders; who carries them out is an actuator of the operator's file.

    Args:
        actuators: Those of the file.
        state: state.db.
        clock: Time.
        source: Exclusions in force.
        repairs: Moves the node into repair, so that it comes back over a passed check only.
    """

    def __init__(
        self,
        actuators: Actuators,
        state: Database,
        clock: Clock,
        source: FeedSource,
        repairs: RepairDesk,
    ) -> None:
        self._actuators = actuators
        self._state = state
        self._clock = clock
        self._source = source
        self._repairs = repairs

    def ask(self, node_id: str, act: Act, name: str | None, author: Author) -> Actuation:
        """Take an order for a node that exclusions in force keep out.

        Raises:
            ProblemError: 409: it is not out, nobody or more than one can do it, or one is under
                way.
        """
        wanted = wanted_nodes(self._source.published().exclusions).get(node_id)
        if wanted is None:
            raise ProblemError(
                409,
                "not_excluded",
                f"no exclusion in force keeps node {node_id} out: work may run there",
                f"gpuwarden pin {node_id} --exclude, or a planned leave; then ask again.",
            )
        worker = self._who(node_id, act, name)
        common = worker.target.common
        if not common.dry_run:
            self._begin_repair(node_id, author)
        row = Actuation(
            row=0,
            actuator=common.name,
            node_id=node_id,
            act=act,
            phase=Phase.DRY_RUN if common.dry_run else Phase.ASKED,
            decisions=wanted.decisions,
            jobs=(),
            reason=f"{author.name}: {author.reason}",
            before=_hold_of(worker, node_id),
            after=None,
            detail="",
            begun_at=self._clock.now(),
            ended_at=None,
        )
        written = self._state.writer.call(lambda writes: _write(writes, row, author))
        worker.wake()
        return written

    def _who(self, node_id: str, act: Act, name: str | None) -> ActuatorWorker:
        able = [
            one
            for one in self._actuators.workers
            if act in remedies_of(one.target)
            and one.is_for(node_id)
            and name in (None, one.target.common.name)
        ]
        if len(able) == 1:
            return able[0]
        names = ", ".join(one.target.common.name for one in able)
        if able:
            raise ProblemError(
                409, "several_actuators", f"{names} can {act.value} {node_id}", "Name one of them."
            )
        raise ProblemError(
            409,
            "no_actuator",
            f"no actuator{f' {name}' if name else ''} of this server may {act.value} {node_id}",
            f'Write remedies = ["{act.value}"] to a command or webhook of the actuators\' file '
            "that is for this node (docs/actuators.md), and start the server anew.",
        )

    def _begin_repair(self, node_id: str, author: Author) -> None:
        try:
            self._repairs.begin_repair(EntityRef(EntityKind.NODE, node_id, node_id), author)
        except ProblemError as error:
            if error.code != "not_excluded":
                raise
            # all that is out is in repair already


def _hold_of(worker: ActuatorWorker, node_id: str) -> Hold:
    found = (step.found.hold for step in worker.look.steps if step.node_id == node_id)
    return next(found, Hold.FREE)


def _write(connection: Connection, row: Actuation, author: Author) -> Actuation:
    """The order and its audit, unless one for the node is under way there.

    Raises:
        ProblemError: 409.
    """
    open_ones: Sequence[Actuation] = [
        one
        for one in (
            *repository.read_asked(connection, row.actuator),
            *repository.read_open(connection, row.actuator),
        )
        if one.node_id == row.node_id and one.act in REMEDIES
    ]
    if open_ones:
        raise ProblemError(
            409,
            "already_asked",
            f"{open_ones[0].act.value} of {row.node_id} at {row.actuator} is under way",
            f"See gpuwarden actuators log --node {row.node_id}.",
        )
    number = repository.begin(connection, row)
    record_audit(
        connection,
        AuditEntry(
            at=row.begun_at,
            author=author.name,
            key_id=author.key_id,
            action=f"ask_{row.act.value}",
            target=f"node:{row.node_id}",
            reason=author.reason,
            before=None,
            after={"actuator": row.actuator, "phase": row.phase.value, "row": number},
        ),
    )
    return repository.numbered(row, number)
