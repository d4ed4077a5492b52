"""What a step does with one recording: make it, play it, take its features."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_models.backtest.history import History
from gpuwarden_models.datasets import dataset_of, extract
from gpuwarden_models.evaluation.options import Options
from gpuwarden_models.evaluation.playing import Played, play
from gpuwarden_models.evaluation.scorers import Lesson
from gpuwarden_models.evaluation.sets import Recipe, Use, make_recording
from gpuwarden_models.evaluation.splice import SplicedHistory, read_runs
from gpuwarden_models.evaluation.steps import EvaluationError
from gpuwarden_models.extracting import KINDS_READ
from gpuwarden_models.feature_cache import FeatureCache, read_cache
from gpuwarden_models.recording import Recording
from gpuwarden_models.train import HORIZON_S
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import FusionModels


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """One recording.

    Attributes:
        nodes: Number of nodes.
        hours: Length.
        interval_s: Time between readings.
        generator: What made it.
        parameters_sha256: Of that program's parameters.
        played: What the whole system and the rule baselines made of it; None where it only trains.
    """

    nodes: int
    hours: float
    interval_s: float
    generator: str
    parameters_sha256: str
    played: Played | None


def work_on(recipe: Recipe, options: Options, models: FusionModels) -> RecordingResult:
    """Make a recording, take what is wanted from it, and throw it away.

    Args:
        recipe: What to make.
        options: Of the evaluation.
        models: The learnt scores.

    Raises:
        PublicRecordsError: What is to be spliced in is missing or of another form.
    """
    state = options.state
    folder = state / "recordings" / recipe.name
    make_recording(recipe, folder)
    opened = Recording(folder, KINDS_READ)
    if recipe.rows:
        extract(folder, state / "features")
    history = _history(recipe, opened, options)
    played = None if recipe.use is Use.TRAIN else play(history, models)
    hours = (opened.end - opened.start + opened.interval_s) / 3600.0
    shutil.rmtree(folder)
    return RecordingResult(
        nodes=len(opened.nodes),
        hours=hours,
        interval_s=opened.interval_s,
        generator=opened.generator,
        parameters_sha256=opened.parameters_hash,
        played=played,
    )


def _history(recipe: Recipe, opened: Recording, options: Options) -> History:
    if not recipe.spliced:
        return opened
    assert options.public is not None
    return SplicedHistory(opened, read_runs(options.public), recipe.seed)


def kept_features(state: Path, name: str) -> FeatureCache:
    """Features of a recording that an earlier step took.

    Raises:
        EvaluationError: They are gone, or of other features than those of now.
    """
    for path in sorted((state / "features").glob(f"{name}-*.npz")):
        found = read_cache(path)
        if found is not None and found.facts.name == name:
            return found
    raise EvaluationError(
        f"{state / 'features'}: no features of {name} that fit the present ones; delete {state} and"
        " begin anew"
    )


def lesson_of(state: Path, names: Sequence[str], seed: int) -> Lesson:
    """All rows of some recordings to learn from.

    Raises:
        EvaluationError: Features of one are gone.
    """
    caches = [kept_features(state, name) for name in names]
    datasets = {kind: dataset_of(caches, kind, HORIZON_S) for kind in FEATURE_SETS}
    return Lesson(datasets, seed)
