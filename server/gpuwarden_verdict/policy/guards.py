"""Guards: what holds a new exclusion back, counted on the GPU nodes of a pool. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.policy.document import Cap, Decision, DecisionMove, PolicyDocument
from gpuwarden_verdict.policy.parse import pool_of

SILENT_SHARE = 0.5
"""More silent nodes in a pool than this share: the trouble is ours, nothing new is excluded."""

BY_PIN = "pin"


class Guard(StrEnum):
    """What holds a new exclusion back; none of them ever holds a return back."""

    BREAKER = "breaker"
    COOL_DOWN = "cool_down"
    CAP_NODES = "cap_nodes"
    CAP_PERCENT = "cap_percent"
    CAP_RACK = "cap_rack"
    CAP_JOB = "cap_job"
    FLOOR = "floor"


GUARD_WORDS: Mapping[Guard, str] = MappingProxyType(
    {
        Guard.BREAKER: "more than half of the pool's nodes are silent: that is the network's "
        "trouble or ours",
        Guard.COOL_DOWN: "it came back a short while ago, and this evidence does not act alone",
        Guard.CAP_NODES: "as many nodes of the pool are out as its cap allows",
        Guard.CAP_PERCENT: "as large a share of the pool's nodes is out as its cap allows",
        Guard.CAP_RACK: "as many nodes of this rack are out as the pool's cap allows",
        Guard.CAP_JOB: "as many nodes of the job that runs there are out as the pool's cap allows",
        Guard.FLOOR: "as few nodes of the pool are in service as the policy's floor allows",
    }
)


def guard_words(guard: str) -> str:
    """What a guard means, in words; "" for none, the name itself for one of another version."""
    return GUARD_WORDS[Guard(guard)] if guard in tuple(Guard) else guard


class Breaker(StrEnum):
    """OPEN stops new exclusions; returns always pass."""

    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a node stands and what runs on it.

    Attributes:
        rack: Of the inventory, "" where it does not say.
        jobs: "KIND:ID" of each job on its GPUs.
    """

    rack: str = ""
    jobs: frozenset[str] = frozenset()


NO_SEAT = Seat()
"""Of a node that nobody knows more of."""


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """What is out in a pool.

    Attributes:
        gpu_nodes: Nodes of the pool that have GPUs.
        excluded_nodes: Nodes of the pool with any exclusion in force (pins left out).
        breaker: See Breaker.
        seats: Of excluded nodes, with the jobs that they ran when they were excluded.
        away: Nodes of the pool that are out of service otherwise: silent, under maintenance, or
            pinned out by a person.
    """

    gpu_nodes: int
    excluded_nodes: frozenset[str] = frozenset()
    breaker: Breaker = Breaker.CLOSED
    seats: Mapping[str, Seat] = field(default_factory=dict)
    away: frozenset[str] = frozenset()

    @property
    def in_service(self) -> int:
        """GPU nodes that are heard of, and out for no reason."""
        return self.gpu_nodes - len(self.excluded_nodes | self.away)


@dataclass(frozen=True, slots=True)
class Counted:
    """Who counts, of the fleet or of a pool.

    Attributes:
        gpu_nodes: Nodes that have GPUs and belong to the fleet.
        silent: Nodes not heard of; many of them open the breaker.
        maintained: Nodes under maintenance.
    """

    gpu_nodes: frozenset[str]
    silent: frozenset[str] = frozenset()
    maintained: frozenset[str] = frozenset()


def cap_nodes(cap: Cap, gpu_nodes: int) -> int:
    """How many nodes may be out at once by the absolute limit and the percentage.

    The percentage is rounded down, but allows one node where it is above 0 (else a small pool could
    never be helped); max_nodes = 0 or max_percent = 0 allow none.
    """
    by_percent = math.floor(gpu_nodes * cap.max_percent / 100.0 + 1e-9)
    if cap.max_percent > 0:
        by_percent = max(1, by_percent)
    return min(cap.max_nodes, by_percent)


def guard_of(cap: Cap, load: PoolLoad, node_id: str, seat: Seat = NO_SEAT) -> str:
    """Which guard of the pool forbids one more exclusion on `node_id`, "" for none.

    A node that is out already costs nothing more.

    Args:
        cap: Limits.
        load: What is out.
        node_id: Node of what would be excluded.
        seat: Where it stands, and what runs there.
    """
    if load.breaker is Breaker.OPEN:
        return Guard.BREAKER
    if node_id in load.excluded_nodes:
        return ""
    out = len(load.excluded_nodes)
    if out >= cap.max_nodes:
        return Guard.CAP_NODES
    if out >= cap_nodes(cap, load.gpu_nodes):
        return Guard.CAP_PERCENT
    return _local_guard(cap, load, node_id, seat)


def _local_guard(cap: Cap, load: PoolLoad, node_id: str, seat: Seat) -> str:
    if cap.max_per_rack is not None and seat.rack:
        racks = Counter(one.rack for one in load.seats.values())
        if racks[seat.rack] >= cap.max_per_rack:
            return Guard.CAP_RACK
    if cap.max_per_job is not None and seat.jobs:
        jobs = Counter(job for one in load.seats.values() for job in one.jobs)
        if any(jobs[job] >= cap.max_per_job for job in seat.jobs):
            return Guard.CAP_JOB
    if cap.min_in_service == 0 or node_id in load.away:
        return ""
    return Guard.FLOOR if load.in_service - 1 < cap.min_in_service else ""


def load_after(
    load: PoolLoad,
    live_decisions: Iterable[Decision],
    moves: Sequence[DecisionMove],
    seat: Seat = NO_SEAT,
) -> PoolLoad:
    """The load after `moves`.

    Args:
        load: Before them.
        live_decisions: The pool's decisions in force before them (of the nodes moved, at least).
        moves: What `decide`, `approve` or `revoke` gave, all of one node.
        seat: Where that node stands, and what runs there.
    """
    moved = {move.decision.id: move.decision for move in moves}
    nodes = {decision.entity.node_id for decision in moved.values()}
    after = {d.id: d for d in live_decisions if d.entity.node_id in nodes} | moved
    out = {d.entity.node_id for d in after.values() if _counts(d)}
    seats = {node: known for node, known in load.seats.items() if node not in nodes}
    seats |= _seats_of(out, after.values(), lambda node: load.seats.get(node, seat))
    pinned = {d.entity.node_id for d in after.values() if covers(d) and d.decided_by == BY_PIN}
    return replace(
        load,
        excluded_nodes=(load.excluded_nodes - nodes) | out,
        seats=seats,
        away=load.away | pinned,
    )


def pool_loads(
    document: PolicyDocument,
    decisions: Iterable[Decision],
    counted: Counted,
    pool_name: Callable[[str], str] | None = None,
    seat_of: Callable[[str], Seat] = lambda _node_id: NO_SEAT,
) -> Mapping[str, PoolLoad]:
    """Load by pool name.

    Args:
        document: Policy.
        decisions: All decisions in force (others are left out).
        counted: Who counts; others never do, excluded or silent.
        pool_name: Pool of a node, where labels count; None: by its name alone.
        seat_of: Where a node stands and what runs there; asked of excluded ones only.
    """
    name_of = pool_name or (lambda node: pool_of(document, node).name)
    members: dict[str, set[str]] = {pool.name: set() for pool in document.pools}
    for node in counted.gpu_nodes:
        members[name_of(node)].add(node)
    covering = [decision for decision in decisions if covers(decision)]
    out = {decision.entity.node_id for decision in covering if _counts(decision)}
    pinned = {d.entity.node_id for d in covering if d.decided_by == BY_PIN}
    away = counted.silent | counted.maintained | pinned
    seats = _seats_of(out & counted.gpu_nodes, covering, seat_of)
    return {
        name: PoolLoad(
            len(nodes),
            frozenset(out & nodes),
            _breaker(nodes, counted.silent),
            {node: seats[node] for node in out & nodes},
            frozenset(away & nodes),
        )
        for name, nodes in members.items()
    }


def _seats_of(
    nodes: Iterable[str], decisions: Iterable[Decision], seat_of: Callable[[str], Seat]
) -> dict[str, Seat]:
    """Seats with the jobs of each exclusion's own time: a job that was moved counts on."""
    seats = {node: seat_of(node) for node in nodes}
    for decision in decisions:
        node = decision.entity.node_id
        if node in seats and _counts(decision):
            seats[node] = replace(seats[node], jobs=seats[node].jobs | set(decision.jobs))
    return seats


def _breaker(nodes: set[str], silent_nodes: frozenset[str]) -> Breaker:
    silent = len(nodes & silent_nodes)
    tripped = len(nodes) > 1 and silent > SILENT_SHARE * len(nodes)
    return Breaker.OPEN if tripped else Breaker.CLOSED


def _counts(decision: Decision) -> bool:
    return covers(decision) and decision.decided_by != BY_PIN and decision.rung >= Rung.EXCLUDE
