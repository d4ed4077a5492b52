"""The whole examination, as a table for people and JSON for programs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.doctor.collectors import look_at_checks, look_at_collectors
from gpuwarden_agent.doctor.finding import Finding, Level, exit_code
from gpuwarden_agent.doctor.folders import look_at_agent, look_at_folders
from gpuwarden_agent.doctor.node import look_at_node
from gpuwarden_agent.doctor.server import look_at_server
from gpuwarden_agent.identity import read_boot_id
from gpuwarden_agent.maintenance import RunFolder
from gpuwarden_wire.version import __version__

_MARKS = {
    Level.FINE: "ok",
    Level.ABSENT: "-",
    Level.WARNING: "WARNING",
    Level.VITAL: "VITAL",
}


def examine(settings: AgentSettings) -> list[Finding]:
    """Look at everything once. No telemetry is sent; nothing of a running agent is touched.

    Raises:
        ConfigError: A name in the settings is unknown.
    """
    note = RunFolder(settings.run_folder).note()
    return [
        *_versions(settings),
        *look_at_agent(note),
        *look_at_node(settings),
        *look_at_collectors(settings, note),
        *look_at_checks(settings),
        *look_at_folders(settings),
        *look_at_server(settings),
    ]


def _versions(settings: AgentSettings) -> Iterator[Finding]:
    yield Finding("versions", "agent", Level.FINE, __version__)
    yield Finding("versions", "Python", Level.FINE, platform.python_version())
    yield Finding("versions", "nvidia-ml-py", Level.FINE, metadata.version("nvidia-ml-py"))
    yield Finding("versions", "kernel", Level.FINE, platform.release())
    boot_id = read_boot_id(settings.proc_root)
    yield Finding("versions", "node", Level.FINE, f"{settings.own_node_id}, boot {boot_id}")


def as_table(findings: list[Finding]) -> str:
    """Aligned text: mark, area, name, what was found; the mend on a line of its own."""
    widths = [
        max(len(column) for column in columns)
        for columns in zip(
            *((_MARKS[one.level], one.area, one.name) for one in findings), strict=True
        )
    ]
    lines: list[str] = []
    for one in findings:
        head = "  ".join(
            text.ljust(width)
            for text, width in zip((_MARKS[one.level], one.area, one.name), widths, strict=True)
        )
        lines.append(f"{head}  {one.says}".rstrip())
        if one.mend:
            lines.append(" " * (sum(widths) + 6) + f"mend: {one.mend}")
    lines.append("")
    lines.append(_summary(findings))
    return "\n".join(lines) + "\n"


def _summary(findings: list[Finding]) -> str:
    vital = sum(one.level is Level.VITAL for one in findings)
    warnings = sum(one.level is Level.WARNING for one in findings)
    if not (vital or warnings):
        return "All is fine."
    return f"{vital} vital, {warnings} warnings."


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """The form that `--json` prints."""
    return {
        "agent_version": __version__,
        "exit_code": exit_code(findings),
        "findings": findings,
    }
