"""What differs between two policies, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.policy.document import Mode, PolicyDocument, PoolPolicy
from gpuwarden_verdict.policy.parse import pool_of
from gpuwarden_verdict.standby.rules import StandbyRules
from gpuwarden_verdict.tuning.parse import tuning_form

_BY_RUNG = ("rules", "mode", "exclude_confidence", "cool_down_s", "approvers")
"""Told by class and rung, where they hold."""
_RUNGS = (Rung.EXCLUDE, Rung.DRAIN, Rung.EVICT)


@dataclass(frozen=True, slots=True)
class Change:
    """Something that another policy says otherwise.

    Attributes:
        pool: Name of the pool, "" for what holds in all.
        what: The key, with classes and rungs where it is not the same for all.
        before: What it was, in words; "" where it is new.
        after: What it is, in words; "" where it is gone.
    """

    pool: str
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A node that another policy puts into another pool."""

    node_id: str
    before: str
    after: str


def changes_between(old: PolicyDocument, new: PolicyDocument) -> list[Change]:
    """Pools that came and went, then what differs in each, then what holds in all."""
    before = {pool.name: pool for pool in old.pools}
    after = {pool.name: pool for pool in new.pools}
    found = [Change(name, "pool", _pool_words(before[name]), "") for name in before.keys() - after]
    found += [Change(name, "pool", "", _pool_words(after[name])) for name in after.keys() - before]
    found.sort(key=lambda change: change.pool)
    for name, pool in after.items():
        if name in before:
            found += _pool_changes(before[name], pool)
    if [n for n in before if n in after] != [n for n in after if n in before]:
        found.append(Change("", "order of pools", ", ".join(before), ", ".join(after)))
    return [*found, *_common_changes(old, new)]


def moves_between(
    old: PolicyDocument, new: PolicyDocument, nodes: Iterable[tuple[str, Mapping[str, str]]]
) -> list[Moved]:
    """Nodes that change their pool; `nodes` are names with their labels."""
    found = []
    for node_id, labels in nodes:
        before, after = (pool_of(one, node_id, labels).name for one in (old, new))
        if before != after:
            found.append(Moved(node_id, before, after))
    return found


def _pool_changes(old: PoolPolicy, new: PoolPolicy) -> Iterator[Change]:
    for key in fields(PoolPolicy):
        if key.name in ("name", "cap", *_BY_RUNG):
            continue
        before, after = getattr(old, key.name), getattr(new, key.name)
        if before != after:
            yield Change(new.name, key.name, _words(before), _words(after))
    for key in fields(old.cap):
        before, after = getattr(old.cap, key.name), getattr(new.cap, key.name)
        if before != after:
            yield Change(new.name, f"cap.{key.name}", _words(before), _words(after))
    yield from _rung_changes(old, new)


def _rung_changes(old: PoolPolicy, new: PoolPolicy) -> Iterator[Change]:
    """What holds at each rung, with the classes for which it differs named together."""
    for rung in _RUNGS:
        before, after = (_held(pool, rung) for pool in (old, new))
        together: dict[tuple[str, str, str], list[FaultClass]] = {}
        for fault_class in FaultClass:
            pairs = zip(before[fault_class].items(), after[fault_class].values(), strict=True)
            for key, was, now in ((key, was, now) for (key, was), now in pairs if was != now):
                together.setdefault((key, was, now), []).append(fault_class)
        for (key, was, now), classes in together.items():
            every = len(classes) == len(FaultClass)
            named = "" if every else f" of {', '.join(classes)}"
            yield Change(new.name, f"{key} at {rung.name.lower()}{named}", was, now)


def _held(pool: PoolPolicy, rung: Rung) -> dict[FaultClass, dict[str, str]]:
    found = {}
    for one in FaultClass:
        said = pool.confidence_of(one, rung)
        usual = f"{pool.exclude_confidence:g}" if rung is Rung.EXCLUDE else "as built in"
        found[one] = {
            "mode": pool.mode_of(one, rung).value,
            "confidence": usual if said is None else f"{said:g}",
            "persistence_s": f"{pool.persistence_of(one, rung):g}",
            "cool_down_s": f"{pool.cool_down_of(one, rung):g}",
            "approvers": ", ".join(pool.approvers_of(one, rung)) or "whoever may by role",
        }
    return found


def _common_changes(old: PolicyDocument, new: PolicyDocument) -> Iterator[Change]:
    before, after = tuning_form(old.tuning), tuning_form(new.tuning)
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was != now:
            yield Change("", f"detectors.{name}", _words(was), _words(now))
    for key in fields(old.costs):
        was, now = getattr(old.costs, key.name), getattr(new.costs, key.name)
        if was != now:
            yield Change("", f"learning.{key.name}", _words(was), _words(now))


def _pool_words(pool: PoolPolicy) -> str:
    where = [*pool.nodes, *(f"{name}={value}" for name, value in pool.labels)]
    modes = {pool.mode_of(one, rung) for one in FaultClass for rung in _RUNGS}
    named = " or ".join(mode.value for mode in Mode if mode in modes)
    return f"{', '.join(where)} in mode {named}"


def _words(value: object) -> str:
    match value:
        case StandbyRules():
            return _words(asdict(value))
        case None:
            return "none"
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ", ".join(_words(one) for one in value) or "none"
        case dict():
            said = ((name, one) for name, one in value.items() if one not in (None, []))
            return ", ".join(f"{name} = {_words(one)}" for name, one in said)
        case bool():
            return str(value).lower()
        case _:
            return str(value)
