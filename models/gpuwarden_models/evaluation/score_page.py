"""Learnt scores and baselines in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwarden_models.evaluation.budgets import (
    ADVICE_BUDGET,
    BASE_RATES,
    EXCLUSION_BUDGET,
    Operating,
    operating,
    threshold_for,
)
from gpuwarden_models.evaluation.calibration import Calibration, off_bins, summed
from gpuwarden_models.evaluation.contest import Contest, contests
from gpuwarden_models.evaluation.plain import fixed, plain, share, span, table
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.row_traces import joined
from gpuwarden_models.evaluation.sets import OTHER_SEEDS, Use
from gpuwarden_models.evaluation.system_page import operating_cells
from gpuwarden_models.evaluation.traces import EXCLUDED, Trace
from gpuwarden_verdict.signals import Plane

NOVEL = 1.0
"""Distance from which a row is unlike anything learnt from."""

_COLUMNS = (
    *("by", "faults", "found", "recall (95 %)", "ahead", "delay", "false"),
    *("healthy days of 500 GPUs", "false a day", "bound"),
    *(f"precision at {rate:g} faults a day" for rate in BASE_RATES),
)


def score_page(results: Results) -> tuple[str, dict[str, Any]]:
    """Markdown and figures; nothing without a learnt score."""
    if results.scored("score-shipped") is None and results.scored("score-retrained") is None:
        return "", {}
    strict, lax = contests(results, EXCLUSION_BUDGET), contests(results, ADVICE_BUDGET)
    parts = [
        "## Learnt scores against baselines (simulated)",
        "All score the same recordings; the threshold of each, and which rules of a rule set count,"
        " were chosen on the tuning recordings for the same budget of false alarms. A budget that"
        " allows less than one false alarm in all of the tuning time allows none. A false alarm is"
        " an entity and day without a fault.",
        _told(results),
        *(_contest(one) for one in (*strict, *lax)),
    ]
    left, left_figures = _left_out(results)
    ablation, ablation_figures = _ablation(results)
    parts += [*left, *ablation, *_calibrations(results)]
    return "\n\n".join(parts), {
        "contests": [
            {"set": one.group, "budget": one.budget, "entrants": plain(one.entrants)}
            for one in (*strict, *lax)
        ],
        "left_out": left_figures,
        "ablation": ablation_figures,
        "calibration": {name: plain(one) for name, one in calibrations(results).items()},
    }


def _told(results: Results) -> str:
    single = results.scored("score-single")
    words = f" Best single threshold: {single.told}." if single is not None else ""
    return (
        "The open rule set is written from a published summary of its groups, not from its code."
        " All look equally often: what a rule said, or a score, is known at the next look, every 10"
        " min, so delays here are those of the looks; the whole system above is swept at each"
        " reading. At the exclusion budget the shipped score counts where as many planes support it"
        f" as its gate asks for.{words}"
    )


def _contest(one: Contest) -> str:
    rows = [(name, *operating_cells(found)) for name, found in one.entrants.items()]
    title = f"{one.group.capitalize()}, budget {one.budget:g} false a day on 500 GPUs"
    return f"### {title}\n\n{table(_COLUMNS, rows)}"


@dataclass(frozen=True, slots=True)
class Unseen:
    """What was left out of the training, in the test.

    Attributes:
        alone: The learnt score alone.
        floor: With what the rules exclude.
        shown: With novelty too, which shows as suspect and excludes nothing.
    """

    alone: Operating
    floor: Operating
    shown: Operating


def left_out_figures(results: Results, step: str) -> dict[str, Unseen]:
    """By what was left out: its faults only."""
    found: dict[str, Unseen] = {}
    by = "mechanism" if step == "left-out-mechanisms" else "fault_class"
    seed, novelty = results.options.seed, results.scored("score-novelty")
    for word, one in results.left_out(step).items():
        limit = min(one.threshold, 1.5)
        alone = [_only(trace, by, word) for trace in one.traces.values()]
        floor = [
            _only(joined(trace, results.played(name).rules_at_looks, EXCLUDED), by, word)
            for name, trace in one.traces.items()
        ]
        strange = [
            _only(novelty.traces[name], by, word) if novelty is not None else Trace((), (), 0.0)
            for name in one.traces
        ]
        shown = [joined(trace, more, NOVEL) for trace, more in zip(floor, strange, strict=True)]
        found[word] = Unseen(
            operating(alone, one.threshold, seed),
            operating(floor, limit, seed),
            operating(shown, limit, seed),
        )
    return found


def _only(trace: Trace, by: str, word: str) -> Trace:
    own = tuple(one for one in trace.incidents if getattr(one.incident, by) == word)
    return replace(trace, incidents=own)


def _left_out(results: Results) -> tuple[list[str], dict[str, Any]]:
    parts: list[str] = []
    figures: dict[str, Any] = {}
    for step, title in (
        ("left-out-mechanisms", "One mechanism left out of the training"),
        ("left-out-classes", "A whole class left out of the training (no bar)"),
    ):
        found = left_out_figures(results, step)
        if not found:
            continue
        rows = [
            (word, one.alone.incidents, one.alone.found, share(plain(one.alone.recall)),
             one.floor.found, share(plain(one.floor.recall)), one.shown.found)
            for word, one in found.items()
            if one.alone.incidents
        ]  # fmt: skip
        columns = (
            *("left out", "faults", "score alone", "recall", "with rules", "recall"),
            "with novelty (suspect)",
        )
        parts.append(f"### {title}\n\n{table(columns, rows)}")
        figures[step] = {word: plain(one) for word, one in found.items()}
    return parts, figures


def _ablation(results: Results) -> tuple[list[str], dict[str, Any]]:
    full = results.scored("score-retrained")
    if full is None:
        return [], {}
    tests = [one.name for one in results.groups(Use.TEST).get(OTHER_SEEDS, [])]
    entrants = {"all planes": full.traces}
    for plane in Plane:
        found = results.scored(f"without-{plane.value}")
        if found is not None:
            entrants[f"without {plane.value}"] = found.traces
    figures: dict[str, Any] = {}
    rows = []
    for name, traces in entrants.items():
        cells = []
        for budget in (EXCLUSION_BUDGET, ADVICE_BUDGET):
            one = _tuned(results, traces, tests, budget)
            figures.setdefault(name, {})[f"{budget:g}"] = plain(one)
            cells += [f"{one.found} of {one.incidents}", share(plain(one.recall))]
            cells += [span(plain(one.recall_interval)), str(one.false)]
        rows.append((name, *cells))
    columns = [
        f"{word} at {budget:g}"
        for budget in (EXCLUSION_BUDGET, ADVICE_BUDGET)
        for word in ("found", "recall", "95 %", "false")
    ]
    text = (
        "### Ablation by plane\n\nThe learnt score alone, retrained without a plane's features,"
        f" other seeds.\n\n{table(('', *columns), rows)}"
    )
    return [text], figures


def _tuned(
    results: Results, traces: Mapping[str, Trace], tests: Sequence[str], budget: float
) -> Operating:
    limit = threshold_for([traces[name] for name in results.names(Use.TUNE)], budget)
    return operating([traces[name] for name in tests], limit, results.options.seed)


def calibrations(results: Results) -> dict[str, Calibration]:
    """Of the shipped scores, by set and kind."""
    scored = results.scored("score-shipped")
    found: dict[str, Calibration] = {}
    if scored is None:
        return found
    for group, some in results.groups(Use.TEST).items():
        for kind in results.versions:
            parts = [
                one
                for recipe in some
                if recipe.rows
                and (one := scored.calibration[recipe.name].get(kind)) is not None
                and one.rows
            ]
            if parts:
                found[f"{group}, {kind}"] = summed(parts)
    return found


def _calibrations(results: Results) -> list[str]:
    found = calibrations(results)
    if not found:
        return []
    rows = []
    for name, one in found.items():
        judged, off = off_bins(one.bins)
        rows.append(
            (name, one.rows, one.positive, fixed(one.brier, 5), fixed(one.skill, 3),
             fixed(one.bare_skill, 3),
             f"{len(judged) - len(off)} of {len(judged)}")
        )  # fmt: skip
    columns = ("set, kind", "rows", "need action", "Brier", "skill", "skill of the bare score",
               "bins within 0.10")  # fmt: skip
    bins = [
        (name, f"{b.low:g} to {b.high:g}", b.rows, b.incidents, fixed(b.predicted / b.rows),
         fixed(b.observed / b.rows))
        for name, one in found.items()
        for b in one.bins
        if b.rows
    ]  # fmt: skip
    head = ("set, kind", "probability", "rows", "faults", "predicted", "observed")
    return [
        "### Calibration of the shipped scores\n\nSkill against the base rate of the set, the"
        " chance of faults that show nothing yet added as the tuning recordings have it. Bins from"
        f" 0.1 on with at least 30 faults are judged.\n\n{table(columns, rows)}",
        table(head, bins),
    ]
