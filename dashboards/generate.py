"""Writes dashboards/grafana/*.json: `python -m dashboards.generate` in the checkout."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.boards import boards
from dashboards.boards.parts import Json

FOLDER = Path(__file__).resolve().parent / "grafana"


def text_of(board: Json) -> str:
    """The JSON as it is committed."""
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, board in boards().items():
        (FOLDER / name).write_text(text_of(board), encoding="utf-8")
