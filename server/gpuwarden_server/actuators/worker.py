"""One consumer kept as the exclusions in force say: look, plan, act, read back, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from threading import Event, Thread

import structlog
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.actuators import repository
from gpuwarden_server.actuators.document import FilesTarget, Target
from gpuwarden_server.actuators.domain import Actuation, Phase
from gpuwarden_server.actuators.meters import ActuatorMeters
from gpuwarden_server.actuators.ports import Actuator, ActuatorError
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.actuation import (
    Act,
    Found,
    Held,
    Hold,
    Step,
    Wanted,
    plan_steps,
    wanted_nodes,
)
from gpuwarden_verdict.exclusions import Exclusion

SHORTEST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker works with.

    Attributes:
        target: Settings.
        actuator: The consumer.
        state: state.db.
        clock: Time.
        feed: Exclusions in force.
        may_act: Whether this server leads.
        meters: Figures.
    """

    target: Target
    actuator: Actuator
    state: Database
    clock: Clock
    feed: Callable[[], Sequence[Exclusion]]
    may_act: Callable[[], bool]
    meters: ActuatorMeters


@dataclass(frozen=True, slots=True)
class Look:
    """The latest look at a consumer; immutable, replaced whole.

    Attributes:
        steps: How nodes stand that are wanted out or carry our tag.
        looked_at: Epoch seconds of the last look that worked, None none so far.
        trouble: Why the last look or step failed, "" for nothing.
    """

    steps: tuple[Step, ...] = ()
    looked_at: float | None = None
    trouble: str = ""


class ActuatorWorker:
    """A thread that keeps one consumer; a consumer that hangs holds up nobody else."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self.look = Look()
        self._wake, self._stopping = Event(), Event()
        name = f"actuator-{parts.target.common.name}"
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._pause_s = SHORTEST_PAUSE_S

    @property
    def target(self) -> Target:
        """Its settings."""
        return self._parts.target

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Exclusions may have changed."""
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End after the call under way."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        common = self._parts.target.common
        while not self._stopping.is_set():
            self._wake.clear()
            waits_s = common.every_s
            try:
                with self._parts.meters.seconds.labels(common.name).time():
                    due = self._pass()
                self._recovered()
                if due and not common.dry_run:
                    waits_s = SHORTEST_PAUSE_S  # a step failed: it is tried again soon
            except (ActuatorError, WriteFailed, SQLAlchemyError) as error:
                self._failed(error)
                waits_s = self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            except Exception as error:
                _log.exception("actuator_failed", actuator=common.name)
                self._failed(error)
                waits_s = self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._wake.wait(waits_s)

    def _pass(self) -> bool:
        """Look, and carry out what is due; returns whether something is still due."""
        parts = self._parts
        if not parts.may_act():
            return False
        wanted = {n: w for n, w in wanted_nodes(parts.feed()).items() if self._is_for(n)}
        with parts.state.read() as connection:
            held = repository.read_holds(connection, parts.target.common.name)
        found = self._read({*wanted, *held})
        if self._settle(found):
            with parts.state.read() as connection:
                held = repository.read_holds(connection, parts.target.common.name)
        steps = self._plan(wanted, found, held)
        self._publish(steps)
        if not any(step.acts for step in steps):
            return False
        for step in steps:
            for act in step.acts:
                if self._stopping.is_set() or not parts.may_act():
                    return True
                self._carry(step, act)
        if parts.target.common.dry_run:
            return True
        return self._look_again(wanted)

    def _look_again(self, wanted: Mapping[str, Wanted]) -> bool:
        parts = self._parts
        with parts.state.read() as connection:
            held = repository.read_holds(connection, parts.target.common.name)
        steps = self._plan(wanted, self._read({*wanted, *held}), held)
        self._publish(steps)
        return any(step.acts for step in steps)

    def _plan(
        self, wanted: Mapping[str, Wanted], found: Mapping[str, Found], held: Mapping[str, Held]
    ) -> list[Step]:
        target = self._parts.target
        move_from = None if isinstance(target, FilesTarget) else target.move_from
        return plan_steps(wanted, found, held, target.common.drift, move_from=move_from)

    def _read(self, nodes: set[str]) -> Mapping[str, Found]:
        found = self._parts.actuator.read(nodes)
        return {node: one for node, one in found.items() if self._is_for(node)}

    def _is_for(self, node_id: str) -> bool:
        return any(fnmatchcase(node_id, one) for one in self._parts.target.common.nodes)

    def _settle(self, found: Mapping[str, Found]) -> bool:
        """End steps that a server before this one began: by what the consumer shows now."""
        parts = self._parts
        with parts.state.read() as connection:
            left = repository.read_open(connection, parts.target.common.name)
        now = parts.clock.now()
        for step in left:
            here = found.get(step.node_id, Found(Hold.ABSENT))
            if step.act is Act.MOVE:
                parts.actuator.move(step.node_id, step.jobs)  # it may be half done
                here = self._read({step.node_id}).get(step.node_id, here)
            done = _shows(step.act, step.jobs, here)
            phase = Phase.DONE if done else Phase.LOST
            over = repository.ended(step, phase, here.hold, "found after a restart", now)
            self._end(over)
        return bool(left)

    def _end(self, over: Actuation) -> None:
        self._parts.state.writer.call(lambda writes: repository.end(writes, over))

    def _carry(self, step: Step, act: Act) -> None:
        parts, common = self._parts, self._parts.target.common
        row = self._begin(step, act)
        if row is None:
            return
        try:
            self._do(step, act)
            after = self._read({step.node_id}).get(step.node_id, Found(Hold.ABSENT))
            shown = _shows(act, row.jobs, after)
            detail = after.reason if shown else f"the consumer shows {after.hold}: {after.reason}"
            phase = Phase.DONE if shown else Phase.FAILED
            over = repository.ended(row, phase, after.hold, detail, parts.clock.now())
        except ActuatorError as error:
            over = repository.ended(row, Phase.FAILED, None, str(error), parts.clock.now())
        self._end(over)
        parts.meters.steps.labels(common.name, act.value, over.phase.value).inc()
        said = _log.info if over.phase is Phase.DONE else _log.warning
        said(
            "actuated",
            actuator=common.name,
            node=step.node_id,
            act=act.value,
            phase=over.phase.value,
            detail=over.detail,
        )

    def _begin(self, step: Step, act: Act) -> Actuation | None:
        """Write the intent; None in a dry run, which is written once."""
        parts, common = self._parts, self._parts.target.common
        wanted = step.wanted
        row = Actuation(
            row=0,
            actuator=common.name,
            node_id=step.node_id,
            act=act,
            phase=Phase.DRY_RUN if common.dry_run else Phase.BEGUN,
            decisions=wanted.decisions if wanted is not None else (),
            jobs=step.found.jobs if act is Act.MOVE else (),
            reason=step.why,
            before=step.found.hold,
            after=None,
            detail="",
            begun_at=parts.clock.now(),
            ended_at=None,
        )
        if common.dry_run:
            self._would(row)
            return None
        number = parts.state.writer.call(lambda writes: repository.begin(writes, row))
        return replace(row, row=number)

    def _would(self, row: Actuation) -> None:
        parts = self._parts
        with parts.state.read() as connection:
            last = repository.read_page(connection, None, 1, row.actuator, row.node_id)
        told = (row.phase, row.act, row.decisions)
        if last and (last[0].phase, last[0].act, last[0].decisions) == told:
            return
        parts.state.writer.call(lambda writes: repository.begin(writes, row))
        parts.meters.steps.labels(row.actuator, row.act.value, row.phase.value).inc()

    def _do(self, step: Step, act: Act) -> None:
        actuator = self._parts.actuator
        if step.wanted is None:
            actuator.release(step.node_id)
        elif act is Act.MOVE:
            actuator.move(step.node_id, step.found.jobs)
        else:
            actuator.exclude(step.wanted)

    def _publish(self, steps: Sequence[Step]) -> None:
        self.look = Look(tuple(steps), self._parts.clock.now(), self.look.trouble)
        self._parts.meters.show(self._parts.target.common.name, steps, self.look.looked_at)

    def _failed(self, error: Exception) -> None:
        name = self._parts.target.common.name
        if not self.look.trouble:
            _log.warning("actuator_in_trouble", actuator=name, reason=str(error))
        self._parts.meters.up.labels(name).set(0)
        self.look = Look(self.look.steps, self.look.looked_at, str(error))

    def _recovered(self) -> None:
        name = self._parts.target.common.name
        if self.look.trouble:
            _log.info("actuator_recovered", actuator=name)
        self._parts.meters.up.labels(name).set(1)
        self._pause_s = SHORTEST_PAUSE_S
        self.look = Look(self.look.steps, self.look.looked_at, "")


def _shows(act: Act, jobs: Sequence[str], here: Found) -> bool:
    """Whether a consumer shows what a step was to bring about."""
    if act is Act.EXCLUDE:
        return here.hold is Hold.OURS
    if act is Act.RELEASE:
        return here.hold is not Hold.OURS
    return not set(jobs) & set(here.jobs)
