from __future__ import annotations

import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from gpuwarden_verdict.policy.document import PoolPolicy

ROOT = Path(__file__).resolve().parents[2]
PAGES = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_equals_its_registry(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name], "run `make docs`"


def test_every_key_of_the_policy_is_documented() -> None:
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(PoolPolicy) if f"| `{field.name}` |" not in text] == []


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    broken = [
        f"{page.name} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
