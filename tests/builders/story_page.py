"""docs/stories.md: each story with what must never happen and what was concluded, and when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gpuwarden_verdict.engine.domain import StateMove
from gpuwarden_verdict.incidents.domain import IncidentMove
from gpuwarden_verdict.policy.document import DecisionMove
from tests.builders.stories import START, StoryFleet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stories.md"
_CELL = 200
HEAD = """# Stories

What gpuwarden concludes in situations that made its peers cordon sound machines, or miss a fault.
Each is told to the whole judge in the agent's wire format on a fake clock, as a test; the tables
are what came out. The fleets are simulated. Written by `python docs/generate_stories.py`.

"""


@dataclass(frozen=True)
class Story:
    """One story.

    Attributes:
        number: Its place on the page.
        title: In a few words.
        told: What happens, in a sentence or two.
        tell: Tells it, and gives the fleet as it is at the end.
    """

    number: int
    title: str
    told: str
    tell: Callable[[], StoryFleet]


def section_of(story: Story, fleet: StoryFleet) -> str:
    """A story's part of the page."""
    bans = "".join(f"- never: {ban.words}\n" for ban in fleet.bans)
    rows = "".join(f"| {at} | {whom} | {what} |\n" for at, whom, what in _rows(fleet))
    table = (
        f"| after | who | what is concluded |\n|---|---|---|\n{rows}"
        if rows
        else ("Nothing is concluded, and nothing is to be.\n")
    )
    return f"## {story.number}. {story.title}\n\n{story.told}\n\n{bans}\n{table}\n"


def assert_documented(story: Story, fleet: StoryFleet) -> None:
    """The page says of the story what has just happened."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    section = section_of(story, fleet)
    assert section.strip() in page, (
        "docs/stories.md tells it otherwise: run `python docs/generate_stories.py`, and read what"
        f" changed:\n{section}"
    )


@dataclass(frozen=True)
class _Line:
    at: float
    whom: str
    what: str


def _rows(fleet: StoryFleet) -> Iterator[tuple[str, str, str]]:
    lines = [_line(move) for move in fleet.engine.moves]
    lines.sort(key=lambda line: line.at)
    alike = groupby(_merged(lines), key=lambda line: (line.at, line.what))
    for (at, what), found in alike:
        names = [line.whom for line in found]
        whom = names[0] if len(names) == 1 else f"{len(names)} ({names[0]} …)"
        yield _clock(at - START), whom, what


def _merged(lines: Sequence[_Line]) -> list[_Line]:
    """Lines of one moment that say the same of many entities side by side."""
    return sorted(
        lines, key=lambda line: (line.at, _ORDER[line.what.split()[0]], line.what, line.whom)
    )


def _line(move: IncidentMove | DecisionMove | StateMove) -> _Line:
    match move:
        case IncidentMove():
            one = move.incident
            word = f"incident {one.fault_class.value} {one.phase.value}"
            said = _without(move.reason, one.entity.key)
            return _Line(move.at, one.entity.key, _cell(f"{word}: {said}"))
        case DecisionMove():
            decided = move.decision
            word = f"decision {decided.rung.name.lower()} {decided.phase.value}"
            said = _without(move.reason, decided.entity.key)
            return _Line(move.at, decided.entity.key, _cell(f"{word}: {said}"))
        case StateMove():
            word = f"state {move.before.state.value} to {move.after.state.value}"
            return _Line(move.after.since, move.entity.key, word)


_ORDER = {"incident": 0, "decision": 1, "state": 2}
_OWN = re.compile(r" at [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0| \(pid \d+\)")
"""What differs from GPU to GPU: "on GPU-n000-0 at 0000:0a:00.0 in python3 (pid 5111)"."""
_DECISION = re.compile(r"\bdec-[0-9a-f]{12}\b")
"""Numbers follow the order in which targets are judged, which is no part of a story."""


def _without(text: str, name: str) -> str:
    told = _OWN.sub("", text.replace(name, "it").replace("GPU it", "it"))
    return _DECISION.sub("another", told)


def _cell(text: str) -> str:
    flat = " ".join(text.replace("|", "/").split())
    return flat if len(flat) <= _CELL else f"{flat[: _CELL - 1]}…"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock
