"""Figures that tests measure stand at the end of the run, also where workers ran the tests.

A test hands them over with `record_property("figure", text)`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PROCESS_TESTS = {"integration", "e2e", "scenario"}
"""Folders of tests that start processes and wait for clocks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--process-reruns",
        type=int,
        default=0,
        help="How often a failed test of integration, e2e or scenario is run again; each is listed "
        "as RERUN in the summary, and is a race to be mended.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reruns = config.getoption("--process-reruns")
    here = Path(__file__).parent
    for item in items:
        if reruns and item.path.relative_to(here).parts[0] in PROCESS_TESTS:
            item.add_marker(pytest.mark.flaky(reruns=reruns))


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
