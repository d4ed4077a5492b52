"""All numbers and the table of what may happen: what `parameters_sha256` speaks of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which something happens.

    Attributes:
        entity: Whom its label names: gpu, node, nic, mount or job.
        fault_class: As labels.csv spells it.
        share: How often it comes, against the others of faults or of confounders.
        announced: Whether readings drift or count before it.
        action: False for what nobody may be excluded for.
        stops: Whether the job that runs there fails.
        mended_by: What ends it: "gpu" (a reset), "node" (a reboot) or "" (it ends).
        lasts: Its length against the usual.
    """

    entity: str
    fault_class: str
    share: float
    announced: bool = False
    action: bool = True
    stops: bool = True
    mended_by: str = "gpu"
    lasts: float = 1.0


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "cell_cascade": Kind("gpu", "memory", 3.0, announced=True),
        "cell_snap": Kind("gpu", "memory", 3.0),
        "replay_creep": Kind("gpu", "bus", 1.5, announced=True, mended_by="node"),
        "bus_drop": Kind("gpu", "bus", 3.0, mended_by="node"),
        "lane_cascade": Kind("gpu", "nvlink", 1.5, announced=True),
        "lane_snap": Kind("gpu", "nvlink", 1.5),
        "firmware_stutter": Kind("gpu", "driver", 1.0, announced=True),
        "firmware_halt": Kind("gpu", "driver", 2.0),
        "paste_dryout": Kind("gpu", "thermal", 1.0, announced=True, stops=False),
        "cooling_step": Kind("gpu", "thermal", 1.0, stops=False),
        "brake_bursts": Kind("gpu", "power", 1.0, announced=True, stops=False),
        "supply_step": Kind("gpu", "power", 1.0, stops=False),
        "optics_decay": Kind("nic", "nic", 1.5, announced=True, mended_by=""),
        "cable_pull": Kind("nic", "nic", 1.5, mended_by=""),
        "host_memory_creep": Kind("node", "host", 1.0, announced=True, mended_by="node"),
        "host_freeze": Kind("node", "host", 1.0, mended_by="node"),
        "filer_creep": Kind("mount", "storage", 0.3, announced=True, stops=False, mended_by=""),
        "filer_stall": Kind("mount", "storage", 0.3, stops=False, mended_by=""),
        "power_cap": Kind("node", "power", 2.0, action=False, stops=False, mended_by=""),
        "hot_room": Kind("node", "thermal", 1.0, action=False, stops=False, mended_by=""),
        "scrape_outage": Kind(
            "node", "operator", 2.0, action=False, stops=False, mended_by="", lasts=0.25
        ),
        "driver_upgrade": Kind("node", "operator", 1.0, action=False, mended_by="node", lasts=0.3),
        "planned_reboot": Kind("node", "operator", 1.0, action=False, mended_by="node", lasts=0.15),
        "program_fault": Kind("job", "application", 5.0, action=False, mended_by=""),
        "quiet_burst": Kind("gpu", "memory", 2.0, action=False, stops=False, mended_by=""),
    }
)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of the background and of how often things happen; (median, sigma) are lognormal.

    Levels are those published of H100 fleets (busy 542-692 W, idle 70-120 W, power and temperature
    correlated 0.4-0.97); what has no published number is a choice.
    """

    faults_per_gpu_hour: float = 8e-3
    confounders_per_gpu_hour: float = 6e-3
    precursor_h: tuple[float, float] = (3.0, 0.7)
    repair_h: tuple[float, float] = (1.5, 0.6)
    notice_s: tuple[float, float] = (120.0, 0.8)
    restart_s: tuple[float, float] = (900.0, 0.6)
    run_h: tuple[float, float] = (7.0, 1.1)
    idle_h: float = 0.35
    block_tail: float = 1.1
    idle_w: tuple[float, float] = (88.0, 0.09)
    busy_w: tuple[float, float] = (645.0, 0.04)
    limit_w: float = 700.0
    idle_c: float = 29.0
    celsius_per_watt: float = 0.05
    lag_s: float = 150.0
    loose_c: tuple[float, float] = (0.8, 2.2)
    air_c: float = 2.8
    air_h: float = 3.0
    own_c: float = 2.0
    heat_tail_weight: float = 0.3
    copula: tuple[float, float] = (0.35, 0.9)
    tail_weight: float = 0.55
    wear_tail: float = 1.2
    wear_share: float = 0.06
    corrected_per_hour: float = 0.02
    replays_per_hour: float = 0.05
    flits_per_hour: float = 0.03
    symbols_per_hour: float = 0.05
    outages_per_hour: float = 0.01
    outage_s: float = 240.0
    stuck_per_hour: float = 0.002
    stuck_s: tuple[float, float] = (900.0, 0.7)
    partial_share: float = 0.05


PARAMETERS = Parameters()


def parameters_sha256() -> str:
    """Hash of all numbers and of the table of kinds."""
    told = {
        "numbers": asdict(PARAMETERS),
        "kinds": {name: asdict(one) for name, one in KINDS.items()},
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
