"""What holds for all tests.

Figures that tests measure stand at the end of the run, also where workers ran the tests: a test
hands them over with `record_property("figure", text)`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is. What is slow is found by benchmarks.
settings.register_profile("by_outcome", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("by_outcome")

PROCESS_TESTS = {"integration", "e2e", "scenario"}
"""Folders of tests that start processes, open sockets and wait for clocks."""


@pytest.fixture(scope="module", autouse=True)
def leave_nothing_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A socket or file that a module left open fails that module, not whatever runs later."""
    yield
    if request.path.relative_to(Path(__file__).parent).parts[0] in PROCESS_TESTS:
        gc.collect()
        gc.freeze()  # what lives on is mostly imports: look at them once, not 0.3 s each time


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    figures = [
        str(value)
        for report in terminalreporter.stats.get("passed", [])
        if report.when == "call"
        for name, value in report.user_properties
        if name == "figure"
    ]
    if figures:
        terminalreporter.section("measured")
        for figure in figures:
            terminalreporter.write_line(figure)
