"""Random faults: far denser than in life, so that a day of a small fleet teaches something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

import numpy as np

from gpuwarden_models.simulator.story import FAULT_KINDS, FaultName, ScriptedFault, Story
from gpuwarden_models.simulator.topology import Topology
from gpuwarden_wire.metrics import EntityKind

# A stall of a random story is one that its fleet notices: fewer nodes ask for less.
_NODES_THAT_NOTICE = 60
_HEAVY_TAIL_SIGMA = 1.0  # rates differ between parts: some are lemons


@dataclass(frozen=True, slots=True)
class FaultRate:
    """How often a fault comes and how fast it unfolds.

    Attributes:
        per_entity_day: Mean onsets per entity of the fault's kind and day.
        ramp_s: Shortest and longest ramp, log-uniform between.
        lasting_s: Shortest and longest time from the moment action is needed to the repair (from
            onset to the end for confounders), log-uniform between.
        severity: Lowest and highest.
    """

    per_entity_day: float
    ramp_s: tuple[float, float]
    lasting_s: tuple[float, float]
    severity: tuple[float, float] = (0.8, 1.2)


_HOUR = 3600.0
# Training density: hundreds of times the published rates of hard faults (order 1e-5 per GPU-hour).
DENSE: Mapping[FaultName, FaultRate] = MappingProxyType(
    {
        FaultName.ROW_REMAP_FAILURE: FaultRate(0.03, (60.0, 8 * _HOUR), (900.0, 6 * _HOUR)),
        FaultName.GPU_OFF_BUS: FaultRate(0.02, (1.0, 1.0), (900.0, 6 * _HOUR)),
        FaultName.NIC_PORT_DOWN: FaultRate(0.01, (1.0, 1.0), (300.0, 4 * _HOUR)),
        FaultName.SLOW_OVERHEATING: FaultRate(
            0.05, (30.0, 8 * _HOUR), (900.0, 8 * _HOUR), (0.7, 2.2)
        ),
        FaultName.ECC_WEAR: FaultRate(0.03, (900.0, 12 * _HOUR), (900.0, 6 * _HOUR)),
        FaultName.APPLICATION_BURST: FaultRate(0.3, (5.0, 5.0), (60.0, 60.1)),
        FaultName.HOT_AISLE: FaultRate(0.08, (300.0, 2 * _HOUR), (_HOUR, 8 * _HOUR), (0.5, 1.5)),
        FaultName.POWER_CAP: FaultRate(0.15, (10.0, 600.0), (_HOUR, 8 * _HOUR), (0.3, 1.0)),
        FaultName.MISSING_SCRAPES: FaultRate(0.1, (1.0, 1.0), (120.0, 2 * _HOUR)),
    }
)

# By place or node of its kind; far denser than in life too.
COMMON: Mapping[FaultName, FaultRate] = MappingProxyType(
    {
        FaultName.LEAF_REBOOT: FaultRate(1.0, (1.0, 1.0), (180.0, 420.0)),
        FaultName.MOUNT_STALL: FaultRate(4.0, (30.0, 120.0), (1200.0, 5400.0)),
        FaultName.FACILITY_OUTAGE: FaultRate(0.5, (1.0, 1.0), (600.0, 2 * _HOUR)),
        FaultName.PLANNED_REBOOT: FaultRate(0.5, (60.0, 900.0), (1800.0, _HOUR)),
        FaultName.DRIVER_UPGRADE: FaultRate(0.5, (60.0, 900.0), (1200.0, 1800.0)),
        FaultName.CRASH_STORM: FaultRate(0.3, (5.0, 5.0), (60.0, 60.1)),
        FaultName.CHECKPOINT_BURST: FaultRate(8.0, (1.0, 1.0), (60.0, 180.0)),
        FaultName.SOFTWARE_POWER_CAP: FaultRate(0.5, (1.0, 1.0), (_HOUR, 6 * _HOUR)),
    }
)
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


def random_story(
    topology: Topology,
    hours: float,
    seed: int,
    rates: Mapping[FaultName, FaultRate] = DENSE,
    stream: int = 2,
) -> Story:
    """Faults of a fleet over a time, drawn from heavy-tailed rates; a part has one at a time.

    Args:
        topology: The fleet.
        hours: Length.
        seed: Equal seeds give equal stories.
        rates: By fault; those left out do not come.
        stream: Stories of one seed with different streams are drawn apart.
    """
    rng = np.random.default_rng([seed, stream])
    faults: list[ScriptedFault] = []
    for name, rate in rates.items():
        entities = _entities(topology, name)
        weights = np.exp(rng.normal(-0.5 * _HEAVY_TAIL_SIGMA**2, _HEAVY_TAIL_SIGMA, len(entities)))
        counts = rng.poisson(rate.per_entity_day * hours / 24.0 * weights)
        for row in np.flatnonzero(counts).tolist():
            faults += (
                _draw(rng, name, entities[row], rate, hours) for _ in range(int(counts[row]))
            )
    few = max(1.0, _NODES_THAT_NOTICE / len(topology.nodes))
    faults = [
        replace(fault, severity=few * fault.severity)
        if fault.name is FaultName.MOUNT_STALL
        else fault
        for fault in faults
    ]
    return _one_at_a_time(faults)


def _entities(topology: Topology, name: FaultName) -> Sequence[str]:
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


def _draw(
    rng: np.random.Generator, name: FaultName, entity: str, rate: FaultRate, hours: float
) -> ScriptedFault:
    ramp = _log_uniform(rng, rate.ramp_s)
    lasting = _log_uniform(rng, rate.lasting_s)
    return ScriptedFault(
        name=name,
        entity=entity,
        at_s=float(rng.uniform(0.0, hours * _HOUR)),
        ramp_s=ramp,
        duration_s=ramp * FAULT_KINDS[name].needed_at + lasting,
        severity=float(rng.uniform(*rate.severity)),
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
