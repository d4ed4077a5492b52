from __future__ import annotations

import ast

from tests.architecture.tree import functions, modules

FUNCTION_GATE = 60
FILE_GATE = 500
NESTING_GATE = 3
# Tables: rows of values and no logic to speak of.
TABLES = {"agent/gpuwarden_wire/registry.py"}
_BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def test_no_function_is_longer_than_the_gate() -> None:
    long = [
        f"{module.name}:{node.lineno} {node.name}: {(node.end_lineno or 0) - node.lineno + 1} lines"
        for module in modules()
        for node in functions(module)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_GATE
    ]
    assert long == []


def test_no_file_is_longer_than_the_gate() -> None:
    long = [
        f"{module.name}: {module.lines} lines"
        for module in modules()
        if module.lines > FILE_GATE and module.name not in TABLES
    ]
    assert long == []


def test_no_function_nests_deeper_than_the_gate() -> None:
    deep = [
        f"{module.name}:{node.lineno} {node.name}: {depth} levels"
        for module in modules()
        for node in functions(module)
        if (depth := _nesting(node.body)) > NESTING_GATE
    ]
    assert deep == []


def _nesting(body: list[ast.stmt]) -> int:
    deepest = 0
    for statement in body:
        if isinstance(statement, _BLOCKS):
            deepest = max(deepest, 1 + max(map(_nesting, _bodies(statement)), default=0))
    return deepest


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    bodies: list[list[ast.stmt]] = [
        getattr(statement, "body", []),
        getattr(statement, "finalbody", []),
    ]
    bodies += [handler.body for handler in getattr(statement, "handlers", [])]
    bodies += [case.body for case in getattr(statement, "cases", [])]
    orelse = getattr(statement, "orelse", [])
    # `elif` is written flat, so it does not count as a level of its own.
    if isinstance(statement, ast.If) and len(orelse) == 1 and isinstance(orelse[0], ast.If):
        bodies += _bodies(orelse[0])
    else:
        bodies.append(orelse)
    return bodies
