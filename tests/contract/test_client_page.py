"""The page on the Python client names every method."""

from __future__ import annotations

from pathlib import Path

from gpuwarden_runtime.routes import Follow, Route, Routes, Walk

DOCS = Path(__file__).parents[2] / "docs" / "client.md"


def test_every_method_is_on_the_page() -> None:
    routes = [
        name for name, value in vars(Routes).items() if isinstance(value, Route | Walk | Follow)
    ]
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in routes if f"`{name}`" not in text] == []
