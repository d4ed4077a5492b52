"""The report as one HTML file: no script, no font and no picture from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.report import Played, Report, count_rungs, word
from gpuwarden_models.backtest.scores import Rate, Scores
from gpuwarden_models.backtest.timeline import alarms_chart, timeline_chart
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.guards import guard_words

MOST_FLAGS = 500
"""Rows of the table; the JSON form has all."""
_STYLE = """
:root { color-scheme: light; }
body { font: 14px/1.45 system-ui, sans-serif; color: #1d2430; background: #fff;
  margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p.note { color: #5a6473; margin: .2rem 0 .8rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { border: 1px solid #d8dde5; border-radius: 6px; padding: .6rem .9rem; min-width: 8.5rem; }
.card b { display: block; font-size: 1.35rem; } .card span { color: #5a6473; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #e6e9ee;
  vertical-align: top; } th { color: #5a6473; font-weight: 600; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.w { word-break: break-word; }
.rung { border-radius: 3px; padding: 0 .35rem; color: #fff; white-space: nowrap; }
.suspect { background: #b7791f; } .exclude { background: #c0392b; }
.drain { background: #922b21; } .evict { background: #641e16; }
svg { display: block; max-width: 100%; } svg text { font: 11px system-ui, sans-serif; }
ul.blind { padding-left: 1.1rem; } .key { display: inline-block; width: .8rem; height: .8rem;
  border-radius: 2px; vertical-align: -1px; margin: 0 .3rem 0 .9rem; }
"""


def page(report: Report) -> str:
    """The whole page."""
    played = report.played
    title = f"Backtest of {played.source}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{moment(played.start)} to {moment(played.end)} UTC, every'
        f" {played.interval_s:g} s; policy {escape(report.policy_version)} in act mode;"
        f" {_model(report)}</p>",
        _cards(report),
        *_scores(report.scores),
        "<h2>Timeline</h2>",
        _legend(report.scores is not None),
        timeline_chart(report),
        "<h2>Alarms a day</h2>",
        alarms_chart(report),
        "<h2>By fault class</h2>",
        _classes(report),
        "<h2>What could not be seen</h2>",
        _blind(report),
        f"<h2>Flags ({len(report.flags)})</h2>",
        _flags(report.flags),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def moment(at: float) -> str:
    """A time, to the minute, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _model(report: Report) -> str:
    if not report.model_version:
        return "rules alone"
    return f"learnt score {escape(report.model_version)} with its gate open"


def _cards(report: Report) -> str:
    played = report.played
    excluded = count_rungs(report.flags, Rung.EXCLUDE)
    days = max((played.end - played.start) / 86400.0, 1e-9)
    shown = (
        (f"{played.nodes:,}", "nodes"),
        (f"{played.gpus:,}", "GPUs"),
        (f"{played.gpu_days:,.1f}", "GPU-days"),
        (f"{len(report.flags):,}", "flags"),
        (f"{excluded:,}", "of these excluded"),
        (f"{len(report.flags) / days:,.2f}", "flags a day"),
        (_speed(played), "times real time"),
    )
    cards = (f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in shown)
    return f'<div class="cards">{"".join(cards)}</div>'


def _speed(played: Played) -> str:
    return f"{(played.end - played.start) / max(played.cpu_s, 1e-9):,.0f}"


def _scores(scores: Scores | None) -> list[str]:
    if scores is None:
        return []
    faults = len(scores.outcomes)
    hits = sum(one.flagged_at is not None for one in scores.outcomes)
    rows = [
        ("Faults with a flag that began in them", f"{hits} of {faults}"),
        ("False alarms", _rate(scores.false_alarms)),
        ("False exclusions", _rate(scores.false_exclusions)),
        (
            "Confounders excluded",
            f"{scores.confounders_excluded} of {scores.confounders}"
            f" ({scores.confounders_flagged} shown as suspect)",
        ),
    ]
    if scores.stood_before:
        rows.append(("Missed, with a flag that began too early", str(scores.stood_before)))
    if scores.not_judged:
        rows.append(("Labels outside the recorded time", str(scores.not_judged)))
    table = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return ["<h2>Against the labels</h2>", f"<table>{table}</table>", _class_scores(scores)]


def _rate(rate: Rate) -> str:
    return (
        f"{rate.count} in {rate.days:,.1f} healthy GPU-days: {_number(rate.a_day)} a GPU-day,"
        f" at most {_number(rate.bound_a_day)} with 95 % confidence"
    )


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "unknown"


def _class_scores(scores: Scores) -> str:
    head = (
        "Fault class", "Faults", "Flagged", "Excluded", "Ahead", "Median lead", "Window",
        "Healthy windows flagged", "False alarms",
    )  # fmt: skip
    rows = [
        (
            name,
            str(one.labels),
            str(one.flagged),
            str(one.excluded),
            str(one.ahead),
            "" if one.median_lead_s is None else duration(one.median_lead_s),
            duration(one.window_s),
            f"{one.healthy_flagged} of {one.healthy_windows}",
            str(one.false_alarms),
        )
        for name, one in scores.by_class.items()
    ]
    note = (
        '<p class="note">Ahead: flagged before action was needed. Beside it stands how many windows'
        " of the same length on healthy GPUs hold a flag of that class: a lead is worth as much as"
        " it exceeds that. A negative lead is a flag after action was needed.</p>"
    )
    return note + _table(head, rows, numeric_from=1)


def duration(seconds: float) -> str:
    """A time in the unit that reads best."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:z.0f} s"


def _legend(labelled: bool) -> str:
    keys = [("suspect", "#b7791f"), ("exclude", "#c0392b"), ("drain or evict", "#922b21")]
    if labelled:
        keys += [("labelled fault", "#f3c1bb"), ("labelled confounder", "#dfe3e9")]
    spans = (f'<span class="key" style="background:{c}"></span>{n}' for n, c in keys)
    return f'<p class="note">{"".join(spans)}</p>'


def _classes(report: Report) -> str:
    rungs = [word(rung) for rung in Rung if rung >= Rung.SUSPECT]
    rows = [
        (name, *(str(counts.get(rung, 0)) for rung in rungs))
        for name, counts in report.by_class().items()
    ]
    if not rows:
        return '<p class="note">Nothing was flagged.</p>'
    return _table(("Fault class", *rungs), rows, numeric_from=1)


def _blind(report: Report) -> str:
    if not report.blind:
        return '<p class="note">Every plane had readings.</p>'
    items = (
        f"<li><b>{escape(one.plane)}</b>: {escape(one.why)}. {escape(one.mend)}.</li>"
        for one in report.blind
    )
    return f'<ul class="blind">{"".join(items)}</ul>'


def _flags(flags: Sequence[Flag]) -> str:
    if not flags:
        return '<p class="note">Nothing was flagged.</p>'
    rows = "".join(_flag_row(flag) for flag in flags[:MOST_FLAGS])
    more = len(flags) - MOST_FLAGS
    note = f'<p class="note">{more} more are in the JSON form.</p>' if more > 0 else ""
    head = "".join(
        f"<th>{name}</th>" for name in ("Entity", "Class", "Rung", "From", "For", "Risk", "Why")
    )
    return f"<table><tr>{head}</tr>{rows}</table>{note}"


def _flag_row(flag: Flag) -> str:
    rung = word(flag.rung)
    gated = word(flag.rung_gated)
    shown = f'<span class="rung {rung}">{rung}</span>'
    if gated != rung:
        shown += f"<br>{gated} with the gate closed"
    if flag.held_back:
        shown += f"<br>held back: {escape(guard_words(flag.held_back))}"
    where = f"<br>{escape(flag.name.node)}" if flag.name.node != flag.name.entity else ""
    why = "<br>".join(escape(reason) for reason in flag.reasons)
    cells = (
        f'<td class="w">{escape(flag.name.kind)} {escape(flag.name.entity)}{where}</td>',
        f"<td>{flag.fault_class.value}</td>",
        f"<td>{shown}</td>",
        f"<td>{moment(flag.first_flagged_at)}</td>",
        f"<td>{duration(flag.last_flagged_at - flag.first_flagged_at)}</td>",
        f'<td class="n">{flag.risk:.2f}</td>',
        f'<td class="w">{why}</td>',
    )
    return f"<tr>{''.join(cells)}</tr>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric_from: int) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place >= numeric_from else ''}>{escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"
