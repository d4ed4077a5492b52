"""`gpuwarden evaluate`: the steps, and the report from their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwarden_models.evaluation.exclusion.benchmark import exclusion_benchmark
from gpuwarden_models.evaluation.options import Options
from gpuwarden_models.evaluation.report import report_page
from gpuwarden_models.evaluation.steps import EvaluationError, Step, StepBook


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        report: The page, None where steps are left.
        left: Names of the steps that are left.
    """

    report: Path | None
    left: tuple[str, ...]


def evaluate(options: Options, tell: Callable[[str], None]) -> Outcome:
    """Do what is left, and write the report once all is done.

    Args:
        options: What to do.
        tell: Told what begins and how long it took.

    Raises:
        EvaluationError: The state is of other arguments, or there is nothing to do.
        PublicRecordsError: A file of public data is missing or of another form.
    """
    steps = _steps(options)
    if not steps:
        raise EvaluationError(
            "nothing to evaluate: name the folder of public data with --public-data"
        )
    book = StepBook(options.state, {"seed": options.seed, "tree_seeds": options.tree_seeds})
    left = book.run(steps, options.minutes, tell)
    if left:
        return Outcome(None, tuple(left))
    results = {step.name: book.result(step.name) for step in steps}
    options.out.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.encode({"seed": options.seed, **results})
    (options.out / "report.json").write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")
    page = options.out / "report.md"
    page.write_text(report_page(results, options), encoding="utf-8")
    return Outcome(page, ())


def _steps(options: Options) -> list[Step]:
    steps: list[Step] = []
    if options.public is not None:
        public = options.public
        steps.append(
            Step("exclusion", lambda: exclusion_benchmark(public, options.seed, options.tree_seeds))
        )
    return steps
