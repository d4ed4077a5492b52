from __future__ import annotations

import re

from tests.architecture.tree import Module, classes, functions, modules

BANNED = {
    *("data", "info", "manager", "helper", "helpers"),
    *("utils", "status", "bad", "dead", "master"),
}
# NVIDIA's own term for a service of theirs.
DICTATED_TERMS = ("fabric_manager",)
# A level of logging, everywhere called so.
DICTATED_NAMES = {"agent/gpuwarden_agent/logs.py: info"}


def test_no_banned_word_in_our_names() -> None:
    found = [
        f"{module.name}: {name}"
        for module in modules()
        for name in _names(module)
        if BANNED & set(_words(name))
    ]
    assert set(found) <= DICTATED_NAMES


def _names(module: Module) -> list[str]:
    names = [module.path.stem]
    names += [node.name for node in classes(module)]
    names += [node.name for node in functions(module)]
    return names


def _words(name: str) -> list[str]:
    for term in DICTATED_TERMS:
        name = name.replace(term, "")
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word.lower() for word in spaced.split("_") if word]
