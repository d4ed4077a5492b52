"""Random faults: drawn from heavy-tailed rates of parts, dense for training or as in life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultName
from gpuwarden_models.simulator.parameters import (
    MECHANISMS,
    SHAPES,
    STRENGTH_NORMAL_LOG,
    GpuModel,
    Mechanism,
    PartParameters,
)
from gpuwarden_models.simulator.story import Repair, ScriptedFault, Shape, Story
from gpuwarden_models.simulator.topology import NODES_PER_RACK, Topology
from gpuwarden_wire.metrics import EntityKind

# A stall of a random story is one that its fleet notices: fewer nodes ask for less.
_NODES_THAT_NOTICE = 60
_HOUR, _DAY = 3600.0, 86_400.0
_PARTS = PartParameters()


class RateTable(StrEnum):
    """How often faults come."""

    DENSE = "dense"  # so that a day of a small fleet teaches something
    CALIBRATED = "calibrated"  # as published fleets have them


@dataclass(frozen=True, slots=True)
class FaultRate:
    """How often a fault comes and how fast it unfolds.

    Attributes:
        per_entity_day: Mean onsets per entity of the fault's kind and day.
        ramp_s: Shortest and longest ramp, log-uniform between.
        lasting_s: Shortest and longest time from the moment action is needed to the repair (from
            onset to the end for confounders), log-uniform between.
        severity: Lowest and highest.
        precursor_share: Share of faults that announce themselves; the others are full at once.
        time_scale: By how much the time between recurrences is shortened.
    """

    per_entity_day: float
    ramp_s: tuple[float, float]
    lasting_s: tuple[float, float]
    severity: tuple[float, float] = (0.8, 1.2)
    precursor_share: float = 1.0
    time_scale: float = 1.0


Rates = Mapping[FaultName, FaultRate]

_DENSE_TIME = 60.0
"""Dense faults come hundreds of times as often as in life: months of repeats fall into days."""


def _rate(mechanism: Mechanism, per_entity_day: float, time_scale: float) -> FaultRate:
    return FaultRate(
        per_entity_day,
        mechanism.drawn_ramp_s,
        mechanism.lasting_s,
        mechanism.severity,
        mechanism.precursor_share,
        time_scale,
    )


def _dense(*, common: bool) -> Rates:
    return MappingProxyType(
        {
            name: _rate(mechanism, mechanism.dense_per_day, _DENSE_TIME)
            for name, mechanism in MECHANISMS.items()
            if FAULT_KINDS[name].common is common
        }
    )


DENSE: Rates = _dense(common=False)
"""Training density: hundreds of times the published rates of hard faults."""
COMMON: Rates = _dense(common=True)
"""By place or node of its kind; far denser than in life too."""

_PLACE_KINDS: Mapping[FaultName, str] = MappingProxyType(
    {
        FaultName.LEAF_REBOOT: "leaf",
        FaultName.MOUNT_STALL: "mount",
        FaultName.FACILITY_OUTAGE: "power",
        FaultName.PLANNED_REBOOT: "leaf",
        FaultName.DRIVER_UPGRADE: "leaf",
        FaultName.CHECKPOINT_BURST: "power",
        FaultName.SOFTWARE_POWER_CAP: "rack",
    }
)


def calibrated(model: GpuModel, topology: Topology, *, common: bool) -> Rates:
    """Rates as in life: by 10^6 GPU-hours, dealt out to the entities that a fleet has."""
    hours = 24.0 * len(topology.gpus) / 1e6
    return MappingProxyType(
        {
            name: _rate(
                mechanism,
                mechanism.per_million_hours[model]
                * hours
                / max(len(entities_of(topology, name)), 1),
                1.0,
            )
            for name, mechanism in MECHANISMS.items()
            if FAULT_KINDS[name].common is common
        }
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which faults come, and how.

    Attributes:
        table: How often.
        factor: Moves all rates.
        fault_factor: Moves the rates of what needs action, and no others.
        only: These alone; empty for all.
        without: Not these.
        confounders_only: Nothing that needs action.
        precursors: False for a control in which every fault is full at once.
        common: What many entities show as well.
    """

    table: RateTable = RateTable.DENSE
    factor: float = 1.0
    fault_factor: float = 1.0
    only: tuple[FaultName, ...] = ()
    without: tuple[FaultName, ...] = ()
    confounders_only: bool = False
    precursors: bool = True
    common: bool = False

    def story(self, topology: Topology, model: GpuModel, hours: float, seed: int) -> Story:
        """Draw the faults of a fleet: equal arguments give equal stories.

        What is left out or let in does not change when and where the other faults come.
        """
        drawn = random_story(topology, hours, seed, self._rates(model, topology, common=False))
        wanted = {FAULT_KINDS[name].common for name in self.only}
        if self.common or True in wanted:
            rates = self._rates(model, topology, common=True)
            drawn += random_story(topology, hours, seed, rates, stream=4)
        return drawn

    def _rates(self, model: GpuModel, topology: Topology, *, common: bool) -> Rates:
        dense = COMMON if common else DENSE
        table = (
            dense if self.table is RateTable.DENSE else calibrated(model, topology, common=common)
        )
        return {
            name: replace(
                rate,
                per_entity_day=self._factor_of(name) * rate.per_entity_day,
                precursor_share=rate.precursor_share if self.precursors else 0.0,
            )
            for name, rate in table.items()
            if self._comes(name)
        }

    def _factor_of(self, name: FaultName) -> float:
        return self.factor * (self.fault_factor if FAULT_KINDS[name].action_needed else 1.0)

    def _comes(self, name: FaultName) -> bool:
        if self.confounders_only and FAULT_KINDS[name].action_needed:
            return False
        return name not in self.without and (not self.only or name in self.only)


def random_story(
    topology: Topology, hours: float, seed: int, rates: Rates = DENSE, stream: int = 2
) -> Story:
    """Faults of a fleet over a time; a part has one at a time.

    Args:
        topology: The fleet.
        hours: Length.
        seed: Equal seeds give equal stories.
        rates: By fault; those left out do not come.
        stream: Stories of one seed with different streams are drawn apart.
    """
    order = {name: number for number, name in enumerate(FaultName)}
    faults: list[ScriptedFault] = []
    for name, rate in rates.items():
        rng = np.random.default_rng([seed, stream, order[name]])
        few = max(1.0, _NODES_THAT_NOTICE / len(topology.nodes))
        drawing = _Drawing(rng, name, rate, hours, entities_of(topology, name), few)
        weights = _weights(topology, name, np.random.default_rng([seed, stream]), rng)
        counts = rng.poisson(rate.per_entity_day * hours / 24.0 * weights)
        for row in np.flatnonzero(counts).tolist():
            faults += drawing.of(row, int(counts[row]), float(weights[row]))
    return _one_at_a_time(faults)


def one_each(name: FaultName, entities: Sequence[str], seed: int, apart_s: float = 60.0) -> Story:
    """A drawn fault of one name on each of some entities, one after the other.

    Args:
        name: Which fault.
        entities: On what, by name.
        seed: Equal arguments give equal faults.
        apart_s: From one onset to the next.
    """
    rng = np.random.default_rng([seed, 6])
    rate = {**DENSE, **COMMON}[name]
    drawing = _Drawing(rng, name, rate, inf, entities, 1.0)
    return tuple(drawing.one(entity, (n + 1) * apart_s) for n, entity in enumerate(entities))


def entities_of(topology: Topology, name: FaultName) -> Sequence[str]:
    """Everything that a fault may come to."""
    match FAULT_KINDS[name].entity_kind:
        case EntityKind.GPU:
            return tuple(topology.gpu_row)
        case EntityKind.NIC:
            return tuple(topology.nic_row)
        case EntityKind.PLACE:
            kind = _PLACE_KINDS[name]
            return tuple(place for place in topology.places if place.startswith(f"{kind}:"))
        case _:
            return topology.nodes


def _weights(
    topology: Topology, name: FaultName, shared: np.random.Generator, own: np.random.Generator
) -> NDArray[np.float64]:
    """Rate of each entity by the mean: some parts are worse in everything, a few are lemons."""
    count = len(entities_of(topology, name))
    kind = FAULT_KINDS[name]
    if not kind.action_needed or kind.entity_kind is EntityKind.PLACE:
        return np.ones(count)
    nodes = shared.normal(0.0, _PARTS.shared_sigma, len(topology.nodes))
    parts = shared.normal(0.0, _PARTS.shared_sigma, len(topology.gpus))
    log = nodes if count == len(topology.nodes) else parts
    if log.size != count:
        log = np.zeros(count)
    log = log + own.normal(0.0, _PARTS.own_sigma, count)
    lemons = own.random(count) < _PARTS.lemon_share
    weights: NDArray[np.float64] = np.exp(log) * np.where(lemons, _PARTS.lemon_factor, 1.0)
    if count % len(topology.nodes) == 0:
        node = np.repeat(np.arange(len(topology.nodes)), count // len(topology.nodes))
        height = (node % NODES_PER_RACK) / (NODES_PER_RACK - 1)
        weights = weights * (1.0 + (_PARTS.top_of_rack_factor - 1.0) * height)
    spread = _PARTS.shared_sigma**2 + _PARTS.own_sigma**2
    usual = np.exp(0.5 * spread) * (1.0 + _PARTS.lemon_share * (_PARTS.lemon_factor - 1.0))
    height_mean = 0.5 * (1.0 + _PARTS.top_of_rack_factor)
    scaled: NDArray[np.float64] = weights / (usual * height_mean)
    return scaled


class _Drawing:
    """Draws the faults of one name."""

    def __init__(
        self,
        rng: np.random.Generator,
        name: FaultName,
        rate: FaultRate,
        hours: float,
        entities: Sequence[str],
        few: float,
    ) -> None:
        self._rng, self._name, self._rate = rng, name, rate
        self._end_s, self._entities, self._few = hours * _HOUR, entities, few

    def of(self, row: int, count: int, weight: float) -> Iterator[ScriptedFault]:
        """Faults of one entity, with those that come again; less often on a part that is new."""
        moments = sorted(float(at) for at in self._rng.uniform(0.0, self._end_s, count))
        replaced = False
        for at in moments:
            if replaced and self._rng.random() >= min(1.0, 1.0 / max(weight, 1e-9)):
                continue
            for fault in self._with_repeats(self._entities[row], at):
                replaced = replaced or fault.repair is Repair.REPLACE
                yield fault

    def _with_repeats(self, entity: str, at_s: float) -> Iterator[ScriptedFault]:
        while at_s < self._end_s:
            fault = self.one(entity, at_s)
            yield fault
            rng, stays = self._rng, fault.repair is not Repair.REPLACE
            again = fault.kind.action_needed and stays and rng.random() < _PARTS.recurs_share
            if not again or fault.kind.entity_kind is EntityKind.PLACE:
                return
            days = _PARTS.recurs_after_median_days / self._rate.time_scale
            days *= float(np.exp(rng.normal(0.0, _PARTS.recurs_after_sigma)))
            at_s += fault.duration_s + days * _DAY

    def one(self, entity: str, at_s: float) -> ScriptedFault:
        """One fault of one entity."""
        rng, rate, kind = self._rng, self._rate, FAULT_KINDS[self._name]
        mechanism, hard = MECHANISMS[self._name], kind.action_needed and not kind.common
        ramp = _log_uniform(rng, rate.ramp_s)
        lasting = _log_uniform(rng, rate.lasting_s)
        severity = float(rng.uniform(*rate.severity))
        if self._name is FaultName.MOUNT_STALL:
            severity *= self._few
        announced = not hard or rng.random() < rate.precursor_share
        ramp = ramp if announced else 0.0
        drawn = ScriptedFault(
            name=self._name,
            entity=entity,
            at_s=at_s,
            ramp_s=ramp,
            duration_s=ramp * mechanism.needed_at + lasting,
            severity=severity,
        )
        return self._as_in_life(drawn) if hard else drawn

    def _as_in_life(self, fault: ScriptedFault) -> ScriptedFault:
        rng = self._rng
        repairs = np.cumsum(fault.mechanism.repair_shares)
        repair = tuple(Repair)[min(int(np.searchsorted(repairs, rng.random(), "right")), 2)]
        shape = str(rng.choice(tuple(SHAPES), p=tuple(SHAPES.values())))
        tail = float(rng.pareto(_PARTS.storm_tail)) + 1.0
        storm = min(tail * _log_uniform(rng, _PARTS.storm_per_hour), _PARTS.storm_most_per_hour)
        return replace(
            fault,
            severity=fault.severity * float(np.exp(rng.normal(*STRENGTH_NORMAL_LOG))),
            shape=Shape(shape),
            repair=repair,
            echo=bool(rng.random() < _PARTS.echo_share),
            storm_per_hour=storm,
            drained=bool(rng.random() < _PARTS.drained_share),
        )


def _one_at_a_time(faults: Sequence[ScriptedFault]) -> Story:
    """Drop a fault that begins before the same entity's former one has ended."""
    free_from: dict[str, float] = {}
    kept: list[ScriptedFault] = []
    for fault in sorted(faults, key=lambda fault: (fault.at_s, fault.entity, fault.name)):
        if fault.at_s >= free_from.get(fault.entity, -inf):
            kept.append(fault)
            free_from[fault.entity] = fault.at_s + fault.duration_s
    return tuple(kept)


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    low, high = np.log(bounds)
    return float(np.exp(rng.uniform(low, high)))
