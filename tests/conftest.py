"""Figures that tests measure stand at the end of the run, also where workers ran the tests.

A test hands them over with `record_property("figure", text)`.
"""

from __future__ import annotations

import pytest


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
