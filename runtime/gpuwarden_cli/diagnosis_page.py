"""A diagnosis as one HTML file for whoever owns the culprit: nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1d2430; background: #fff;
  margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p.note { color: #5a6473; margin: .2rem 0 .8rem; } p.line { font-size: 1.05rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #e6e9ee;
  vertical-align: top; } th { color: #5a6473; font-weight: 600; }
td.n { text-align: right; white-space: nowrap; }
svg { display: block; max-width: 100%; } svg text { font: 11px system-ui, sans-serif; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
  vertical-align: -1px; margin: 0 .3rem 0 .9rem; }
"""
_COLOURS: Mapping[str, str] = {
    "load": "#4c78a8",
    "compute": "#54a24b",
    "save": "#b279a2",
    "stalled": "#c0392b",
    "idle": "#c9ced6",
    "unknown": "#f1f3f6",
}
_WIDTH, _LEFT, _ROW = 1040, 130, 46
_MOST_NODES = 60


def diagnosis_page(told: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        told: What POST /v1/diagnoses answers.
    """
    whose = told["job"] or "the fleet"
    title = f"Where {whose} is slow"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{_moment(told["begin"])} to {_moment(told["end"])}, compared with what'
        f" was since {_moment(told['past'])}; {told['nodes']} nodes were read</p>",
        f'<p class="line">{escape(told["line"])}</p>',
        *_chart(told),
        *(_culprit(one) for one in told["culprits"]),
        "<h2>What it is not</h2>",
        _rows(("plane", "why"), ((one["what"], one["sentence"]) for one in told["acquitted"])),
        "<h2>What could not be seen</h2>",
        _rows(("", "what"), (("", words) for words in _blind(told))),
        '<p class="note">Made by gpuwarden. A diagnosis blames parts for slowness and excludes'
        " none.</p>",
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _blind(told: Mapping[str, Any]) -> list[str]:
    left_out = told["nodes_left_out"]
    return [*told["blind"], *([f"{left_out} further nodes"] if left_out else [])]


def _culprit(one: Mapping[str, Any]) -> str:
    hit = one["hit_nodes"]
    more = f" and {len(hit) - _MOST_NODES} more" if len(hit) > _MOST_NODES else ""
    return "\n".join(
        (
            f"<h2>{escape(one['words'])}: score {one['score']:.2f}</h2>",
            f'<p class="note">{_moment(one["since"])} to {_moment(one["until"])};'
            f" {escape(one['scale']['sentence'])}</p>",
            _rows(
                ("what speaks for it", "numbers"),
                (
                    (link["sentence"], ", ".join(_numbers(link["numbers"])))
                    for link in one["evidence"]
                ),
            ),
            f"<p>Hit: {escape(', '.join(hit[:_MOST_NODES]))}{more}</p>",
        )
    )


def _numbers(numbers: Mapping[str, float | None]) -> Iterable[str]:
    return (f"{name} {value:.4g}" for name, value in numbers.items() if value is not None)


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    if not cells:
        return "<p>Nothing.</p>"
    return f"<table><tr>{''.join(f'<th>{escape(one)}</th>' for one in head)}</tr>{cells}</table>"


def _chart(told: Mapping[str, Any]) -> list[str]:
    """One time axis: phases, and a strip each of effort, pace, reading and writing."""
    phases = told["phases"]
    if phases is None:
        return []
    strips = (
        ("GPU effort", phases["effort"], 1.0),
        ("pace", phases["pace"], 1.2),
        ("read, GB/s", [_giga(v) for v in phases["read_bytes"]], None),
        ("written, GB/s", [_giga(v) for v in phases["written_bytes"]], None),
    )
    height = 30 + _ROW * len(strips) + 24
    drawn = [_phase_row(phases)]
    drawn += [_strip(60 + _ROW * n, *one) for n, one in enumerate(strips)]
    marks = [_mark(told["culprits"][0], phases, height)] if told["culprits"] else []
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{name}'
        for name, colour in _COLOURS.items()
    )
    return [
        f'<svg viewBox="0 0 {_WIDTH + _LEFT} {height + 30}" role="img" aria-label="phases and'
        f' strips">{"".join((*marks, *drawn))}'
        f'<text x="{_LEFT}" y="{height + 20}">{_moment(phases["times"][0])}</text>'
        f'<text x="{_LEFT + _WIDTH}" y="{height + 20}" text-anchor="end">'
        f"{_moment(phases['times'][-1])}</text></svg>",
        f'<p class="note">{keys}; shaded: the first culprit\'s time</p>',
    ]


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def _phase_row(phases: Mapping[str, Any]) -> str:
    width = _WIDTH / len(phases["phase"])
    boxes = (
        f'<rect x="{_LEFT + n * width:.1f}" y="8" width="{width + 0.3:.1f}" height="22"'
        f' fill="{_COLOURS.get(name, "#fff")}"/>'
        for n, name in enumerate(phases["phase"])
    )
    return f'<text x="0" y="24">phase</text>{"".join(boxes)}'


def _strip(top: int, name: str, values: Sequence[float | None], most: float | None) -> str:
    read = [value for value in values if value is not None]
    full = most or max(read, default=0.0) or 1.0
    width, tall = _WIDTH / max(1, len(values)), _ROW - 14
    bars = (
        f'<rect x="{_LEFT + n * width:.1f}" y="{top + tall * (1 - min(1.0, value / full)):.1f}"'
        f' width="{width + 0.3:.1f}" height="{tall * min(1.0, value / full):.1f}" fill="#6b7a90"/>'
        for n, value in enumerate(values)
        if value is not None
    )
    return f'<text x="0" y="{top + tall}">{escape(name)}, to {full:.3g}</text>{"".join(bars)}'


def _mark(culprit: Mapping[str, Any], phases: Mapping[str, Any], height: int) -> str:
    first, step_s, count = phases["times"][0], phases["step_s"], len(phases["times"])
    begin, end = (
        min(1.0, max(0.0, (culprit[one] - first) / (count * step_s))) for one in ("since", "until")
    )
    return (
        f'<rect x="{_LEFT + begin * _WIDTH:.1f}" y="0" width="{(end - begin) * _WIDTH:.1f}"'
        f' height="{height}" fill="#fdecea"/>'
    )
