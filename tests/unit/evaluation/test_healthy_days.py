"""False rates rest on healthy days of the very program that made the set."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpuwarden_models.evaluation.bars import bars_page
from gpuwarden_models.evaluation.options import Options
from gpuwarden_models.evaluation.playing import Played
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.sets import (
    NEARLY_HEALTHY,
    OTHER_SEEDS,
    SECOND,
    SECOND_HEALTHY,
    Sizes,
    Use,
    recipes,
)
from gpuwarden_models.evaluation.steps import Step, StepBook
from gpuwarden_models.evaluation.traces import EXCLUDED, Trace
from gpuwarden_models.evaluation.work import RecordingResult
from gpuwarden_models.second_generator import GENERATOR

FALSE = {NEARLY_HEALTHY: 0, SECOND_HEALTHY: 7}
SIZES = Sizes(train_sets=0, test_sets=1, healthy_days=20.0, curve_intervals_s=())


def bars(folder: Path, sizes: Sizes) -> dict[tuple[str, str], str]:
    """Words of each bar of a run in which nothing is found and the healthy sets differ."""
    made = recipes(sizes, 1)
    book = StepBook(folder, {})

    def result(group: str) -> RecordingResult:
        trace = Trace((), (EXCLUDED,) * FALSE.get(group, 1), 10.0)
        played = Played(trace, trace, trace, {}, {}, {})
        return RecordingResult(8, 1.0, 60.0, "", "", played)

    steps = [Step(one.name, partial(result, one.group)) for one in made]
    book.run(steps, 1.0, lambda said: None)
    _, figures = bars_page(Results(book, Options(folder, folder, sizes=sizes), made, {}))
    return {(str(one["name"]), str(one["on"])): str(one["words"]) for one in figures}


def test_each_generator_has_healthy_days_of_its_own() -> None:
    healthy = [one for one in recipes(SIZES, 1) if one.use is Use.HEALTHY]
    own = {one.group: sum(r.hours for r in healthy if r.group == one.group) for one in healthy}
    assert own == {NEARLY_HEALTHY: 480.0, SECOND_HEALTHY: 480.0}
    seldom = [one for one in healthy if one.generator == GENERATOR]
    assert {one.group for one in seldom} == {SECOND_HEALTHY}
    assert len({one.seed for one in recipes(SIZES, 1)}) == len(recipes(SIZES, 1))


def test_the_false_rate_of_the_second_generator_is_its_own(tmp_path: Path) -> None:
    words = bars(tmp_path / "long", SIZES)
    asked = next(name for name, on in words if on == SECOND and "false exclusions" in name)
    assert "14 false exclusions in 20.0 healthy" in words[asked, SECOND]
    assert SECOND_HEALTHY in words[asked, SECOND]
    assert "0 false exclusions in 20.0 healthy" in words[asked, OTHER_SEEDS]
    none = bars(
        tmp_path / "none", Sizes(train_sets=0, test_sets=1, healthy_days=0.0, curve_intervals_s=())
    )
    assert "1 false exclusions in 10.0 healthy" in none[asked, SECOND], "of the set itself"
