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
from gpuwarden_verdict.policy.document import (
    Cap,
    InMaintenance,
    Mode,
    PolicyDocument,
    PoolPolicy,
)
from gpuwarden_verdict.policy.parse_rules import read_approvers, read_rules, refuse_beyond
from gpuwarden_verdict.policy.problem import PolicyError
from gpuwarden_verdict.policy.reading import (
    read_flag,
    read_mode,
    read_nodes_limit,
    read_number,
    read_seconds,
    read_share,
    read_table,
    read_text,
    read_texts,
    refuse_unknown,
)
from gpuwarden_verdict.standby.rules import parse_standby
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

_LATER = (
    "rules",
    "cool_down_s",
    "approvers",
    "in_maintenance",
    "standby",
    "leave_check",
    "score_settle_s",
)
_DEFAULTS = asdict(BUILT_IN)
_CAP_DEFAULTS: Mapping[str, object] = {
    "max_per_rack": None,
    "max_per_job": None,
    "min_in_service": 0,
}
_NODE_PATTERNS = 'patterns of node ids, such as ["gpu-*"]'


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
    refuse_unknown("", tree, ("defaults", "pools", "detectors", "learning"))
    built_in = replace(BUILT_IN, mode=default_mode)
    defaults = _pool("defaults", read_table("defaults", tree.get("defaults", {})), built_in)
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


def pool_form(pool: PoolPolicy) -> dict[str, Any]:
    """A pool as plain values; of what came after the first version only what is set.

    So a policy keeps its version when gpuwarden learns a key that the policy does not use.
    """
    form = asdict(pool)
    for name in _LATER:
        if form[name] == _DEFAULTS[name]:
            del form[name]
    form["cap"] = {k: v for k, v in form["cap"].items() if v != _CAP_DEFAULTS.get(k, ...)}
    return form


def _version(pools: tuple[PoolPolicy, ...], tuning: Tuning, costs: Costs) -> str:
    said: list[object] = [pool_form(pool) for pool in pools]
    said += [tuning_form(tuning)] if tuning.rules else []
    said += [asdict(costs)] if costs != EQUAL else []
    canonical = json.dumps(said, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _named_pools(tree: object, defaults: PoolPolicy) -> list[PoolPolicy]:
    if not isinstance(tree, list):
        raise PolicyError("pools", tree, "write each pool as a [[pools]] table")
    pools: list[PoolPolicy] = []
    for number, entry in enumerate(tree):
        pools.append(
            _named_pool(f"pools[{number}]", read_table(f"pools[{number}]", entry), defaults)
        )
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
    if "rules" in entry:
        refuse_beyond(f"{where}.rules", pool.rules, pool.mode)
    name = read_text(f"{where}.name", entry["name"])
    nodes = read_texts(f"{where}.nodes", entry["nodes"], _NODE_PATTERNS) if "nodes" in entry else ()
    labels = _labels(f"{where}.labels", entry["labels"]) if "labels" in entry else ()
    return replace(pool, name=name, nodes=nodes, labels=labels)


def _pool(where: str, entry: Mapping[str, Any], base: PoolPolicy) -> PoolPolicy:
    refuse_unknown(where, entry, tuple(_READERS))
    read = {key: _READERS[key](f"{where}.{key}", value) for key, value in entry.items()}
    cap = read.pop("cap", {})
    return replace(base, **read, cap=replace(base.cap, **cap))


def _labels(where: str, value: object) -> tuple[tuple[str, str], ...]:
    table = read_table(where, value)
    if not table:
        raise PolicyError(where, value, 'write labels of the inventory, such as { pool = "train" }')
    return tuple((name, read_text(f"{where}.{name}", one)) for name, one in sorted(table.items()))


def _cap(where: str, value: object) -> dict[str, float]:
    entry = read_table(where, value)
    refuse_unknown(where, entry, tuple(_LIMITS))
    return {key: _LIMITS[key](f"{where}.{key}", one) for key, one in entry.items()}


def _dwells(where: str, value: object) -> tuple[tuple[FaultClass, float], ...]:
    table = read_table(where, value)
    refuse_unknown(where, table, tuple(FaultClass))
    return tuple(
        (FaultClass(name), read_seconds(f"{where}.{name}", seconds))
        for name, seconds in sorted(table.items())
    )


def _in_maintenance(where: str, value: object) -> InMaintenance:
    if value not in tuple(InMaintenance):
        raise PolicyError(where, value, f"write one of {', '.join(InMaintenance)}")
    return InMaintenance(str(value))


_LIMITS: Mapping[str, Callable[[str, object], float]] = {
    "max_nodes": read_nodes_limit,
    "max_percent": partial(read_number, least=0, most=100),
    "max_per_rack": read_nodes_limit,
    "max_per_job": read_nodes_limit,
    "min_in_service": read_nodes_limit,
}
_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "mode": read_mode,
    "cap": _cap,
    "exclude_confidence": read_share,
    "settle_s": read_seconds,
    "score_settle_s": read_seconds,
    "dwell_s": read_seconds,
    "dwell_s_of": _dwells,
    "exclusion_ttl_s": partial(read_number, least=60, most=math.inf),
    "score_may_exclude": read_flag,
    "rules": read_rules,
    "cool_down_s": read_seconds,
    "approvers": read_approvers,
    "in_maintenance": _in_maintenance,
    "standby": parse_standby,
    "leave_check": read_flag,
}
