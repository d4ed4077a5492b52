"""`gpuwarden evaluate`: the steps, and the report from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec

from gpuwarden_models.evaluation.comparison import (
    Bench,
    score_in_sample,
    score_left_out,
    score_logistic,
    score_novelty,
    score_retrained,
    score_shipped,
    score_single,
    score_without_plane,
)
from gpuwarden_models.evaluation.curve import curve_point
from gpuwarden_models.evaluation.exclusion.benchmark import exclusion_benchmark
from gpuwarden_models.evaluation.options import Options
from gpuwarden_models.evaluation.report import report_page
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.sets import Recipe, recipes
from gpuwarden_models.evaluation.steps import Step, StepBook
from gpuwarden_models.evaluation.work import work_on
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.signals import Plane


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        report: The page, None where steps are left.
        left: Names of the steps that are left.
    """

    report: Path | None
    left: tuple[str, ...]


def evaluate(options: Options, models: FusionModels, tell: Callable[[str], None]) -> Outcome:
    """Do what is left, and write the report once all is done.

    Args:
        options: What to do.
        models: The learnt scores; without any the rules are measured alone.
        tell: Told what begins and how long it took.

    Raises:
        EvaluationError: The state is of other arguments, or parts of it are gone.
        PublicRecordsError: A file of public data is missing or of another form.
        RecordingError: A recording broke off in the middle.
    """
    made = recipes(options.sizes, options.seed, real=options.public is not None)
    steps = _steps(options, models, made)
    sets = [one.name for one in made]
    book = StepBook(options.state, {"sets": sets, **_arguments(options, models)})
    left = book.run(steps, options.minutes, tell)
    if left:
        return Outcome(None, tuple(left))
    results = Results(book, options, made, _versions(models))
    options.out.mkdir(parents=True, exist_ok=True)
    page, figures = report_page(results)
    encoded = msgspec.json.encode(figures)
    (options.out / "report.json").write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")
    path = options.out / "report.md"
    path.write_text(page, encoding="utf-8")
    return Outcome(path, ())


def _arguments(options: Options, models: FusionModels) -> Mapping[str, object]:
    return {
        "seed": options.seed,
        "tree_seeds": options.tree_seeds,
        "sizes": asdict(options.sizes),
        "models": _versions(models),
        "features": {kind.value: one.schema_hash for kind, one in FEATURE_SETS.items()},
    }


def _versions(models: FusionModels) -> dict[str, str]:
    return {kind.value: model.version for kind, model in models.items()}


def _steps(options: Options, models: FusionModels, made: list[Recipe]) -> list[Step]:
    sizes, state = options.sizes, options.state
    steps = [Step(one.name, partial(work_on, one, options, models)) for one in made]
    bench = Bench(state, made, options.seed, sizes.trees)
    if models:
        steps.append(Step("score-shipped", partial(score_shipped, bench, models)))
    if sizes.train_sets:
        steps += _retraining(bench)
    steps += [
        Step(f"interval-{seconds:g}", partial(curve_point, sizes, options.seed, seconds, models))
        for seconds in sizes.curve_intervals_s
    ]
    if options.public is not None:
        public, seeds = options.public, options.tree_seeds
        steps.append(Step("exclusion", partial(exclusion_benchmark, public, options.seed, seeds)))
    return steps


def _retraining(bench: Bench) -> list[Step]:
    steps = [
        Step("score-retrained", partial(score_retrained, bench)),
        Step("score-logistic", partial(score_logistic, bench)),
        Step("score-single", partial(score_single, bench)),
        Step("score-novelty", partial(score_novelty, bench)),
        Step("score-in-sample", partial(score_in_sample, bench)),
        Step("left-out-classes", partial(score_left_out, bench, lambda one: one.fault_class.value)),
        Step("left-out-mechanisms", partial(score_left_out, bench, lambda one: one.mechanism)),
    ]
    planes = {one.plane for features in FEATURE_SETS.values() for one in features.features}
    return steps + [
        Step(f"without-{plane.value}", partial(score_without_plane, bench, plane))
        for plane in Plane
        if plane in planes
    ]
