"""Holds what the simulator makes against what published fleets show."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_models.simulator.calibration.codes import Codes, code_rates, codes_of, telling
from gpuwarden_models.simulator.calibration.levels import levels
from gpuwarden_models.simulator.calibration.stories import concentration, stops
from gpuwarden_models.simulator.fault_names import FaultName
from gpuwarden_models.simulator.parameters import MECHANISMS, PUBLISHED, GpuModel, Published

__all__ = ["LARGE", "QUICK", "Marginal", "Size", "measure"]

_DELTA_MILLION_HOURS = 17.4  # 848 GPUs for 855 days, of whose XID 95 one GPU said 99 %


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated.

    Attributes:
        level_nodes: Nodes of the fleet whose levels are measured.
        level_hours: Its length.
        faults: Faults of each mechanism whose codes are counted.
        fleet_nodes: Nodes of the fleet whose story is drawn.
        fleet_years: Its length.
    """

    level_nodes: int
    level_hours: float
    faults: int
    fleet_nodes: int
    fleet_years: float


QUICK = Size(16, 9.0, 24, 1000, 3.0)
LARGE = Size(64, 48.0, 400, 4000, 5.0)


@dataclass(frozen=True, slots=True)
class Marginal:
    """One figure beside the published one.

    Attributes:
        name: As in the parameters' table `published`.
        published: What is published, and between what the simulated one has to lie.
        simulated: What the simulator makes.
    """

    name: str
    published: Published
    simulated: float

    @property
    def within(self) -> bool:
        """Whether it lies where it has to."""
        low, high = self.published.bounds
        return low <= self.simulated <= high


def measure(size: Size, seed: int = 3) -> tuple[Marginal, ...]:
    """All figures, in the order of the parameters' file; equal arguments give equal figures."""
    found = levels(GpuModel.H100, size.level_nodes, size.level_hours, seed)
    others = levels(GpuModel.A100, size.level_nodes, size.level_hours, seed)
    found |= {f"a100_{key}": value for key, value in others.items()}
    codes = {name: codes_of(name, size.faults, seed) for name in telling()}
    for model, before in ((GpuModel.H100, ""), (GpuModel.A100, "a100_")):
        rates = code_rates(model, codes)
        found |= {f"{before}xid_{xid}_per_million": rate for xid, rate in rates.items()}
    found |= stops() | _propagation(codes)
    found |= concentration(size.fleet_nodes, size.fleet_years, seed)
    return tuple(Marginal(name, PUBLISHED[name], found[name]) for name in PUBLISHED)


def _faults_in_delta(name: FaultName) -> int:
    """How many faults of a mechanism a fleet has that is as large as the published one."""
    return round(_DELTA_MILLION_HOURS * MECHANISMS[name].per_million_hours[GpuModel.A100])


def _propagation(codes: dict[FaultName, Codes]) -> dict[str, float]:
    links, storm = codes[FaultName.NVLINK_DOWN], codes[FaultName.UNCONTAINED_ERROR]
    return {
        "mmu_after_pmu_share": codes[FaultName.PMU_FAILURE].follows,
        "unusable_after_gsp_share": codes[FaultName.GSP_TIMEOUT].idle_after,
        "nvlink_reach_share": links.reach(2),
        "nvlink_many_share": links.reach(4),
        "storm_top_share": storm.top_share(95, _faults_in_delta(FaultName.UNCONTAINED_ERROR)),
    }
