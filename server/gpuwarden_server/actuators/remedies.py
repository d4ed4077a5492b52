"""Reset, reboot and replacement: asked for by a person, carried out once by a program or receiver.

They cannot be read back, so that none is ever tried again by itself: what failed, or was cut short,
says so, and a person asks anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

import structlog

from gpuwarden_server.actuators import repository
from gpuwarden_server.actuators.document import CommandTarget, Target, WebhookTarget
from gpuwarden_server.actuators.domain import Actuation, Phase
from gpuwarden_server.actuators.ports import Actuator, ActuatorError
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.actuation import Act, Found, Hold, Wanted

_log = structlog.get_logger(__name__)


@runtime_checkable
class Remedial(Protocol):
    """An actuator that can do something to the hardware."""

    def remedy(self, act: Act, wanted: Wanted, reason: str) -> None:
        """Reset, reboot or replace a node, in the asker's words.

        Raises:
            ActuatorError: It was not done, or nobody can tell.
        """
        ...


def remedies_of(target: Target) -> frozenset[Act]:
    """What the operator lets an actuator do to hardware; nothing unless the file says so."""
    if isinstance(target, CommandTarget | WebhookTarget):
        return target.remedies
    return frozenset()


class RemedyCarrier:
    """Carries out what was asked of one actuator; used in its worker's thread.

    Args:
        target: Its settings.
        actuator: The program or receiver.
        state: state.db.
        clock: Time.
    """

    def __init__(self, target: Target, actuator: Actuator, state: Database, clock: Clock) -> None:
        self._target = target
        self._actuator = actuator
        self._state = state
        self._clock = clock

    def asked(self) -> list[Actuation]:
        """What waits, oldest first."""
        if not remedies_of(self._target):
            return []
        with self._state.read() as connection:
            return repository.read_asked(connection, self._target.common.name)

    def carry(self, row: Actuation, wanted: Mapping[str, Wanted]) -> Actuation:
        """Carry one out, or say why not; how it ended is written before it returns."""
        try:
            refused = self._refusal(row, wanted)
            over = self._ended(row, Phase.FAILED, refused) if refused else self._done(row, wanted)
        except ActuatorError as error:
            over = self._ended(row, Phase.FAILED, str(error))
        self._state.writer.call(lambda writes: repository.end(writes, over))
        _log.info(
            "remedy_ended",
            actuator=over.actuator,
            node=over.node_id,
            act=over.act.value,
            phase=over.phase.value,
            detail=over.detail,
        )
        return over

    def _refusal(self, row: Actuation, wanted: Mapping[str, Wanted]) -> str:
        """Why a node is left alone, "" where it may be worked on: nothing of anybody runs there."""
        if self._target.common.dry_run or row.act not in remedies_of(self._target):
            return "the actuators' file does not let it any more"
        if row.node_id not in wanted:
            return "no exclusion in force asks for the node any more"
        here = self._read(row.node_id)
        if here.hold is not Hold.OURS:
            return f"it shows the node as {here.hold.value}: it must hold it out for us first"
        if not here.jobs_told:
            return "it does not say which jobs run there: its answer to read must, [] for none"
        if here.jobs:
            return f"these still run there: {', '.join(here.jobs[:5])}"
        return ""

    def _read(self, node_id: str) -> Found:
        return self._actuator.read({node_id}).get(node_id, Found(Hold.ABSENT))

    def _done(self, row: Actuation, wanted: Mapping[str, Wanted]) -> Actuation:
        if not isinstance(self._actuator, Remedial):
            return self._ended(row, Phase.FAILED, "it is no program and no receiver")
        begun = replace(row, phase=Phase.BEGUN)
        self._state.writer.call(lambda writes: repository.move(writes, begun))
        self._actuator.remedy(row.act, wanted[row.node_id], row.reason)
        return self._ended(begun, Phase.DONE, "it says that it was done")

    def _ended(self, row: Actuation, phase: Phase, detail: str) -> Actuation:
        return repository.ended(row, phase, row.after, detail, self._clock.now())
