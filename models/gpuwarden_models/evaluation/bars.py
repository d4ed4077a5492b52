"""Bars: met, not met, or a bound only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from gpuwarden_models.evaluation.budgets import (
    ADVICE_BUDGET,
    BASE_RATES,
    ENOUGH_FLEET_DAYS,
    EXCLUSION_BUDGET,
    operating,
)
from gpuwarden_models.evaluation.calibration import off_bins
from gpuwarden_models.evaluation.contest import contests
from gpuwarden_models.evaluation.exclusion.page import exclusion_bar
from gpuwarden_models.evaluation.plain import duration, number, plain, share, span, table
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.score_page import calibrations, left_out_figures
from gpuwarden_models.evaluation.sets import HEALTHY_OF, NO_PRECURSORS, OTHER_SEEDS, SECOND, Use
from gpuwarden_models.evaluation.statistics import rate_bound, wilson
from gpuwarden_models.evaluation.system_page import hard, hard_delays, system_traces
from gpuwarden_models.evaluation.traces import EXCLUDED, PLACES, SUSPECT, Trace, shown_counts

_HARD_RECALL, _HARD_DELAY_S = 0.99, 5.0
_RECALL, _UNSEEN_RECALL, _POINTS = 0.90, 0.60, 0.15
_TOO_EARLY = 0.02
FEWEST_FAULTS = 30
"""With fewer nothing is called met or not met."""


class Verdict(StrEnum):
    """What became of a bar."""

    MET = "met"
    NOT_MET = "not met"
    BOUND = "bound only"
    NO_BAR = "told, no bar"
    TOO_FEW = "too few faults"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        name: What is asked.
        on: The set.
        mark: simulated or public data.
        verdict: What became of it.
        words: The figures.
    """

    name: str
    on: str
    mark: str
    verdict: Verdict
    words: str


def bars_page(results: Results) -> tuple[str, list[dict[str, object]]]:
    """Markdown and figures."""
    bars = [*_system_bars(results), *_score_bars(results), *_exclusion_bars(results)]
    rows = [(one.name, one.on, one.mark, f"**{one.verdict}**", one.words) for one in bars]
    missing = (
        ""
        if SECOND in results.groups(Use.TEST)
        else "\n\nThe second generator is not there: bars are told on other seeds of the simulator"
        " that the models were trained on, which is easier."
    )
    text = f"## Bars\n\n{table(('bar', 'on', 'source', 'verdict', 'figures'), rows)}{missing}"
    return text, [plain(one) for one in bars]


def _system_bars(results: Results) -> list[Bar]:
    groups = results.groups(Use.TEST)
    bars: list[Bar] = []
    for name in (SECOND, OTHER_SEEDS):
        if name in groups:
            traces = system_traces(results, groups[name])
            traced = [results.played(one.name).traced for one in groups[name]]
            bars += [_hard_bar(name, traces), _all_bar(results, name, traced, traces)]
            bars.append(_advice_bar(results, name, traces))
    if NO_PRECURSORS in groups:
        bars.append(_sudden_bar(results, system_traces(results, groups[NO_PRECURSORS])))
    return bars


def _hard_bar(name: str, traces: list[Trace]) -> Bar:
    faults = hard(traces)
    found = sum(one.first_alarm(EXCLUDED) is not None for one in faults)
    delays = hard_delays(traces)
    late = median(delays) if delays else None
    met = found >= _HARD_RECALL * len(faults) and (late or 0.0) < _HARD_DELAY_S
    words = (
        f"{found} of {len(faults)} ({span(plain(wilson(found, len(faults))))}), median"
        f" {duration(late)} in the judge (negative: excluded before the line came);"
        " transport comes on top"
    )
    asked = "hard faults (with a line that acts alone): recall ≥ 0.99, median delay under 5 s"
    return Bar(asked, name, "simulated", _verdict(met, len(faults)), words)


def _verdict(met: bool, faults: int) -> Verdict:
    if faults < FEWEST_FAULTS:
        return Verdict.TOO_FEW
    return Verdict.MET if met else Verdict.NOT_MET


def _false_rate(results: Results, name: str, height: float) -> tuple[int, float, str]:
    """False flags over healthy days of the program that made a set, else over the set itself."""
    healthy = results.groups(Use.HEALTHY).get(HEALTHY_OF[name])
    traces = system_traces(results, healthy or results.groups(Use.TEST)[name])
    false = sum(score >= height for trace in traces for score in trace.false)
    where = HEALTHY_OF[name] if healthy else f"{name}, full of confounders"
    return false, sum(trace.fleet_days for trace in traces), where


def _all_bar(results: Results, name: str, traced: list[Trace], traces: list[Trace]) -> Bar:
    one = operating([*map(shown_counts, traced)], EXCLUDED, results.options.seed)
    every = operating([*map(shown_counts, traces)], EXCLUDED, results.options.seed)
    places = sum(i.incident.kind in PLACES for trace in traced for i in trace.incidents)
    of_places = f", {places} of places among them, which are shown instead" if places else ""
    false, days, where = _false_rate(results, name, EXCLUDED)
    rate, bound = (false / days if days else float("inf")), rate_bound(false, days)
    verdict = _verdict(one.recall >= _RECALL and rate <= EXCLUSION_BUDGET, one.incidents)
    if verdict is Verdict.MET and days < ENOUGH_FLEET_DAYS:
        verdict = Verdict.BOUND
    words = (
        f"{one.found} of {one.incidents} excluded{of_places}, {share(plain(one.recall))}"
        f" ({span(plain(one.recall_interval))}), {one.covered} more came while theirs stood"
        f" excluded for an earlier one; of all {every.incidents}, traceless ones too,"
        f" {share(plain(every.recall))}; {false} false exclusions in {days:.1f} healthy"
        f" days of 500 GPUs ({where}): at most {number(plain(bound))} a day"
    )
    asked = "faults that leave a trace: recall ≥ 0.90 at ≤ 0.03 false exclusions a day on 500 GPUs"
    return Bar(asked, name, "simulated", verdict, words)


def _advice_bar(results: Results, name: str, traces: list[Trace]) -> Bar:
    one = operating(traces, SUSPECT, results.options.seed)
    false, days, where = _false_rate(results, name, SUSPECT)
    bound = rate_bound(false, days)
    precision = ", ".join(
        f"{share(plain(base * one.recall / (base * one.recall + bound)))} at {base:g}"
        for base in BASE_RATES
        if one.incidents
    )
    words = (
        f"{one.found} of {one.incidents} shown, {share(plain(one.recall))}; {false} false in"
        f" {days:.1f} healthy days ({where}), at most {number(plain(bound))} a day; precision at"
        f" least {precision or '–'} faults a day"
    )
    asked = f"advice: recall, and precision, beside a budget of {ADVICE_BUDGET:g} false a day"
    return Bar(asked, name, "simulated", Verdict.NO_BAR, words)


def _sudden_bar(results: Results, traces: list[Trace]) -> Bar:
    one = operating(traces, SUSPECT, results.options.seed)
    words = f"{one.ahead} of {one.incidents} flagged before they began"
    verdict = _verdict(one.ahead <= _TOO_EARLY * one.incidents, one.incidents)
    return Bar("no precursors: lead about 0", NO_PRECURSORS, "simulated", verdict, words)


def _score_bars(results: Results) -> list[Bar]:
    bars: list[Bar] = []
    if results.scored("score-shipped") is None and results.scored("score-retrained") is None:
        return bars
    for one in contests(results, EXCLUSION_BUDGET):
        fusion = one.best_fusion
        if fusion is None:
            continue
        rival, recall = one.best_baseline
        lead = fusion[1] - recall
        words = (
            f"{fusion[0]} {share(fusion[1])}, best baseline {rival} {share(recall)}:"
            f" {100 * lead:+.0f} points"
        )
        verdict = _verdict(lead >= _POINTS, one.entrants[fusion[0]].incidents)
        asked = "fusion beats the best baseline at equal budget by ≥ 15 points"
        bars.append(Bar(asked, one.group, "simulated", verdict, words))
    return [*bars, *_unseen_bars(results), *_calibration_bars(results)]


def _unseen_bars(results: Results) -> list[Bar]:
    found = list(left_out_figures(results, "left-out-mechanisms").values())
    incidents = sum(one.alone.incidents for one in found)
    if not incidents:
        return []
    alone = sum(one.alone.found for one in found)
    floor = sum(one.floor.found for one in found)
    words = (
        f"with the rules {floor} of {incidents} ({share(floor / incidents)}), the score alone"
        f" {alone} ({share(alone / incidents)})"
    )
    verdict = _verdict(floor >= _UNSEEN_RECALL * incidents, incidents)
    return [Bar("mechanism left out: recall ≥ 0.60", OTHER_SEEDS, "simulated", verdict, words)]


def _calibration_bars(results: Results) -> list[Bar]:
    bars = []
    for name, one in calibrations(results).items():
        if not (name.startswith((SECOND, OTHER_SEEDS)) and one.positive):
            continue
        judged, off = off_bins(one.bins)
        met = one.skill is not None and one.skill > 0 and not off
        words = (
            f"skill {number(one.skill)}, of the bare score {number(one.bare_skill)},"
            f" {len(judged) - len(off)} of {len(judged)} bins"
        )
        verdict = _verdict(met, max(b.incidents for b in one.bins))
        asked = "calibration: Brier skill > 0, risk bins within 0.10"
        bars.append(Bar(asked, name, "simulated", verdict, words))
    return bars


def _exclusion_bars(results: Results) -> list[Bar]:
    exclusion = results.exclusion()
    if exclusion is None:
        return []
    met, words = exclusion_bar(exclusion)
    asked = "slow rank at least as precise as the same-part rule at equal flags"
    verdict = Verdict.MET if met else Verdict.NOT_MET
    return [Bar(asked, "Titan", "public data", verdict, words)]
