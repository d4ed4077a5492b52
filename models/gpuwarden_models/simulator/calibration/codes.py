"""What kernel logs say of faults: how often which code, and what follows what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from gpuwarden_models.frames import Frame
from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultName
from gpuwarden_models.simulator.parameters import MECHANISMS, GpuModel
from gpuwarden_models.simulator.schedule import one_each
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind

_INTERVAL_S = 120.0
_MOST_FRAMES = 240
_APART_S = 60.0
_SAME_S = 5.0  # Delta: identical codes of a GPU within 5 s are one
_FOLLOWS_S = 0.051
_ECHO_S = 1.0
_PMU, _MMU, _LINK, _GSP = 122, 31, 74, (119, 120)


@dataclass(frozen=True, slots=True)
class Told:
    """One XID line."""

    at: float
    node: str
    gpu: str
    xid: int


@dataclass(frozen=True, slots=True)
class Codes:
    """What the logs say of some faults of one mechanism.

    Attributes:
        faults: How many faults.
        lines: XIDs, identical ones of a GPU within 5 s being one, in order of time.
        idle_after: Share of GPUs with a GSP code whose utilisation is 0 at the end.
    """

    faults: int
    lines: tuple[Told, ...]
    idle_after: float

    @property
    def count(self) -> Mapping[int, int]:
        """XIDs by code."""
        return Counter(line.xid for line in self.lines)

    @property
    def follows(self) -> float:
        """Share of 122s after which the same GPU says 31 within a moment."""
        first = [line for line in self.lines if line.xid == _PMU]
        faults = [line for line in self.lines if line.xid == _MMU]
        return _share(any(_follows(one, other) for other in faults) for one in first)

    def reach(self, gpus: int) -> float:
        """Share of NVLink faults that so many GPUs of a node say, or more."""
        links = [line for line in self.lines if line.xid == _LINK]
        groups: list[tuple[float, str, set[str]]] = []
        for line in links:
            last = groups[-1] if groups else None
            if last is not None and last[1] == line.node and line.at - last[0] < _ECHO_S:
                last[2].add(line.gpu)
            else:
                groups.append((line.at, line.node, {line.gpu}))
        return _share(len(group[2]) >= gpus for group in groups)

    def top_share(self, xid: int, faults: int) -> float:
        """Share of a code that the worst GPU said, in fleets of so many faults each: their mean.

        In more faults the worst one's share is smaller, however heavy the tail.
        """
        by_gpu = Counter(line.gpu for line in self.lines if line.xid == xid)
        counts = list(by_gpu.values())
        size = min(faults, len(counts))
        fleets = [counts[n : n + size] for n in range(0, len(counts) - size + 1, size)]
        return float(np.mean([max(fleet) / sum(fleet) for fleet in fleets]))


def telling() -> Iterator[FaultName]:
    """Mechanisms of GPUs, and programs that fault."""
    for name, kind in FAULT_KINDS.items():
        faulting = kind.fault_class is FaultClass.APPLICATION and name is not FaultName.INPUT_WAIT
        if kind.entity_kind is EntityKind.GPU or (faulting and not _of_place(name)):
            yield name


def _of_place(name: FaultName) -> bool:
    return FAULT_KINDS[name].entity_kind is EntityKind.PLACE


def codes_of(name: FaultName, faults: int, seed: int) -> Codes:
    """Play faults of one mechanism, as they are drawn, each on a node of its own.

    Args:
        name: The mechanism.
        faults: How many; of programs, which are short, four times as many.
        seed: Equal arguments give equal lines.
    """
    if FAULT_KINDS[name].fault_class is FaultClass.APPLICATION:
        faults *= 4
    topology = build_topology(faults, 8, seed)
    on_gpus = FAULT_KINDS[name].entity_kind is EntityKind.GPU
    first = tuple(topology.gpus[8 * node].gpu_uuid for node in range(faults))
    # however many there are, the last one begins when half of the frames are left
    apart_s = min(_APART_S, 0.5 * _MOST_FRAMES * _INTERVAL_S / faults)
    drawn = one_each(name, first if on_gpus else topology.nodes, seed, apart_s)
    simulation = Simulation(Setting(faults, 8, seed=seed, interval_s=_INTERVAL_S), drawn)
    last = max(fault.at_s + fault.duration_s for fault in drawn)
    lines: list[Told] = []
    idle: dict[str, bool] = {}
    for frame in simulation.frames(min(int(last / _INTERVAL_S) + 2, _MOST_FRAMES)):
        lines += _told(frame)
        now_s = simulation.elapsed_s
        lasting = {one.entity for one in drawn if now_s < one.at_s + one.duration_s}
        idle |= _idle(frame, lasting & {line.gpu for line in lines if line.xid in _GSP})
    return Codes(faults, tuple(_merged(lines)), _share(idle.values()))


def code_rates(model: GpuModel, codes: Mapping[FaultName, Codes]) -> dict[int, float]:
    """XIDs by 10^6 GPU-hours: the rate of each mechanism times what it says."""
    rates: dict[int, float] = defaultdict(float)
    for name, told in codes.items():
        for xid, count in told.count.items():
            rates[xid] += MECHANISMS[name].per_million_hours[model] * count / told.faults
    return dict(rates)


def _told(frame: Frame) -> Iterator[Told]:
    for one in frame.events:
        event = one.event
        if event.xid is not None and event.entity_kind is EntityKind.GPU:
            yield Told(event.observed_at, one.node_id, event.entity, event.xid)


def _idle(frame: Frame, faulty: Set[str]) -> dict[str, bool]:
    """Whether faulty GPUs do nothing while the others of their node have work, or seem to."""
    gpus = next(table for table in frame.tables if table.kind is EntityKind.GPU)
    load = gpus.column("gpu_utilization_ratio")
    return {
        gpus.keys[row]: bool(load[row] < 0.5)
        for row in range(0, len(gpus.keys), 8)
        if gpus.keys[row] in faulty and load[row + 1 : row + 8].max() > 0.5
    }


def _merged(lines: Sequence[Told]) -> Iterator[Told]:
    last: dict[tuple[str, int], float] = {}
    for line in sorted(lines, key=lambda line: (line.at, line.gpu, line.xid)):
        key = (line.gpu, line.xid)
        if line.at - last.get(key, -np.inf) >= _SAME_S:
            yield line
            last[key] = line.at


def _follows(one: Told, other: Told) -> bool:
    return other.gpu == one.gpu and 0.0 <= other.at - one.at <= _FOLLOWS_S


def _share(of: Iterable[bool]) -> float:
    found = list(of)
    return sum(found) / len(found) if found else float("nan")
