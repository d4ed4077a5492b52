"""The policy file: TOML in, a validated document out."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import Any

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.policy.costs import EQUAL, Costs, parse_costs
from gpuwarden_verdict.policy.document import Cap, Mode, PolicyDocument, PoolPolicy
from gpuwarden_verdict.policy.problem import PolicyError
from gpuwarden_verdict.tuning.parse import parse_tuning, tuning_form
from gpuwarden_verdict.tuning.rules import Tuning

__all__ = ["BUILT_IN", "DEFAULT_POOL", "PolicyError", "override_mode", "parse_policy", "pool_of"]

DEFAULT_POOL = "default"

BUILT_IN = PoolPolicy(
    name=DEFAULT_POOL,
    nodes=("*",),
    mode=Mode.OBSERVE,
    cap=Cap(max_nodes=4, max_percent=5.0),
    exclude_confidence=0.8,
    settle_s=30.0,
    dwell_s=600.0,
    exclusion_ttl_s=86400.0,
    score_may_exclude=False,
)
"""What holds where the file says nothing."""


def parse_policy(
    text: str,
    default_mode: Mode = Mode.OBSERVE,
    detectors: Mapping[str, Collection[str]] | None = None,
) -> PolicyDocument:
    """Parse and validate a policy file; "" gives the built-in rules.

    Args:
        text: TOML.
        default_mode: Mode of pools that name none, where [defaults] names none either.
        detectors: What [detectors.NAME] may say, by name; None: any name is taken.

    Raises:
        PolicyError: Not TOML, an unknown key, a value out of its range, a pool named twice, an
            unknown detector, a cost that is none.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError("file", str(error), "write valid TOML") from error
    _refuse_unknown("", tree, ("defaults", "pools", "detectors", "learning"))
    built_in = replace(BUILT_IN, mode=default_mode)
    defaults = _pool("defaults", _table("defaults", tree.get("defaults", {})), built_in)
    pools = tuple(_named_pools(tree.get("pools", []), defaults))
    names = [pool.name for pool in pools]
    tuning = parse_tuning(tree.get("detectors", {}), names, detectors)
    costs = parse_costs(tree.get("learning", {}))
    return PolicyDocument(_version(pools, tuning, costs), pools, tuning, costs)


def override_mode(document: PolicyDocument, mode: Mode) -> PolicyDocument:
    """The document with the default pool's mode set (GPUWARDEN_MODE): named pools keep theirs."""
    last = replace(document.pools[-1], mode=mode)
    pools = (*document.pools[:-1], last)
    return replace(document, version=_version(pools, document.tuning, document.costs), pools=pools)


_NO_LABELS: Mapping[str, str] = MappingProxyType({})


def pool_of(
    document: PolicyDocument, node_id: str, labels: Mapping[str, str] = _NO_LABELS
) -> PoolPolicy:
    """The first pool that has the node; always one, since the last has all.

    Args:
        document: Rules.
        node_id: The node.
        labels: What the inventory calls it: rack, leaf, pool and further words.
    """
    for pool in document.pools:
        if any(fnmatchcase(node_id, pattern) for pattern in pool.nodes) or (
            pool.labels
            and all(fnmatchcase(labels.get(name, ""), value) for name, value in pool.labels)
        ):
            return pool
    return document.pools[-1]


def _version(pools: tuple[PoolPolicy, ...], tuning: Tuning, costs: Costs) -> str:
    said: list[object] = [asdict(pool) for pool in pools]
    said += [tuning_form(tuning)] if tuning.rules else []
    said += [asdict(costs)] if costs != EQUAL else []
    canonical = json.dumps(said, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _named_pools(tree: object, defaults: PoolPolicy) -> list[PoolPolicy]:
    if not isinstance(tree, list):
        raise PolicyError("pools", tree, "write each pool as a [[pools]] table")
    pools: list[PoolPolicy] = []
    for number, entry in enumerate(tree):
        pools.append(_named_pool(f"pools[{number}]", _table(f"pools[{number}]", entry), defaults))
        names = [pool.name for pool in pools]
        if names.count(names[-1]) > 1 or names[-1] == DEFAULT_POOL:
            mend = f'give each pool a name of its own; "{DEFAULT_POOL}" is set by [defaults]'
            raise PolicyError(f"pools[{number}].name", names[-1], mend)
    return [*pools, defaults]


def _named_pool(where: str, entry: Mapping[str, Any], defaults: PoolPolicy) -> PoolPolicy:
    if "name" not in entry:
        raise PolicyError(f"{where}.name", None, "every pool needs a name")
    if not entry.keys() & {"nodes", "labels"}:
        raise PolicyError(f"{where}.nodes", None, "every pool needs nodes, or labels")
    own = ("name", "nodes", "labels")
    rest = {key: value for key, value in entry.items() if key not in own}
    pool = _pool(where, rest, defaults)
    name = _text(f"{where}.name", entry["name"])
    nodes = _patterns(f"{where}.nodes", entry["nodes"]) if "nodes" in entry else ()
    labels = _labels(f"{where}.labels", entry["labels"]) if "labels" in entry else ()
    return replace(pool, name=name, nodes=nodes, labels=labels)


def _pool(where: str, entry: Mapping[str, Any], base: PoolPolicy) -> PoolPolicy:
    _refuse_unknown(where, entry, tuple(_READERS))
    read = {key: _READERS[key](f"{where}.{key}", value) for key, value in entry.items()}
    cap = read.pop("cap", {})
    return replace(base, **read, cap=replace(base.cap, **cap))


def _refuse_unknown(where: str, entry: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key, value in entry.items():
        if key not in known:
            name = f"{where}.{key}" if where else key
            raise PolicyError(name, value, f"unknown key; known are {', '.join(known)}")


def _table(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(where, value, "write a table")
    return value


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(where, value, "write a name in quotes")
    return value


def _patterns(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise PolicyError(where, value, 'write patterns of node ids, such as ["gpu-*"]')
    return tuple(_text(where, pattern) for pattern in value)


def _labels(where: str, value: object) -> tuple[tuple[str, str], ...]:
    table = _table(where, value)
    if not table:
        raise PolicyError(where, value, 'write labels of the inventory, such as { pool = "train" }')
    return tuple((name, _text(f"{where}.{name}", one)) for name, one in sorted(table.items()))


def _mode(where: str, value: object) -> Mode:
    if value not in tuple(Mode):
        raise PolicyError(where, value, f"write one of {', '.join(Mode)}")
    return Mode(str(value))


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise PolicyError(where, value, "write true or false")
    return value


def _number(where: str, value: object, *, least: float, most: float) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(float(str(value))) or not least <= float(str(value)) <= most:
        limit = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        raise PolicyError(where, value, f"write a number {limit}")
    return float(str(value))


def _nodes_limit(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyError(where, value, "write a whole number of nodes of at least 0")
    return value


def _cap(where: str, value: object) -> dict[str, float]:
    entry = _table(where, value)
    _refuse_unknown(where, entry, ("max_nodes", "max_percent"))
    read: dict[str, float] = {}
    if "max_nodes" in entry:
        read["max_nodes"] = _nodes_limit(f"{where}.max_nodes", entry["max_nodes"])
    if "max_percent" in entry:
        percent = _number(f"{where}.max_percent", entry["max_percent"], least=0, most=100)
        read["max_percent"] = percent
    return read


def _dwells(where: str, value: object) -> tuple[tuple[FaultClass, float], ...]:
    table = _table(where, value)
    _refuse_unknown(where, table, tuple(FaultClass))
    return tuple(
        (FaultClass(name), _number(f"{where}.{name}", seconds, least=0, most=math.inf))
        for name, seconds in sorted(table.items())
    )


_SECONDS = partial(_number, least=0, most=math.inf)
_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "mode": _mode,
    "cap": _cap,
    "exclude_confidence": partial(_number, least=0, most=1),
    "settle_s": _SECONDS,
    "dwell_s": _SECONDS,
    "dwell_s_of": _dwells,
    "exclusion_ttl_s": partial(_number, least=60, most=math.inf),
    "score_may_exclude": _flag,
}
