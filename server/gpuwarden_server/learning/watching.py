"""What is noted of each sweep beside its risks: would-be exclusions, a challenger, rows, drift.

Runs in the judge's thread, which must not wait for it: it does no I/O, and its part of the time is
bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.learning.drift.book import DriftBook
from gpuwarden_server.learning.registry.shelf import ModelShelf
from gpuwarden_server.learning.samples.box import SampleBox
from gpuwarden_server.learning.samples.domain import EVERY_S, sample
from gpuwarden_server.learning.shadow.book import ShadowBook
from gpuwarden_server.learning.shadow.domain import Role, TriedModel
from gpuwarden_server.learning.shadow.limits import TriedLimit
from gpuwarden_server.learning.shadow.speaking import ScoreVoices, Surroundings
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FEATURE_SETS, FeatureScene
from gpuwarden_verdict.fusion import FusionModel, fuse_suspects
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Risk, Signal
from gpuwarden_wire.metrics import EntityKind

CHALLENGER_SHARE = 0.02
"""Of the time, at most, that a challenger's scores take."""
FRESH_S = 600.0
"""Who was not heard of for so long counts as healthy no more."""
COUNT_EACH_S = 5.0

Key = tuple[str, str]
_log = structlog.get_logger(__name__)


class WatchMeters:
    """Duration, drops and failures of what is noted beside sweeps."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.challenger = Histogram(
            "gpuwarden_challenger_duration_seconds",
            "One scoring of all challengers.",
            buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 2.5),
            registry=registry,
        )
        self.skipped = Counter(
            "gpuwarden_challenger_skipped_total",
            "Sweeps in which challengers were not scored, since they had taken their time.",
            registry=registry,
        )
        self.failures = Counter(
            "gpuwarden_learning_failures_total",
            "Work beside the sweep that raised; the sweep itself went on.",
            ["stage"],
            registry=registry,
        )


class ChallengerTurns:
    """In which sweeps challengers are scored: two running, then a rest.

    Only the time between two sweeps that both looked is credited to a challenger: what it would
    have excluded in the rest of the time nobody knows.
    """

    def __init__(self) -> None:
        self._before: frozenset[Key] = frozenset()
        self._spent_s = self._next = 0.0

    def due(self, began: float) -> bool:
        """Whether this sweep scores them; `began` is monotonic, seconds."""
        if began >= self._next:
            return True
        self._before = frozenset()
        return False

    def looked_before(self, model: Key) -> bool:
        """Whether the sweep before scored this (kind, version) too."""
        return model in self._before

    def note(self, looked: frozenset[Key], began: float, took_s: float) -> None:
        """This sweep scored them, in `took_s` seconds from `began` on."""
        self._spent_s += took_s
        if self._before:
            self._next = began + self._spent_s / CHALLENGER_SHARE
            self._spent_s = 0.0
        self._before = looked


class Watcher:
    """Notes what is seen in each sweep; used in the judge's thread."""

    def __init__(
        self,
        shelf: ModelShelf,
        shadow: ShadowBook,
        samples: SampleBox,
        drift: DriftBook,
        pool_of: Callable[[str], PoolPolicy],
        limit: TriedLimit,
        clock: Clock,
        meters: WatchMeters,
    ) -> None:
        """Make a watcher.

        Args:
            shelf: The models in use.
            shadow: Takes would-be exclusions.
            samples: Takes rows of features.
            drift: Compares what is seen with what models learnt from.
            pool_of: Rules of a node.
            limit: From where on they would exclude.
            clock: Time.
            meters: Figures.
        """
        self._shelf = shelf
        self._shadow = shadow
        self._samples = samples
        self._drift = drift
        self._pool_of = pool_of
        self._limit = limit
        self._clock = clock
        self._meters = meters
        self._incidents: Callable[[], Collection[Key]] = tuple
        self._sick_nodes: Callable[[], Collection[str]] = tuple
        self._around: Callable[[EntityRef], Surroundings] = lambda _: Surroundings()
        self._voices: dict[tuple[EntityKind, str, Role], ScoreVoices] = {}
        self._turns = ChallengerTurns()
        self._next_sample = self._next_count = 0.0
        self._healthy: dict[EntityKind, int] = {}
        self._tried_from = 1.0
        self._logged: set[type[Exception]] = set()

    def follow_incidents(
        self,
        in_incidents: Callable[[], Collection[Key]],
        sick_nodes: Callable[[], Collection[str]],
        around: Callable[[EntityRef], Surroundings],
    ) -> None:
        """Follow incidents.

        Args:
            in_incidents: Who has one that is not resolved, as (kind, key).
            sick_nodes: Nodes that have one, or a part of which has.
            around: What else the judge holds of an entity that is scored.
        """
        self._incidents, self._sick_nodes = in_incidents, sick_nodes
        self._around = around

    def seen(
        self, scene: FeatureScene, risks: Sequence[Risk], signals: Sequence[Signal], now: float
    ) -> None:
        """Note a sweep; what fails here is counted, and the sweep goes on.

        Args:
            scene: The fleet.
            risks: What the promoted models say.
            signals: What the detectors say.
            now: Epoch seconds.
        """
        try:
            self._count(scene, now)
            models = self._shelf.promoted()
            self._forget_voices()
            for kind, model in models.items():
                self._look(kind, model, Role.PROMOTED, risks, now)
            self._drift.note_alarms(models, risks, self._healthy, now)
            self._challenge(scene, signals, now)
            if now >= self._next_sample and self._sample(scene, risks, now):
                self._next_sample = now + EVERY_S
                self._drift.look(models, scene, self._incidents(), now)
        except Exception as error:  # the judge's sweep must act on what it sees, whatever this does
            self._meters.failures.labels("watch").inc()
            if type(error) not in self._logged:
                self._logged.add(type(error))
                _log.error("learning_watch_failed", worker="judge", exc_info=error)

    def _challenge(self, scene: FeatureScene, signals: Sequence[Signal], now: float) -> None:
        """Score challengers in two sweeps running, then rest: only between those is time theirs."""
        challengers = self._shelf.challengers()
        if not challengers:
            return
        began = self._clock.monotonic()
        if not self._turns.due(began):
            self._meters.skipped.inc()
            return
        watched = [
            ref
            for kind, model in challengers.items()
            for ref in self._voice(kind, model.version, Role.CHALLENGER).entities()
        ]
        risks = fuse_suspects(challengers, scene, watched, signals, now)
        for kind, model in challengers.items():
            running = self._turns.looked_before((kind.value, model.version))
            self._look(kind, model, Role.CHALLENGER, risks, now, credited=running)
        took_s = self._clock.monotonic() - began
        self._meters.challenger.observe(took_s)
        looked = frozenset((kind.value, model.version) for kind, model in challengers.items())
        self._turns.note(looked, began, took_s)

    def _look(
        self,
        kind: EntityKind,
        model: FusionModel,
        role: Role,
        risks: Sequence[Risk],
        now: float,
        *,
        credited: bool = True,
    ) -> None:
        own = [risk for risk in risks if risk.entity.kind is kind]
        voice = self._voice(kind, model.version, role)
        opinions = voice.hear(own, self._around, self._pool_of, now)
        healthy = self._healthy.get(kind, 0) if credited else 0
        tried = TriedModel(kind, model.version, model.digest, self._tried_from)
        self._shadow.look(tried, role, opinions, healthy, now)

    def _voice(self, kind: EntityKind, version: str, role: Role) -> ScoreVoices:
        return self._voices.setdefault((kind, version, role), ScoreVoices())

    def _forget_voices(self) -> None:
        """What models said that have no role any more."""
        roles = {Role.PROMOTED: self._shelf.promoted(), Role.CHALLENGER: self._shelf.challengers()}
        in_use = {(kind, m.version, role) for role, of in roles.items() for kind, m in of.items()}
        for gone in self._voices.keys() - in_use:
            del self._voices[gone]

    def _count(self, scene: FeatureScene, now: float) -> None:
        """How many of each kind are healthy: heard of, and on a node without any incident."""
        if now < self._next_count:
            return
        self._next_count = now + COUNT_EACH_S
        nodes = scene.state.view(EntityKind.NODE)
        self._tried_from = self._limit.over(ref.key for ref in nodes.refs)
        sick = self._sick_nodes()
        sick_rows = [row for row, ref in enumerate(nodes.refs) if ref.key in sick]
        for kind in FEATURE_SETS:
            view = scene.state.view(kind)
            fresh = now - view.last_seen_at() <= FRESH_S
            calm = ~np.isin(view.node_rows, sick_rows)
            self._healthy[kind] = int((fresh & calm).sum())

    def _sample(self, scene: FeatureScene, risks: Sequence[Risk], now: float) -> bool:
        """Keep rows; whether there is any: after a start nobody has reported yet."""
        models, incidents = self._shelf.promoted(), self._incidents()
        any_kept = False
        for kind in FEATURE_SETS:
            model = models.get(kind)
            version = "" if model is None else model.version
            rows = sample(kind, scene, risks, incidents, version, now)
            if self._samples.takes:
                self._samples.put(rows)
            any_kept = any_kept or bool(rows)
        return any_kept
