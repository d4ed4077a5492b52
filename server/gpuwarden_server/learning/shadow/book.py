"""What models would have excluded: watched in the judge's thread, stored and tallied in another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from threading import Lock

from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.learning.labels.domain import Label, label_of
from gpuwarden_server.learning.labels.repository import read_cases
from gpuwarden_server.learning.shadow import repository
from gpuwarden_server.learning.shadow.domain import (
    LEAD_S,
    QUIET_S,
    Opinion,
    Outcome,
    Role,
    ShadowRun,
    ShadowWatch,
    Tally,
    TriedModel,
    WouldExclude,
    new_run,
    outcome_of,
    tally_of,
    trial_of,
)
from gpuwarden_server.learning.shadow.repository import ModelKey
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.fusion.gate import TrialKind, TrialRun
from gpuwarden_wire.metrics import EntityKind

MOST_TALLIED = 5_000
"""Would-be exclusions of a model that are looked at; one with more is past trusting anyway."""
_KEPT_S = 400 * 86_400.0


@dataclass(frozen=True, slots=True)
class Told:
    """A model in shadow as it stands.

    Attributes:
        run: How long it has been tried.
        tally: How its would-be exclusions turned out.
        newest: Newest would-be exclusions with their outcomes, newest first.
    """

    run: ShadowRun
    tally: Tally
    newest: tuple[tuple[WouldExclude, Outcome], ...]


class ShadowBook:
    """Shadow runs of all models that are or were in a role."""

    def __init__(self, state: Database, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._lock = Lock()
        self._watches: dict[ModelKey, ShadowWatch] = {}
        self._runs: dict[ModelKey, ShadowRun] = {}
        self._looked: set[ModelKey] = set()
        self._changed: dict[str, WouldExclude] = {}

    def load(self) -> None:
        """Go on with what was stored before this start."""
        with self._state.read() as connection:
            self._runs = repository.read_runs(connection)
            going_on = repository.read_going_on(connection)
        for key, run in self._runs.items():
            of_it = (one for one in going_on if (one.entity.kind, one.version) == key)
            own = [one for one in of_it if one.since >= run.begun_at]
            if own:
                self._watches[key] = ShadowWatch(run)
                self._watches[key].resume(own)

    def look(
        self,
        tried: TriedModel,
        role: Role,
        opinions: Collection[Opinion],
        healthy: int,
        now: float,
    ) -> None:
        """Take what a model says now; see `ShadowWatch`."""
        limit = tried.exclude_confidence
        with self._lock:
            watch = self._watch(tried, role, now)
            changed = watch.look(opinions, healthy, role, limit, lambda: new_id("shadow"), now)
            self._runs[tried.kind, tried.version] = watch.run
            self._looked.add((tried.kind, tried.version))
            self._changed |= {one.id: one for one in changed}

    def _watch(self, tried: TriedModel, role: Role, now: float) -> ShadowWatch:
        """The watch over a model; it begins anew where the run so far says nothing of it."""
        key = (tried.kind, tried.version)
        run, watch = self._runs.get(key), self._watches.get(key)
        if run is None or not run.goes_on_with(tried):
            if watch is not None:
                self._changed |= {one.id: one for one in watch.close()}
            run, watch = new_run(tried, role, now), None
        if watch is None:
            watch = self._watches[key] = ShadowWatch(run)
        return watch

    def forget(self, connection: Connection, model: ModelKey) -> None:
        """A version is no more: what was tried of it says nothing of another of its name."""
        with self._lock:
            for known in (self._runs, self._watches):
                known.pop(model, None)
            self._looked.discard(model)
        repository.delete_model(connection, model)

    def save(self) -> None:
        """Store what changed, and close what is scored no more.

        Raises:
            WriteFailed: Nothing was stored; it is kept for the next time.
        """
        now = self._clock.now()
        with self._lock:
            for key, watch in list(self._watches.items()):
                if now - watch.run.seen_at >= 2 * QUIET_S:
                    self._changed |= {one.id: one for one in watch.close()}
                    del self._watches[key]
            runs = {key: self._runs[key] for key in self._looked}
            changed = dict(self._changed)

        def write(connection: Connection) -> None:
            repository.write_runs(connection, runs.values())
            repository.write_exclusions(connection, changed.values())
            repository.delete_old(connection, now - _KEPT_S)

        self._state.writer.call(write)
        with self._lock:
            self._looked -= {key for key, run in runs.items() if self._runs.get(key) is run}
            for name, one in changed.items():
                if self._changed.get(name) is one:
                    del self._changed[name]

    def run_of(self, model: ModelKey) -> ShadowRun | None:
        """How long a model has been tried, None for never."""
        with self._lock:
            return self._runs.get(model)

    def told(self, model: ModelKey, horizon_s: float, newest: int) -> Told | None:
        """A model in shadow as it stands by what is stored; None where it never was.

        Args:
            model: Kind and version.
            horizon_s: Within which it speaks of needing action.
            newest: How many would-be exclusions are told one by one.
        """
        run = self.run_of(model)
        if run is None:
            return None
        now = self._clock.now()
        with self._state.read() as connection:
            found = repository.read_exclusions(connection, model, run.begun_at, MOST_TALLIED)
            outcomes = _outcomes(connection, model[0], found, horizon_s, now)
        pairs = tuple(zip(found, outcomes, strict=True))
        return Told(run, tally_of(outcomes), pairs[:newest])

    def keep_trial(self, kind: EntityKind, told: Told) -> None:
        """Store the trial that a shadow run amounts to by now; the gate reads it."""
        trial = trial_of(told.run, told.tally)
        self._state.writer.call(
            lambda connection: repository.write_trial(connection, kind, trial, "gpuwarden")
        )

    def trials(self, model: ModelKey) -> Mapping[TrialKind, TrialRun]:
        """Trials of a model on this fleet, by how it was tried."""
        with self._state.read() as connection:
            return repository.read_trials(connection, model)


def _outcomes(
    connection: Connection,
    kind: EntityKind,
    found: list[WouldExclude],
    horizon_s: float,
    now: float,
) -> list[Outcome]:
    if not found:
        return []
    entities = {one.entity.key for one in found}
    since = min(one.since for one in found) - LEAD_S
    incidents = repository.read_incidents(connection, kind, entities, since)
    labels: dict[str, list[tuple[float, Label]]] = {}
    for case in read_cases(connection, incidents, now):
        key = case.incident.entity.key
        labels.setdefault(key, []).append((case.incident.opened_at, label_of(case)))
    return [outcome_of(one, labels.get(one.entity.key, ()), horizon_s, now) for one in found]
