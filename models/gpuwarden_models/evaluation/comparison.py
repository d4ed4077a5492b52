"""Scorers of rows side by side: each is fitted once and scores all recordings with features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwarden_models.datasets import Case, dataset_of
from gpuwarden_models.evaluation.budgets import EXCLUSION_BUDGET, operating, threshold_for
from gpuwarden_models.evaluation.calibration import Calibration, calibration, chance_of
from gpuwarden_models.evaluation.row_traces import trace_rows
from gpuwarden_models.evaluation.scorers import (
    Lesson,
    Scorers,
    fusion_scorers,
    logistic_scorers,
    novelty_scorers,
    shipped_scorers,
    single_scorers,
    supported_scorers,
    without_cases,
    without_plane,
)
from gpuwarden_models.evaluation.sets import OTHER_SEEDS, Recipe, Use
from gpuwarden_models.evaluation.traces import Trace
from gpuwarden_models.evaluation.work import kept_features, lesson_of
from gpuwarden_models.train import HORIZON_S
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.signals import Plane
from gpuwarden_wire.metrics import EntityKind

SHIPPED, RETRAINED, LOGISTIC, SINGLE, IN_SAMPLE = (
    "learnt score (shipped)",
    "learnt score (retrained)",
    "logistic regression",
    "best single threshold",
    "trained on the test itself",
)


@dataclass(frozen=True, slots=True)
class Scored:
    """One scorer on all recordings with features.

    Attributes:
        traces: By recording.
        calibration: By recording and kind; empty where it gives no probability.
        told: What it rests on, in words.
        supported: The same as `traces`, of rows alone that as many planes support as the gate asks
            for; empty where nobody asks.
    """

    traces: dict[str, Trace]
    calibration: dict[str, dict[str, Calibration]]
    told: str = ""
    supported: dict[str, Trace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a model that never saw a mechanism or class makes of it.

    Attributes:
        threshold: Chosen on the tuning recordings, at the exclusion budget.
        traces: On the recordings with other seeds; what was left out is among their incidents.
    """

    threshold: float
    traces: dict[str, Trace]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a comparison finds its rows.

    Attributes:
        state: Folder of the evaluation.
        recipes: All recordings.
        seed: Of what is fitted.
        trees: Boosting rounds.
    """

    state: Path
    recipes: Sequence[Recipe]
    seed: int
    trees: int

    def names(self, *uses: Use) -> list[str]:
        """Recordings with features."""
        return [one.name for one in self.recipes if one.rows and one.use in uses]

    def of_group(self, group: str) -> list[str]:
        """Recordings of one set."""
        return [one.name for one in self.recipes if one.group == group]

    def lesson(self) -> Lesson:
        """Rows to learn from."""
        return lesson_of(self.state, self.names(Use.TRAIN), self.seed)


def score_shipped(bench: Bench, models: FusionModels) -> Scored:
    """The models under evaluation."""
    scored = _scored(bench, shipped_scorers(models), calibrated=True)
    supported = _scored(bench, supported_scorers(models)).traces
    return replace(scored, supported=supported)


def score_retrained(bench: Bench) -> Scored:
    """The same kind of model, from the same rows as the baselines learn from."""
    return _scored(bench, fusion_scorers(bench.lesson(), bench.trees), calibrated=True)


def score_logistic(bench: Bench) -> Scored:
    """Logistic regression."""
    return _scored(bench, logistic_scorers(bench.lesson()), calibrated=True)


def score_single(bench: Bench) -> Scored:
    """The feature of each kind that finds most on the tuning recordings within the budget."""
    lesson = bench.lesson()
    best = {kind: _best_column(bench, lesson, kind) for kind in lesson.datasets}
    names = (f"{kind.value}: {FEATURE_SETS[kind].names[n]}" for kind, n in best.items())
    return _scored(bench, single_scorers(lesson, best), told="; ".join(names))


def score_novelty(bench: Bench) -> Scored:
    """Distance from all that is healthy."""
    return _scored(bench, novelty_scorers(bench.lesson()))


def score_without_plane(bench: Bench, plane: Plane) -> Scored:
    """Retrained without the features of a plane."""
    return _scored(bench, without_plane(bench.lesson(), plane, bench.trees))


def score_in_sample(bench: Bench) -> Scored:
    """Trained on the very recordings it is tested on: what these features could do at best."""
    tests = bench.names(Use.TEST)
    lesson = lesson_of(bench.state, tests, bench.seed)
    return _scored(bench, fusion_scorers(lesson, bench.trees))


def score_left_out(bench: Bench, by: Callable[[Case], str]) -> dict[str, LeftOut]:
    """A model for each mechanism or class that did not learn from it, and what it makes of it.

    Args:
        bench: Where the rows are.
        by: What is left out of a case: its mechanism, or its class.
    """
    lesson = bench.lesson()
    full = fusion_scorers(lesson, bench.trees)
    words = sorted({by(case) for one in lesson.datasets.values() for case in one.cases} - {""})
    return {word: _left_out(bench, _without(bench, lesson, full, by, word)) for word in words}


def _without(
    bench: Bench, lesson: Lesson, full: Scorers, by: Callable[[Case], str], word: str
) -> Scorers:
    """Only the models of kinds that have such cases are trained anew."""
    concerned = {
        kind: one
        for kind, one in lesson.datasets.items()
        if any(by(case) == word for case in one.cases)
    }
    less = without_cases(replace(lesson, datasets=concerned), lambda case: by(case) == word)
    kept = {kind: scorer for kind, scorer in full.items() if kind not in concerned}
    return {**kept, **fusion_scorers(less, bench.trees)}


def _left_out(bench: Bench, scorers: Scorers) -> LeftOut:
    tuned = [trace_rows(kept_features(bench.state, one), scorers) for one in bench.names(Use.TUNE)]
    traces = {
        name: trace_rows(kept_features(bench.state, name), scorers)
        for name in bench.of_group(OTHER_SEEDS)
    }
    return LeftOut(threshold_for(tuned, EXCLUSION_BUDGET), traces)


def _best_column(bench: Bench, lesson: Lesson, kind: EntityKind) -> int:
    caches = [kept_features(bench.state, name) for name in bench.names(Use.TUNE)]

    def found(column: int) -> int:
        scorers = single_scorers(lesson, {kind: column})
        traces = [trace_rows(cache, scorers) for cache in caches]
        return operating(traces, threshold_for(traces, EXCLUSION_BUDGET), bench.seed).found

    return max(range(len(FEATURE_SETS[kind])), key=found)


def _scored(bench: Bench, scorers: Scorers, *, calibrated: bool = False, told: str = "") -> Scored:
    traces: dict[str, Trace] = {}
    measured: dict[str, dict[str, Calibration]] = {}
    unseen = _unseen(bench, scorers) if calibrated else {}
    for name in bench.names(Use.TUNE, Use.TEST):
        cache = kept_features(bench.state, name)
        traces[name] = trace_rows(cache, scorers)
        if calibrated:
            measured[name] = {
                kind.value: calibration(dataset_of([cache], kind, HORIZON_S), scorer, unseen[kind])
                for kind, scorer in scorers.items()
            }
    return Scored(traces, measured, told)


def _unseen(bench: Bench, scorers: Scorers) -> dict[EntityKind, float]:
    """Chance of needing action though nothing shows it, by kind, on the tuning recordings."""
    caches = [kept_features(bench.state, name) for name in bench.names(Use.TUNE)]
    return {kind: chance_of([dataset_of(caches, kind, HORIZON_S)]) for kind in scorers}


def of_recordings(traces: Mapping[str, Trace], names: Sequence[str]) -> list[Trace]:
    """Traces of some recordings."""
    return [traces[name] for name in names]
