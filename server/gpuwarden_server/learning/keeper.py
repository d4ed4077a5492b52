"""Stores what sweeps noted, and tallies what would-be exclusions turned out to be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Event, Thread

import structlog
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.learning.registry.shelf import ModelShelf
from gpuwarden_server.learning.samples.box import SampleBox
from gpuwarden_server.learning.scorer import Scorer
from gpuwarden_server.learning.shadow.book import ShadowBook, Told
from gpuwarden_server.learning.shadow.domain import Role, gate_trials, trial_of
from gpuwarden_server.learning.watching import WatchMeters
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.fusion import FusionModel, TrialRun
from gpuwarden_wire.metrics import EntityKind

_OUTCOMES = ("needed", "false", "unsettled")
_log = structlog.get_logger(__name__)


class ShadowMeters:
    """How models in shadow stand."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["kind", "role"]
        self._shown: set[tuple[EntityKind, Role]] = set()
        self.days = Gauge(
            "gpuwarden_shadow_healthy_days",
            "Healthy entities x days over which a model was tried on this fleet.",
            labels,
            registry=registry,
        )
        self.exclusions = Gauge(
            "gpuwarden_shadow_exclusions",
            "Exclusions that a model would have made, by how they turned out.",
            [*labels, "outcome"],
            registry=registry,
        )
        self.bound = Gauge(
            "gpuwarden_shadow_false_exclusions_per_day_bound",
            "Upper 95 % bound of false exclusions an entity and day; what is not settled counts.",
            labels,
            registry=registry,
        )

    def tell(self, kind: EntityKind, role: Role, told: Told) -> None:
        """Show how one model stands."""
        labels = (kind.value, role.value)
        self.days.labels(*labels).set(told.run.healthy_days)
        self.bound.labels(*labels).set(trial_of(told.run, told.tally).bound_per_gpu_day)
        for outcome in _OUTCOMES:
            self.exclusions.labels(*labels, outcome).set(getattr(told.tally, outcome))

    def forget(self, told: Collection[tuple[EntityKind, Role]]) -> None:
        """Leave out models that are in no role any more; the others never vanish from a scrape."""
        for kind, role in self._shown - set(told):
            self.days.remove(kind.value, role.value)
            self.bound.remove(kind.value, role.value)
            for outcome in _OUTCOMES:
                self.exclusions.remove(kind.value, role.value, outcome)
        self._shown = set(told)


class Keeper:
    """A thread beside the judge's, which must not wait for the database."""

    def __init__(
        self,
        shelf: ModelShelf,
        shadow: ShadowBook,
        samples: SampleBox,
        scorer: Scorer,
        registry: CollectorRegistry,
        failed: WatchMeters,
        each_s: float,
    ) -> None:
        """Make it; `start` makes it run.

        Args:
            shelf: The models in use.
            shadow: What they would have excluded.
            samples: Rows of features that wait.
            scorer: Whose gate goes by the trials.
            registry: Metrics.
            failed: Counts what failed.
            each_s: Seconds between two turns.
        """
        self._shelf = shelf
        self._shadow = shadow
        self._samples = samples
        self._scorer = scorer
        self._meters = ShadowMeters(registry)
        self._failed = failed
        self._each_s = each_s
        self._stop = Event()
        self._failing = False
        self._thread = Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        """Go on from what is stored, and start the thread; the gate knows its trials then."""
        self._shadow.load()
        self._try()
        self._thread.start()

    def stop(self) -> None:
        """End, and store what is left."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._try()

    def _run(self) -> None:
        while not self._stop.wait(self._each_s):
            self._try()

    def _try(self) -> None:
        try:
            self._turn()
        except (WriteFailed, TimeoutError, SQLAlchemyError) as error:
            self._note_failure(str(error))
        except Exception as error:  # worker thread "learning": what fails is tried again
            self._note_failure(repr(error))
        else:
            if self._failing:
                _log.info("learning_stored_again")
            self._failing = False

    def _note_failure(self, reason: str) -> None:
        self._failed.failures.labels("keep").inc()
        if not self._failing:
            _log.error("learning_not_stored", worker="learning", reason=reason)
        self._failing = True

    def _turn(self) -> None:
        self._shadow.save()
        self._samples.save()
        trials: dict[EntityKind, Sequence[TrialRun]] = {}
        judged: list[tuple[EntityKind, Role]] = []
        for kind, model in self._shelf.promoted().items():
            judged += self._judge(kind, model, Role.PROMOTED)
            trials[kind] = gate_trials(self._shadow.trials((kind, model.version)))
        for kind, model in self._shelf.challengers().items():
            judged += self._judge(kind, model, Role.CHALLENGER)
        self._meters.forget(judged)
        self._scorer.take_trials(trials)

    def _judge(
        self, kind: EntityKind, model: FusionModel, role: Role
    ) -> list[tuple[EntityKind, Role]]:
        told = self._shadow.told((kind, model.version), model.horizon_s, 0)
        if told is None:
            return []
        self._shadow.keep_trial(kind, told)
        self._meters.tell(kind, role, told)
        return [(kind, role)]
