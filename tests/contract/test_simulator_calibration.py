"""The simulator beside published fleets: within the bounds that its page prints."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gpuwarden_models.simulator.calibration import LARGE, QUICK, Marginal, Size, measure

ROOT = Path(__file__).parents[2]


def tell(marginals: tuple[Marginal, ...]) -> None:
    for one in marginals:
        print(f"{one.name:34} {one.published.text:20} {one.simulated:10.3g} {one.published.bounds}")


def outside(size: Size) -> tuple[tuple[Marginal, ...], list[str]]:
    marginals = measure(size)
    tell(marginals)
    return marginals, [one.name for one in marginals if not one.within]


def test_marginals_lie_where_published_ones_do_and_the_page_prints_them() -> None:
    marginals, strangers = outside(QUICK)
    assert strangers == []
    generator = runpy.run_path(str(ROOT / "docs" / "generate_simulator.py"))
    text = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    assert text == generator["page"](text, marginals), "python docs/generate_simulator.py"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_marginals_of_a_larger_fleet_lie_there_too() -> None:
    assert outside(LARGE)[1] == []
