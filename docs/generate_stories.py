"""Writes docs/stories.md: tells every story to the judge and notes what it concludes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.builders.story_page import HEAD, PAGE, Story, section_of  # noqa: E402  # needs the path

FOLDER = ROOT / "tests" / "scenario" / "stories"


def stories() -> list[Story]:
    """All stories, by number."""
    names = sorted(path.stem for path in FOLDER.glob("test_[0-9]*.py"))
    found = [import_module(f"tests.scenario.stories.{name}").STORY for name in names]
    return sorted(found, key=lambda story: story.number)


if __name__ == "__main__":
    PAGE.write_text(HEAD + "".join(section_of(one, one.tell()) for one in stories()), "utf-8")
