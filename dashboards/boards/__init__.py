"""The Grafana dashboards as code; `python -m dashboards.generate` writes their JSON."""

from __future__ import annotations

from dashboards.boards.fleet import fleet
from dashboards.boards.node import node
from dashboards.boards.parts import Json

BOARDS = {"fleet.json": fleet, "node.json": node}
"""File below dashboards/grafana, and what makes its content."""


def boards() -> dict[str, Json]:
    """Each dashboard by its file's name."""
    return {name: make() for name, make in BOARDS.items()}
