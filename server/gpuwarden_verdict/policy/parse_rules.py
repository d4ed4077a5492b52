"""What a policy file says of classes of fault and rungs: [[pools.rules]], and who may approve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.policy.approval import APPROVER_ROLES, ROLE
from gpuwarden_verdict.policy.document import Mode, Rule
from gpuwarden_verdict.policy.problem import PolicyError
from gpuwarden_verdict.policy.reading import (
    read_mode,
    read_seconds,
    read_share,
    read_table,
    read_texts,
    refuse_unknown,
)

RUNG_NAMES: Mapping[str, Rung] = MappingProxyType(
    {rung.name.lower(): rung for rung in Rung if rung >= Rung.EXCLUDE}
)
"""Rungs that a rule may name."""


def read_rules(where: str, value: object) -> tuple[Rule, ...]:
    """Rules in file order; the first that fits and says a key holds for it.

    Raises:
        PolicyError: No list of tables, an unknown key, class or rung, a rule that says nothing.
    """
    if not isinstance(value, list):
        raise PolicyError(where, value, f"write each rule as a [[{_bare(where)}]] table")
    return tuple(_rule(f"{where}[{number}]", one) for number, one in enumerate(value))


def refuse_beyond(where: str, rules: Sequence[Rule], mode: Mode) -> None:
    """Refuse a rule that would go further than its pool.

    Raises:
        PolicyError: A rule names a mode above the pool's.
    """
    for number, rule in enumerate(rules):
        if rule.mode is not None and list(Mode).index(rule.mode) > list(Mode).index(mode):
            mend = f'rules only weaken the mode of their pool, "{mode}": raise that, and weaken it'
            raise PolicyError(f"{where}[{number}].mode", rule.mode.value, f"{mend} for the rest")


def read_approvers(where: str, value: object) -> tuple[str, ...]:
    """Who may approve.

    Raises:
        PolicyError: No list of names, or a role that may never approve.
    """
    names = read_texts(where, value, 'names of keys or roles, such as ["ana", "role:admin"]')
    for name in names:
        if name.startswith(ROLE) and name.removeprefix(ROLE) not in APPROVER_ROLES:
            roles = " or ".join(ROLE + one for one in APPROVER_ROLES)
            raise PolicyError(where, name, f"only {roles} may approve: write that, or a key's name")
    return names


def _rule(where: str, value: object) -> Rule:
    entry = read_table(where, value)
    refuse_unknown(where, entry, tuple(_READERS))
    read = {key: _READERS[key](f"{where}.{key}", one) for key, one in entry.items()}
    if not read.keys() - {"classes", "rungs"}:
        mend = "let the rule say something: mode, confidence, persistence_s, cool_down_s, approvers"
        raise PolicyError(where, value, mend)
    return Rule(**read)


def _classes(where: str, value: object) -> tuple[FaultClass, ...]:
    names = read_texts(where, value, 'classes of fault, such as ["thermal", "nic"]')
    return tuple(FaultClass(_known(where, name, tuple(FaultClass))) for name in names)


def _rungs(where: str, value: object) -> tuple[Rung, ...]:
    names = read_texts(where, value, 'rungs, such as ["drain", "evict"]')
    return tuple(RUNG_NAMES[_known(where, name, tuple(RUNG_NAMES))] for name in names)


def _known(where: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise PolicyError(where, name, f"write one of {', '.join(known)}")
    return name


def _bare(where: str) -> str:
    return ".".join(part.partition("[")[0] for part in where.split("."))


_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "classes": _classes,
    "rungs": _rungs,
    "mode": read_mode,
    "confidence": read_share,
    "persistence_s": read_seconds,
    "cool_down_s": read_seconds,
    "approvers": read_approvers,
}
