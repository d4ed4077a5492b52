"""Tells how models in shadow stand, and takes trials that were made elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.learning.registry.library import Library
from gpuwarden_server.learning.registry.shelf import ModelShelf
from gpuwarden_server.learning.shadow import repository
from gpuwarden_server.learning.shadow.backtests import ToldBacktest, refuse_foreign, taught_by
from gpuwarden_server.learning.shadow.book import ShadowBook, Told
from gpuwarden_server.learning.shadow.domain import (
    Role,
    Tally,
    TriedModel,
    gate_trials,
    new_run,
)
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.fusion import FusionModel, TrialRun, score_gate
from gpuwarden_verdict.fusion.gate import TrialKind, exclude_limits
from gpuwarden_verdict.policy.document import PolicyDocument
from gpuwarden_wire.metrics import EntityKind

NEWEST = 100
_NO_TALLY = Tally()


@dataclass(frozen=True, slots=True)
class Stand:
    """How one model stands in shadow.

    Attributes:
        kind: What it judges.
        role: As what it is scored.
        told: Its shadow run and what it would have excluded.
        trials: On this fleet, however they were made.
        missing: What is missing before it may exclude by itself, in sentences.
    """

    kind: EntityKind
    role: Role
    told: Told
    trials: tuple[TrialRun, ...]
    missing: tuple[str, ...]


class ShadowDesk:
    """Answers about shadow runs."""

    def __init__(
        self,
        shelf: ModelShelf,
        library: Library,
        book: ShadowBook,
        policy: PolicyDocument,
        state: Database,
        clock: Clock,
    ) -> None:
        self._shelf = shelf
        self._library = library
        self._book = book
        self._policy = policy
        self._state = state
        self._clock = clock

    def stands(self) -> list[Stand]:
        """All models in a role, the promoted ones first."""
        promoted, challengers = self._shelf.promoted(), self._shelf.challengers()
        return [
            *(self._stand(kind, model, Role.PROMOTED) for kind, model in promoted.items()),
            *(self._stand(kind, model, Role.CHALLENGER) for kind, model in challengers.items()),
        ]

    def _stand(self, kind: EntityKind, model: FusionModel, role: Role) -> Stand:
        key = (kind, model.version)
        told = self._book.told(key, model.horizon_s, NEWEST)
        if told is None:
            limit = max(min(exclude_limits(pool)) for pool in self._policy.pools)
            tried = TriedModel(kind, model.version, model.digest, limit)
            told = Told(new_run(tried, role, self._clock.now()), _NO_TALLY, ())
        trials = self._book.trials(key)
        missing = self._missing(model, role, gate_trials(trials), told.tally)
        return Stand(kind, role, told, tuple(trials.values()), missing)

    def _missing(
        self, model: FusionModel, role: Role, trials: Sequence[TrialRun], tally: Tally
    ) -> tuple[str, ...]:
        """What the gate of each pool misses, said once; evidence of two planes is asked later."""
        said = [] if role is Role.PROMOTED else ["it is a challenger: promote it first"]
        for pool in self._policy.pools:
            said += score_gate(model, None, pool, trials).missing
        if tally.unsettled and said:
            said.append(
                f"{tally.unsettled} would-be exclusions are not settled and count as false:"
                " `gpuwarden verdict INCIDENT …` settles one that has an incident"
            )
        return tuple(dict.fromkeys(said))

    def record(
        self,
        kind: EntityKind,
        told: ToldBacktest,
        reason: str,
        caller: Principal,
    ) -> TrialRun:
        """Keep a backtest of a model on this fleet, in the place of the one before.

        Raises:
            ProblemError: 404 no such version; 409 it was not of this model, or not of this fleet.
        """
        version = told.version
        self._refuse_foreign(kind, told)
        at = self._clock.now()
        trial = TrialRun(
            TrialKind.BACKTEST,
            version,
            told.healthy_days,
            told.false_actions,
            at,
            told.digest,
            told.exclude_confidence,
        )

        def write(connection: Connection) -> None:
            known = repository.read_trials(connection, (kind, version))
            before = known.get(TrialKind.BACKTEST)
            repository.write_trial(connection, kind, trial, caller.name)
            entry = AuditEntry(
                at,
                caller.name,
                caller.key_id,
                "record_trial",
                f"{kind.value}:{version}",
                reason,
                None if before is None else trial_form(before),
                trial_form(trial),
            )
            record_audit(connection, entry)

        self._state.writer.call(write)
        return trial

    def _refuse_foreign(self, kind: EntityKind, told: ToldBacktest) -> None:
        digests = {one.version: one.digest for one in self._library.listed(kind)}
        digest = digests.get(told.version)
        if digest is None:
            raise ProblemError(
                404,
                "not_found",
                f"no version {told.version!r} of the {kind.value} model",
                "See GET /v1/models; `gpuwarden models add FOLDER` brings one here.",
            )
        taught = taught_by(self._library.files(kind, told.version))
        with self._state.read() as connection:
            known = repository.known_among(connection, kind, told.entities)
        refuse_foreign(told, digest, taught, known)


def trial_form(trial: TrialRun) -> dict[str, object]:
    """What the audit keeps of a trial."""
    return {
        "trial": trial.kind.value,
        "version": trial.model_version,
        "healthy_days": trial.gpu_days,
        "false_actions": trial.false_actions,
        "exclude_confidence": trial.exclude_confidence,
        "digest": trial.model_digest,
        "bound_per_day": finite(trial.bound_per_gpu_day),
    }


def finite(value: float) -> float | None:
    """A number that JSON can hold, None for infinity."""
    return value if math.isfinite(value) else None
