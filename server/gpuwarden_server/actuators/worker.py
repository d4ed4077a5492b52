"""One consumer kept as the exclusions in force say: look, plan, act, read back, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from gpuwarden_server.actuators.remedies import RemedyCarrier
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.actuation import (
    REMEDIES,
    Act,
    Found,
    Hold,
    Standing,
    Step,
    Wanted,
    plan_steps,
    wanted_nodes,
)
from gpuwarden_verdict.exclusions import Exclusion

SHORTEST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONGEST_WAIT_S = 300.0
"""Of a step that fails each time: a job that cannot be requeued, a node that stays down."""
LIMIT_ROOM_S = 1.0
"""A call is ended that long after its time limit at the latest, also where its server is gone."""
_RECENT = 20
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


@dataclass(frozen=True, slots=True)
class _Failed:
    """A step that failed: how long it waits, until when (monotonic), and why it failed."""

    pause_s: float
    again_at: float
    why: str


class ActuatorWorker:
    """A thread that keeps one consumer; a consumer that hangs holds up nobody else."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self.look = Look()
        self._wake, self._stopping = Event(), Event()
        name = f"actuator-{parts.target.common.name}"
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._pause_s = SHORTEST_PAUSE_S
        self._waiting: dict[tuple[str, Act], _Failed] = {}
        self._left: dict[int, float] = {}
        self._remedies = RemedyCarrier(parts.target, parts.actuator, parts.state, parts.clock)
        self._began: float | None = None

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

    @property
    def trouble(self) -> str:
        """Why it does not get on, "" where it does."""
        began, limit_s = self._began, max(60.0, 10.0 * self._parts.target.common.timeout_s)
        if began is not None and (lasts_s := self._parts.clock.monotonic() - began) > limit_s:
            return f"the pass under way has lasted {lasts_s:.0f} s"
        return self.look.trouble

    def _run(self) -> None:
        common = self._parts.target.common
        while not self._stopping.is_set():
            self._wake.clear()
            waits_s = common.every_s
            try:
                with self._parts.meters.seconds.labels(common.name).time():
                    self._began = self._parts.clock.monotonic()
                    self._pass()
                self._looked("")
            except (ActuatorError, WriteFailed, SQLAlchemyError) as error:
                waits_s = self._failed(error)
            except Exception as error:
                _log.exception("actuator_failed", actuator=common.name)
                waits_s = self._failed(error)
            self._began = None
            again_at = [*(step.again_at for step in self._waiting.values()), *self._left.values()]
            if again_at:
                waits_s = min(waits_s, max(0.1, min(again_at) - self._parts.clock.monotonic()))
            self._wake.wait(waits_s)

    def _pass(self) -> None:
        """Look, and carry out what is due: exclusions of all nodes first, jobs last."""
        if not self._parts.may_act():
            return
        wanted = self._wanted()
        unsettled = self._settle(wanted)
        steps = [one for one in self._look_over(wanted) if one.node_id not in unsettled]
        due = {(step.node_id, act) for step in steps for act in step.acts}
        self._waiting = {key: one for key, one in self._waiting.items() if key in due}
        for act in (Act.EXCLUDE, Act.RELEASE, Act.MOVE):
            for step in steps:
                if act in step.acts and self._may_carry(step, act):
                    self._carry(step, act)
        self._carry_remedies(unsettled)
        if due and not self._parts.target.common.dry_run:
            self._look_over(self._wanted())

    def _carry_remedies(self, unsettled: frozenset[str]) -> None:
        """What people asked to be done to hardware: one a pass, so that exclusions come first."""
        for row in self._remedies.asked():
            if self._stopping.is_set() or not self._parts.may_act():
                return
            if row.node_id not in unsettled:
                over = self._remedies.carry(row, self._wanted())
                name = self._parts.target.common.name
                self._parts.meters.steps.labels(name, over.act.value, over.phase.value).inc()
                self._wake.set()  # for the next, behind a look at what is excluded now
                return

    def _wanted(self) -> Mapping[str, Wanted]:
        wanted = wanted_nodes(self._parts.feed())
        return {node: one for node, one in wanted.items() if self.is_for(node)}

    def _may_carry(self, step: Step, act: Act) -> bool:
        """Whether a step of the plan still holds, and its turn has come."""
        if self._stopping.is_set() or not self._parts.may_act():
            return False
        failed = self._waiting.get((step.node_id, act))
        if failed is not None and failed.again_at > self._parts.clock.monotonic():
            return False
        if act is Act.EXCLUDE:
            return True
        # Minutes may have passed since the plan was made.
        is_wanted = step.node_id in self._wanted()
        if act is Act.RELEASE:
            return not is_wanted
        excluded = (step.node_id, Act.EXCLUDE) not in self._waiting
        return is_wanted and excluded and self._is_ours(step.node_id)

    def _is_ours(self, node_id: str) -> bool:
        """Whether it is out by our hand at this moment; a dry run asks what it would be."""
        if self._parts.target.common.dry_run:
            return True
        try:
            here = self._parts.actuator.read({node_id}).get(node_id)
        except ActuatorError:
            return False
        return here is not None and here.hold is Hold.OURS

    def _look_over(self, wanted: Mapping[str, Wanted]) -> list[Step]:
        """How nodes stand now, published."""
        target, parts = self._parts.target, self._parts
        with parts.state.read() as connection:
            held = repository.read_holds(connection, target.common.name)
        found = parts.actuator.read({*wanted, *held})
        kept = {n: one for n, one in found.items() if self.is_for(n) or n in held}
        move_from = None if isinstance(target, FilesTarget) else target.move_from
        planned = plan_steps(wanted, kept, held, target.common.drift, move_from=move_from)
        steps = [step if self.is_for(step.node_id) else _given_up(step) for step in planned]
        self.look = Look(tuple(steps), parts.clock.now(), self.look.trouble)
        parts.meters.show(target.common.name, steps, self.look.looked_at)
        return steps

    def is_for(self, node_id: str) -> bool:
        """Whether a node is among those that the operator's file gives it."""
        return any(fnmatchcase(node_id, one) for one in self._parts.target.common.nodes)

    def _settle(self, wanted: Mapping[str, Wanted]) -> frozenset[str]:
        """End steps that a server before this one began; the nodes of those that cannot be yet.

        What it called may outlive it: a step that does not show may still take effect until its
        time limit, by this server's own measure. Until then nothing else is done to its node.
        """
        parts, common = self._parts, self._parts.target.common
        with parts.state.read() as connection:
            left = repository.read_open(connection, common.name)
        over_at = parts.clock.monotonic() + common.timeout_s + LIMIT_ROOM_S
        self._left = {step.row: self._left.get(step.row, over_at) for step in left}
        if not left:
            return frozenset()
        found = parts.actuator.read({step.node_id for step in left})
        return frozenset(
            step.node_id
            for step in left
            if not self._settled(step, found.get(step.node_id, Found(Hold.ABSENT)), wanted)
        )

    def _settled(self, step: Actuation, here: Found, wanted: Mapping[str, Wanted]) -> bool:
        """Whether a step that was left open could be ended."""
        shown = _shows(step.act, step.jobs, here)
        if not shown and self._left[step.row] > self._parts.clock.monotonic():
            return False
        if (
            step.act is Act.MOVE
            and step.node_id in wanted
            and not self._parts.target.common.dry_run
        ):
            # It may be half done. Where it cannot be finished the plan asks for it again.
            with suppress(ActuatorError):
                self._parts.actuator.move(step.node_id, step.jobs)
                here = self._parts.actuator.read({step.node_id}).get(step.node_id, here)
        phase = Phase.DONE if _shows(step.act, step.jobs, here) else Phase.LOST
        now = self._parts.clock.now()
        told = "cut short: nobody can tell" if step.act in REMEDIES else "found after a restart"
        self._end(repository.ended(step, phase, here.hold, told, now))
        self._left.pop(step.row, None)
        return True

    def _end(self, over: Actuation) -> None:
        self._parts.state.writer.call(lambda writes: repository.end(writes, over))

    def _carry(self, step: Step, act: Act) -> None:
        parts, common = self._parts, self._parts.target.common
        row = self._begin(step, act)
        if row is None or not parts.may_act():
            return  # who stood still while another took the lead leaves the step to that one
        try:
            self._do(step, act)
            after = parts.actuator.read({step.node_id}).get(step.node_id, Found(Hold.ABSENT))
            shown = _shows(act, row.jobs, after)
            detail = after.reason if shown else f"the consumer shows {after.hold}: {after.reason}"
            phase = Phase.DONE if shown else Phase.FAILED
            over = repository.ended(row, phase, after.hold, detail, parts.clock.now())
        except ActuatorError as error:
            over = repository.ended(row, Phase.FAILED, None, str(error), parts.clock.now())
        self._end(over)
        self._note(over)
        parts.meters.steps.labels(common.name, act.value, over.phase.value).inc()

    def _note(self, over: Actuation) -> None:
        """Say how a step ended; one that failed waits longer each time."""
        key, told = (over.node_id, over.act), _log.info
        if over.phase is Phase.DONE:
            self._waiting.pop(key, None)
        else:
            told = _log.warning
            before = self._waiting.get(key)
            pause_s = SHORTEST_PAUSE_S if before is None else 2 * before.pause_s
            pause_s = min(pause_s, LONGEST_WAIT_S)
            again_at = self._parts.clock.monotonic() + pause_s
            self._waiting[key] = _Failed(pause_s, again_at, over.detail)
        told(
            "actuated",
            actuator=over.actuator,
            node=over.node_id,
            act=over.act.value,
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
            page = repository.read_page(connection, None, _RECENT, row.actuator, row.node_id)
        last = next((one for one in page if one.act is row.act), None)
        if last is not None and (last.phase, last.decisions) == (row.phase, row.decisions):
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

    def _failed(self, error: Exception) -> float:
        """The consumer could not be looked at; returns how long to wait, seconds."""
        self._looked(str(error))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return self._pause_s

    def _looked(self, trouble: str) -> None:
        """Note how the pass went: trouble with the consumer, else with steps there."""
        name, before = self._parts.target.common.name, self.look.trouble
        self._parts.meters.up.labels(name).set(0 if trouble else 1)
        if not trouble:
            self._pause_s = SHORTEST_PAUSE_S
            told = [f"{act} {node}: {one.why}" for (node, act), one in self._waiting.items()]
            trouble = "; ".join(sorted(told)[:3])
        if trouble and not before:
            _log.warning("actuator_in_trouble", actuator=name, reason=trouble)
        elif before and not trouble:
            _log.info("actuator_recovered", actuator=name)
        self.look = Look(self.look.steps, self.look.looked_at, trouble)


def _given_up(step: Step) -> Step:
    """A node that is no longer among the actuator's, and is still out by our hand."""
    why = "it is no longer among this actuator's nodes: release it by hand"
    return replace(step, standing=Standing.ORPHAN, acts=(), why=why)


def _shows(act: Act, jobs: Sequence[str], here: Found) -> bool:
    """Whether a consumer shows what a step was to bring about; of hardware it shows nothing."""
    if act in REMEDIES:
        return False
    if act is Act.EXCLUDE:
        return here.hold is Hold.OURS
    if act is Act.RELEASE:
        return here.hold is not Hold.OURS
    return not set(jobs) & set(here.jobs)
