"""How drawn faults fall on parts, places and time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.fault_names import FAULT_KINDS
from gpuwarden_models.simulator.parameters import MECHANISMS, GpuModel
from gpuwarden_models.simulator.schedule import calibrated, random_story
from gpuwarden_models.simulator.topology import NODES_PER_RACK, build_topology
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind

_DAY_S = 86_400.0
_RECURS_WITHIN_DAYS = 365.0  # what comes later on the same GPU is another fault
_NOT_THE_GPU = frozenset({FaultClass.NIC, FaultClass.STORAGE, FaultClass.HOST, FaultClass.FABRIC})


def stops() -> dict[str, float]:
    """Faults that need action, by 10^6 GPU-hours of H100s."""
    gpu = hardware = 0.0
    for name, kind in FAULT_KINDS.items():
        if kind.action_needed and not kind.common:
            rate = MECHANISMS[name].per_million_hours[GpuModel.H100]
            hardware += rate
            gpu += rate if kind.fault_class not in _NOT_THE_GPU else 0.0
    return {"gpu_caused_stops_per_million": gpu, "hardware_stops_per_million": hardware}


def concentration(nodes: int, years: float, seed: int) -> dict[str, float]:
    """Faults of GPUs of a large fleet over years, at the rates of life.

    Args:
        nodes: Size of the fleet, 8 GPUs a node.
        years: Length.
        seed: Equal arguments give equal figures.
    """
    topology = build_topology(nodes, 8, seed)
    rates = calibrated(GpuModel.H100, topology, common=False)
    wanted = {
        name: rate
        for name, rate in rates.items()
        if FAULT_KINDS[name].entity_kind is EntityKind.GPU and FAULT_KINDS[name].action_needed
    }
    story = random_story(topology, years * 365.0 * 24.0, seed, wanted)
    rows = np.array([topology.gpu_row[fault.entity] for fault in story])
    at_s = np.array([fault.at_s for fault in story])
    kinds = np.array([list(FAULT_KINDS).index(fault.name) for fault in story])
    order = np.lexsort((at_s, kinds, rows))
    same = (np.diff(rows[order]) == 0) & (np.diff(kinds[order]) == 0)
    gaps = np.diff(at_s[order])[same] / _DAY_S
    recurring = gaps[gaps <= _RECURS_WITHIN_DAYS]
    counts = np.sort(np.bincount(rows, minlength=len(topology.gpus)))[::-1]
    height = (rows // 8) % NODES_PER_RACK
    return {
        "repeats_within_30_days_share": float((recurring <= 30.0).mean()),
        "repeats_within_90_days_share": float((recurring <= 90.0).mean()),
        "worst_1_percent_share": _top(counts, 0.01),
        "worst_5_percent_share": _top(counts, 0.05),
        "top_of_rack_ratio": float((height == NODES_PER_RACK - 1).sum() / (height == 0).sum()),
    }


def _top(counts: NDArray[np.int64], share: float) -> float:
    return float(counts[: round(share * counts.size)].sum() / counts.sum())
