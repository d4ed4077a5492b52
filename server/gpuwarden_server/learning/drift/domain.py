"""How far features and alarms of a fleet lie from what a model learnt from. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.fusion import FusionModel

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

SHIFT_LIMIT = 0.25
"""Share of the fleet that lies elsewhere than in training, from which a feature has drifted: as
far as a population stability index of about 0.25, which is usually called a major change."""
NOISE = 1.63
"""What chance alone moves by, x sqrt(entities) (Kolmogorov, 1 %)."""
FADE_S = 86_400.0
"""Rows are forgotten over a day: a shift of the load in the night is none of the fleet."""
LEAST_S = 3600.0
"""Nothing is said before."""
LEAST_ENTITIES = 8
ALARM_FADE_S = 7 * 86_400.0
ALARM_FACTOR = 3.0
"""Alarms that come so many times as often as on the nodes of the training's test."""
LEAST_ALARMS = 5
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Drifted:
    """A feature that is elsewhere than in training.

    Attributes:
        feature: Its name.
        shift: Share of the fleet by which it is, 0 to 1.
        limit: From which that counts.
    """

    feature: str
    shift: float
    limit: float


@dataclass(frozen=True, slots=True)
class DriftReport:
    """How a fleet stands beside a model's training.

    Attributes:
        version: Model.
        checked_at: Epoch seconds.
        entities: How many were looked at lately.
        shifts: By feature, 0 to 1; none before enough was seen, or of a model that does not say.
        drifted: Those above the limit, the furthest first.
        alarms_a_day: An entity and day, at the model's operating point; None before any day.
        alarms_expected: In its test; None where the model does not say.
        alarms_rose: Whether they come far more often than expected.
    """

    version: str
    checked_at: float
    entities: int = 0
    shifts: tuple[tuple[str, float], ...] = ()
    drifted: tuple[Drifted, ...] = ()
    alarms_a_day: float | None = None
    alarms_expected: float | None = None
    alarms_rose: bool = False

    @property
    def warning(self) -> str:
        """What a person should know, "" for nothing."""
        said = []
        if self.drifted:
            first = self.drifted[0]
            said.append(
                f"{len(self.drifted)} features are not as in training, {first.feature} by"
                f" {first.shift:.0%} of the fleet"
            )
        if self.alarms_rose:
            said.append(
                f"alarms come {self.alarms_a_day:.2g} times an entity and day, where"
                f" {self.alarms_expected:.2g} were expected"
            )
        return "; ".join(said) and "; ".join(said) + ": retrain it on this fleet"


@dataclass(slots=True)
class DriftWatch:
    """Compares what a model is shown with what it learnt from; one thread uses it.

    Attributes:
        model: The model.
    """

    model: FusionModel
    _begun_at: float | None = None
    _seen_at: float = 0.0
    _entities: int = 0
    _rows: float = 0.0
    _missing: F64 = field(default_factory=lambda: np.zeros(0))
    _below: list[F64] = field(default_factory=list)
    _upto: list[F64] = field(default_factory=list)
    _alarms: float = 0.0
    _days: float = 0.0
    _alarmed: frozenset[str] = frozenset()
    _counted_at: float | None = None

    def add_rows(self, matrix: F32, now: float) -> None:
        """Take features of entities that are ordinary now.

        Args:
            matrix: Shape (N, F), columns as the model's; NaN where missing.
            now: Epoch seconds.
        """
        if not self.model.quantiles or matrix.shape[0] == 0:
            return
        if self._begun_at is None:
            self._begun_at = self._seen_at = now
            self._missing = np.zeros(matrix.shape[1])
            self._below = [np.zeros(len(edges)) for edges in self.model.quantiles]
            self._upto = [np.zeros(len(edges)) for edges in self.model.quantiles]
        kept = math.exp(-(now - self._seen_at) / FADE_S)
        self._seen_at = now
        self._entities = max(matrix.shape[0], int(kept * self._entities))
        self._rows = kept * self._rows + matrix.shape[0]
        self._missing = kept * self._missing + np.isnan(matrix).sum(axis=0)
        for place, edges in enumerate(self.model.quantiles):
            ordered = np.sort(matrix[:, place][~np.isnan(matrix[:, place])])
            below, upto = np.searchsorted(ordered, edges), np.searchsorted(ordered, edges, "right")
            self._below[place] = kept * self._below[place] + below
            self._upto[place] = kept * self._upto[place] + upto

    def add_alarms(self, alarmed: Collection[str], entities: int, now: float) -> None:
        """Take who is above the operating point now.

        Args:
            alarmed: Their keys.
            entities: How many are scored.
            now: Epoch seconds.
        """
        before = self._counted_at
        self._counted_at = now
        names = frozenset(alarmed)
        if before is None:
            self._alarmed = names  # what stood at the start is no news
            return
        gap = min(max(now - before, 0.0), 600.0)
        kept = math.exp(-gap / ALARM_FADE_S)
        self._days = kept * self._days + entities * gap / _DAY_S
        self._alarms = kept * self._alarms + len(names - self._alarmed)
        self._alarmed = names

    def report(self, now: float) -> DriftReport:
        """How it stands; `now` is epoch seconds."""
        shifts = self._shifts(now)
        limit = SHIFT_LIMIT + NOISE / math.sqrt(max(self._entities, 1))
        drifted = [Drifted(name, shift, limit) for name, shift in shifts if shift > limit]
        expected = self.model.alarms_per_entity_day
        rate = self._alarms / self._days if self._days > 0 else None
        rose = (
            rate is not None
            and expected is not None
            and self._alarms >= LEAST_ALARMS
            and rate > ALARM_FACTOR * expected
        )
        return DriftReport(
            self.model.version,
            now,
            self._entities,
            shifts,
            tuple(sorted(drifted, key=lambda one: -one.shift)),
            rate,
            expected,
            rose,
        )

    def _shifts(self, now: float) -> tuple[tuple[str, float], ...]:
        if self._begun_at is None or now - self._begun_at < LEAST_S:
            return ()
        if self._entities < LEAST_ENTITIES:
            return ()
        known = self._rows - self._missing
        missing = self._missing / self._rows
        trained = self.model.missing_share or tuple(missing.tolist())
        return tuple(
            (
                name,
                max(
                    abs(float(missing[place]) - trained[place]),
                    _shift(edges, self._below[place], self._upto[place], float(known[place])),
                ),
            )
            for place, (name, edges) in enumerate(
                zip(self.model.features.names, self.model.quantiles, strict=True)
            )
        )


def _shift(edges: Sequence[float], below: F64, upto: F64, known: float) -> float:
    """Largest share that is certain to lie on another side of a training decile.

    Deciles that are equal stand for one value that many had: only what lies beyond all of them
    counts, so that a counter which is 0 almost everywhere has not drifted where it is 0 everywhere.
    """
    if not edges or known <= 0:
        return 0.0
    levels = np.arange(1, len(edges) + 1) / (len(edges) + 1)
    values = np.asarray(edges)
    lowest = np.array([levels[values == value].min() for value in values])
    highest = np.array([levels[values == value].max() for value in values])
    more_below = below / known - lowest
    fewer_upto = highest - upto / known
    return float(max(more_below.max(), fewer_upto.max(), 0.0))
