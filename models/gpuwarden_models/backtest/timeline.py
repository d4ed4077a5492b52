"""The charts of the report, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.report import Report, word
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.entities import Rung

MOST_ROWS = 80
"""Entities in the timeline; those flagged highest come first."""
_LEFT, _WIDTH, _ROW, _RIGHT = 270, 1080, 18, 20
_COLOURS = {Rung.SUSPECT: "#b7791f", Rung.EXCLUDE: "#c0392b"}
_DEEPEST = "#922b21"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Time to pixels."""

    start: float
    end: float

    def x(self, at: float) -> float:
        share = (min(max(at, self.start), self.end) - self.start) / max(self.end - self.start, 1.0)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


@dataclass(frozen=True, slots=True)
class _Row:
    kind: str
    entity: str
    flags: tuple[Flag, ...]
    labels: tuple[LabelRow, ...]


def timeline_chart(report: Report) -> str:
    """One row an entity: its flags over its labels."""
    rows = _rows(report)
    if not rows:
        return '<p class="note">Nothing was flagged.</p>'
    shown = rows[:MOST_ROWS]
    scale = _Scale(report.played.start, report.played.end)
    height = len(shown) * _ROW + 30
    drawn = [_axis(scale, height), *(_drawn(one, n, scale) for n, one in enumerate(shown))]
    note = f'<p class="note">{len(rows) - len(shown)} more entities are in the JSON form.</p>'
    return _svg(height, drawn) + (note if len(rows) > len(shown) else "")


def alarms_chart(report: Report) -> str:
    """Flags by the day on which they began."""
    days = report.alarms_a_day()
    most = max((sum(counts.values()) for counts in days.values()), default=0)
    if not most:
        return '<p class="note">No day had one.</p>'
    height, base, step = 150, 122, (_WIDTH - 60 - _RIGHT) / len(days)
    drawn: list[str] = [f'<text x="8" y="24">{most}</text><text x="8" y="{base}">0</text>']
    every = max(1, len(days) // 10)
    for number, (day, counts) in enumerate(days.items()):
        x, top = 60 + number * step, float(base)
        for rung in (one for one in Rung if one >= Rung.SUSPECT):
            tall = counts.get(word(rung), 0) / most * (base - 16)
            top -= tall
            title = f"<title>{day}: {counts.get(word(rung), 0)} {word(rung)}</title>"
            drawn.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(1.0, min(step - 2, 60)):.1f}"'
                f' height="{tall:.1f}" fill="{_colour(rung)}">{title}</rect>'
            )
        if number % every == 0:
            drawn.append(f'<text x="{x:.1f}" y="{height - 8}" fill="#5a6473">{day}</text>')
    return _svg(height, drawn)


def _rows(report: Report) -> list[_Row]:
    flags: dict[tuple[str, str], list[Flag]] = {}
    for flag in report.flags:
        flags.setdefault((flag.name.kind, flag.name.entity), []).append(flag)
    labels: dict[tuple[str, str], list[LabelRow]] = {}
    if report.scores is not None:
        for outcome in report.scores.outcomes:
            key = outcome.label.entity_kind, outcome.label.entity
            labels.setdefault(key, []).append(outcome.label)
        for label in report.scores.confounding:
            labels.setdefault((label.entity_kind, label.entity), []).append(label)
    keys = flags.keys() | {key for key in labels if report.scores is not None}
    rows = [_Row(*key, tuple(flags.get(key, ())), tuple(labels.get(key, ()))) for key in keys]
    return sorted(rows, key=_rank)


def _rank(row: _Row) -> tuple[int, float, str]:
    rung = max((flag.rung for flag in row.flags), default=Rung.OBSERVE)
    first = min((flag.first_flagged_at for flag in row.flags), default=float("inf"))
    return -rung, first, row.entity


def _drawn(row: _Row, number: int, scale: _Scale) -> str:
    y = 22 + number * _ROW
    name = f"{row.kind} {row.entity}"
    short = name if len(name) <= 42 else f"{name[:20]}…{name[-20:]}"
    parts = [f'<text x="0" y="{y + 11}"><title>{escape(name)}</title>{escape(short)}</text>']
    for label in row.labels:
        colour = "#f3c1bb" if label.action_needed else "#dfe3e9"
        said = f"{label.fault_class.value}, action {'' if label.action_needed else 'not '}needed"
        span = (label.precursor_start, label.end)
        parts.append(_bar(scale, span, y, _ROW - 3, colour, said))
    for flag in row.flags:
        suspect = (flag.first_flagged_at, flag.last_flagged_at)
        parts.append(_bar(scale, suspect, y + 3, 9, _COLOURS[Rung.SUSPECT], _said(flag)))
        if flag.first_excluded_at is not None:
            out = (flag.first_excluded_at, flag.last_flagged_at)
            parts.append(_bar(scale, out, y + 3, 9, _colour(flag.rung), _said(flag)))
    return "".join(parts)


def _said(flag: Flag) -> str:
    why = flag.reasons[0] if flag.reasons else ""
    return f"{flag.fault_class.value}, {word(flag.rung)}: {why}"


def _bar(
    scale: _Scale, span: tuple[float, float], y: float, tall: float, colour: str, said: str
) -> str:
    left, right = scale.x(span[0]), scale.x(span[1])
    return (
        f'<rect x="{left:.1f}" y="{y}" width="{max(2.0, right - left):.1f}" height="{tall}"'
        f' rx="1.5" fill="{colour}"><title>{escape(said)}</title></rect>'
    )


def _axis(scale: _Scale, height: int) -> str:
    parts: list[str] = []
    long = scale.end - scale.start > 2 * 86400.0
    for number in range(6):
        at = scale.start + number / 5 * (scale.end - scale.start)
        x = scale.x(at)
        text = datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M" if long else "%H:%M")
        anchor = "end" if number == 5 else "middle"
        parts.append(
            f'<line x1="{x:.1f}" y1="18" x2="{x:.1f}" y2="{height}" stroke="#e6e9ee"/>'
            f'<text x="{x:.1f}" y="12" text-anchor="{anchor}" fill="#5a6473">{text}</text>'
        )
    return "".join(parts)


def _colour(rung: Rung) -> str:
    return _COLOURS.get(rung, _DEEPEST)


def _svg(height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">'
        f"{''.join(parts)}</svg>"
    )
