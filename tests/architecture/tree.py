"""The checkout as the architecture tests see it: files, functions, names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("agent", "server", "models", "runtime", "dashboards")


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of ours."""

    path: Path
    tree: ast.Module
    lines: int

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the shipped packages, and of the dashboards."""
    found = []
    for root in SOURCE_ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found.append(Module(path, ast.parse(text), text.count("\n")))
    return tuple(found)


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a module, nested ones included."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """Every class of a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield node


def imported(module: Module) -> Iterator[str]:
    """Dotted names that a module imports, at any depth of its code."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
