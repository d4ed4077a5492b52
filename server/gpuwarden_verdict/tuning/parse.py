"""The tables [detectors.NAME] of a policy file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from gpuwarden_verdict.policy.problem import PolicyError
from gpuwarden_verdict.tuning.rules import DetectorRule, Tuning

_KEYS = ("enabled", "limit", "budget", "pools")


def parse_tuning(
    tree: object, pools: Collection[str], known: Mapping[str, Collection[str]] | None = None
) -> Tuning:
    """What a policy file says under `detectors`.

    Args:
        tree: That part of the file.
        pools: Pools of the policy; a pattern that matches none is refused.
        known: What each detector that there is can be told; None: any name is taken.

    Raises:
        PolicyError: An unknown detector, key or pool, or a value out of its range.
    """
    if not isinstance(tree, dict):
        raise PolicyError("detectors", tree, "write a table [detectors.NAME] for each detector")
    rules: dict[str, tuple[DetectorRule, ...]] = {}
    for name, entry in tree.items():
        if known is not None and _first(name) not in known:
            mend = f"no detector has this name; there are {', '.join(sorted(known))}"
            raise PolicyError(f"detectors.{name}", entry, mend)
        keys = _KEYS if known is None else tuple(k for k in _KEYS if k in known[_first(name)])
        many = entry if isinstance(entry, list) else [entry]
        if isinstance(entry, list) and not entry:
            raise PolicyError(f"detectors.{name}", entry, "write a table")
        rules[name] = tuple(
            _rule(
                f"detectors.{name}" + (f"[{n}]" if isinstance(entry, list) else ""),
                one,
                pools,
                keys,
            )
            for n, one in enumerate(many)
        )
    return Tuning(rules)


def tuning_form(tuning: Tuning) -> dict[str, list[dict[str, Any]]]:
    """The same in plain JSON, sorted: what a policy's version is made of."""
    return {
        name: [
            {"enabled": r.enabled, "limit": r.limit, "budget": r.budget, "pools": list(r.pools)}
            for r in rules
        ]
        for name, rules in sorted(tuning.rules.items())
    }


def _first(name: str) -> str:
    return name.partition(":")[0]


def _rule(where: str, entry: object, pools: Collection[str], keys: Collection[str]) -> DetectorRule:
    if not isinstance(entry, dict):
        raise PolicyError(where, entry, "write a table")
    for key, value in entry.items():
        if key not in keys:
            about = "this detector has none" if key in _KEYS else "unknown key"
            raise PolicyError(f"{where}.{key}", value, f"{about}; known are {', '.join(keys)}")
    enabled = entry.get("enabled", True)
    if not isinstance(enabled, bool):
        raise PolicyError(f"{where}.enabled", enabled, "write true or false")
    return DetectorRule(
        enabled,
        _number(where, "limit", entry, least=-math.inf),
        _number(where, "budget", entry, least=0.0),
        _pools(f"{where}.pools", entry.get("pools", []), pools, given="pools" in entry),
    )


def _number(where: str, key: str, entry: Mapping[str, object], least: float) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(float(str(value))) or float(str(value)) < least:
        at_least = "" if math.isinf(least) else f" of at least {least:g}"
        raise PolicyError(f"{where}.{key}", value, f"write a number{at_least}")
    return float(str(value))


def _pools(where: str, value: object, known: Collection[str], *, given: bool) -> tuple[str, ...]:
    if not given:
        return ()
    if not isinstance(value, list) or not value:
        raise PolicyError(where, value, 'write names of pools, such as ["train"]')
    patterns = tuple(str(one) for one in value)
    for pattern in patterns:
        if not DetectorRule(pools=(pattern,)).matches_any(known):
            mend = f"no pool has this name; there are {', '.join(known)}"
            raise PolicyError(where, pattern, mend)
    return patterns
