"""The whole system in the report: sets, classes, confounders, sampling interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from gpuwarden_models.evaluation.budgets import (
    BASE_RATES,
    ENOUGH_FLEET_DAYS,
    ClassFigures,
    Operating,
    operating,
)
from gpuwarden_models.evaluation.plain import duration, fixed, number, plain, share, span, table
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.sets import OTHER_SEEDS, SECOND, Recipe, Use
from gpuwarden_models.evaluation.traces import EXCLUDED, SUSPECT, IncidentTrace, Trace

SYSTEM, RULES = "rules and learnt scores, gate open", "rules alone"


def system_page(results: Results) -> tuple[str, dict[str, Any]]:
    """Markdown and figures."""
    groups = results.groups(Use.TUNE, Use.TEST, Use.HEALTHY)
    found = {
        name: {height: _both(results, some, height) for height in (SUSPECT, EXCLUDED)}
        for name, some in groups.items()
    }
    excluded = {name: both[EXCLUDED] for name, both in found.items()}
    suspect = {name: both[SUSPECT] for name, both in found.items()}
    parts = [
        "## The whole system (simulated)",
        "Recordings played through the judge that the server runs, in act mode, caps off, the"
        " learnt scores' gate open, but for the planes that it asks of each risk. Readings come"
        " from exporters as a recording keeps them. A fault counts as found where a flag of its"
        " entity or node began in it, from its precursor until its end; what stood before finds"
        " nothing, and is false, save where it began rightly, for an earlier fault: nobody repairs"
        " what a recording excludes. Such faults are left out, and told as (+n). A fault leaves a"
        " trace where the program that made it up changed anything that is read or logged, noticed"
        ' or not. "Real background":'
        " healthy GPUs show readings of real H100 (public data), spliced into simulated ones.",
        f"### Excluded\n\n{_sets(excluded)}",
        f"### Shown as suspect or excluded\n\n{_sets(suspect)}",
        _false_words(),
        _classes(results),
        _confounders(results, groups),
    ]
    if results.options.sizes.curve_intervals_s:
        parts.append(_curve(results))
    return "\n\n".join(parts), {
        "excluded": plain(excluded),
        "suspect": plain(suspect),
        "curve": _curve_figures(results),
    }


def system_traces(results: Results, some: Sequence[Recipe]) -> list[Trace]:
    """What the whole system made of some recordings."""
    return [results.played(one.name).system for one in some]


def hard(traces: Sequence[Trace]) -> list[IncidentTrace]:
    """Faults with a kernel line that acts alone, but those of what stood excluded already."""
    all_of = (one for trace in traces for one in trace.incidents)
    return [one for one in all_of if one.line_at is not None and one.covered < EXCLUDED]


def hard_delays(traces: Sequence[Trace]) -> list[float]:
    """From the kernel line to the exclusion, seconds; negative where it was excluded before."""
    return [
        at - one.line_at
        for one in hard(traces)
        if one.line_at is not None and (at := one.first_alarm(EXCLUDED)) is not None
    ]


def _both(results: Results, some: Sequence[Recipe], height: float) -> dict[str, Operating]:
    seed = results.options.seed
    rules = [results.played(one.name).rules for one in some]
    return {
        SYSTEM: operating(system_traces(results, some), height, seed),
        RULES: operating(rules, height, seed),
    }


def _sets(found: Mapping[str, Mapping[str, Operating]]) -> str:
    columns = (
        *("set", "by", "faults", "found", "recall (95 %)", "ahead", "delay"),
        *("false", "healthy days of 500 GPUs", "false a day", "bound"),
        *(f"precision at {rate:g} faults a day" for rate in BASE_RATES),
    )
    rows = [
        (name, by, *operating_cells(one))
        for name, both in found.items()
        for by, one in both.items()
    ]
    return table(columns, rows)


def operating_cells(one: Operating) -> tuple[str, ...]:
    """One scorer on one set, as cells."""
    known = one.fleet_days >= ENOUGH_FLEET_DAYS
    precision = [
        f"{share(rate)} (at least {share(floor)})" if known else f"at least {share(floor)}"
        for rate, floor in zip(plain(one.precision), plain(one.precision_floor), strict=True)
    ]
    return (
        f"{one.incidents} (+{one.covered})" if one.covered else str(one.incidents),
        str(one.found),
        f"{share(plain(one.recall))} ({span(plain(one.recall_interval))})",
        str(one.ahead),
        duration(one.median_delay_s),
        str(one.false),
        fixed(one.fleet_days, 1),
        fixed(plain(one.false_a_day), 3) if known else "bound only",
        number(plain(one.false_bound)),
        *(precision if one.incidents else ("–",) * len(BASE_RATES)),
    )


def _false_words() -> str:
    return (
        "False: flags that no fault explains, a day on 500 GPUs; the bound is the exact upper 95 %"
        f" Poisson one. With fewer than {ENOUGH_FLEET_DAYS:g} healthy days of 500 GPUs only the"
        " bound is told. Confounders come densely in all sets but the nearly healthy one, so false"
        " rates there are higher than in life. Precision is told at published rates of faults,"
        " never at that of the recording. Delay: of faults that do not announce themselves, from"
        " the moment action is needed."
    )


def _classes(results: Results) -> str:
    groups = results.groups(Use.TEST)
    parts = ["### By class and by mechanism, excluded"]
    for name in (OTHER_SEEDS, SECOND):
        if name not in groups:
            continue
        one = operating(system_traces(results, groups[name]), EXCLUDED, results.options.seed)
        if one.incidents:
            parts.append(f"{name.capitalize()}\n\n{class_table(one.by_class)}")
            parts.append(class_table(one.by_mechanism))
            shown = operating(system_traces(results, groups[name]), SUSPECT, results.options.seed)
            parts.append(f"{name.capitalize()}, shown as suspect\n\n{class_table(shown.by_class)}")
    parts.append(
        "Lead is told beside chance: that a healthy entity has a false alarm of that height in a"
        " window as long as the class has warning. A lead without that proves nothing."
    )
    return "\n\n".join(parts)


def class_table(found: Mapping[str, ClassFigures]) -> str:
    """Classes or mechanisms."""
    columns = ("", "faults", "found", "95 %", "ahead", "median lead", "window", "chance ahead")
    rows = [
        (name, one.incidents, one.found, span(plain(one.recall_interval)), one.ahead,
         duration(one.median_lead_s), duration(one.window_s), share(plain(one.chance_ahead), 3))
        for name, one in found.items()
    ]  # fmt: skip
    return table(columns, rows)


def _confounders(results: Results, groups: Mapping[str, Sequence[Recipe]]) -> str:
    all_of, wrong = Counter[str](), Counter[str]()
    for one in (one for some in groups.values() for one in some):
        played = results.played(one.name)
        all_of.update(played.confounders)
        wrong.update(played.confounders_excluded)
    rows = [(name or "unnamed", count, wrong[name]) for name, count in sorted(all_of.items())]
    return (
        "### What must not lead to an exclusion\n\n"
        + table(("confounder", "labels", "excluded"), rows)
        + "\n\nA label may be touched by the exclusion that another cause made in its node."
    )


def _curve_rows(results: Results) -> list[tuple[float, Operating, list[float], int]]:
    rows = []
    for seconds in results.options.sizes.curve_intervals_s:
        traces = [results.point(seconds).system]
        at = operating(traces, EXCLUDED, results.options.seed)
        rows.append((seconds, at, hard_delays(traces), len(hard(traces))))
    return rows


def _curve(results: Results) -> str:
    sizes = results.options.sizes
    rows = []
    for seconds, one, delays, lines in _curve_rows(results):
        leads = [c.median_lead_s for c in one.by_mechanism.values() if c.ahead and c.median_lead_s]
        rows.append(
            (f"{seconds:g} s", one.incidents, one.found,
             f"{share(plain(one.recall))} ({span(plain(one.recall_interval))})", one.ahead,
             duration(median(leads) if leads else None), duration(one.median_delay_s),
             f"{duration(median(delays) if delays else None)} ({lines})", one.false,
             number(plain(one.false_bound)))
        )  # fmt: skip
    columns = (
        *("interval", "faults", "excluded", "recall (95 %)", "ahead", "median lead"),
        *("delay", "from the kernel line (faults with one)", "false", "bound a day"),
    )
    return (
        f"### Quality and delay against the sampling interval\n\n{sizes.curve_nodes} nodes,"
        f" {sizes.curve_hours:g} h, dense faults, the same at every interval, as agents send them."
        " Delays are those of the judge: transport comes on top. A negative one was excluded before"
        " its line came.\n\n"
        f"{table(columns, rows)}"
    )


def _curve_figures(results: Results) -> dict[str, object]:
    return {
        f"{seconds:g}": {
            "excluded": plain(one),
            "median_delay_from_line_s": median(delays) if delays else None,
            "with_a_line": lines,
        }
        for seconds, one, delays, lines in _curve_rows(results)
    }
