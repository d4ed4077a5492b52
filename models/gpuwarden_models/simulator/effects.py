"""What active faults do to the hardware in one step."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]


class Effects:
    """Made anew for each step.

    Attributes:
        cooling: Factor on thermal resistance, shape (GPUs,), 1 where sound.
        inlet_celsius: Added to the air, shape (GPUs,).
        ecc_corrected_per_hour: Added to the rate, shape (GPUs,).
        power_limit_watts: Enforced limit, shape (GPUs,).
        capped: GPUs whose software power cap shows, and nothing else, shape (GPUs,).
        training: GPUs whose links train after a boot, shape (GPUs,).
        silent: Nodes whose readings do not arrive, shape (nodes,).
        down: Nodes without power or in reboot: silent, and nothing happens there, shape (nodes,).
        driver_away_s: Seconds for which the driver has not answered, shape (nodes,), 0 where it
            does; readings of GPUs do not arrive then.
        ports_down: NICs without link, shape (GPUs,).
        storage_share: Share of its capacity that the NFS server has left.
    """

    __slots__ = (
        "capped",
        "cooling",
        "down",
        "driver_away_s",
        "ecc_corrected_per_hour",
        "inlet_celsius",
        "ports_down",
        "power_limit_watts",
        "silent",
        "storage_share",
        "training",
    )

    def __init__(self, gpus: int, nodes: int, power_limit_watts: float) -> None:
        self.cooling: Floats = np.ones(gpus)
        self.inlet_celsius: Floats = np.zeros(gpus)
        self.ecc_corrected_per_hour: Floats = np.zeros(gpus)
        self.power_limit_watts: Floats = np.full(gpus, power_limit_watts)
        self.capped: Flags = np.zeros(gpus, dtype=np.bool_)
        self.training: Flags = np.zeros(gpus, dtype=np.bool_)
        self.silent: Flags = np.zeros(nodes, dtype=np.bool_)
        self.down: Flags = np.zeros(nodes, dtype=np.bool_)
        self.driver_away_s: Floats = np.zeros(nodes)
        self.ports_down: Flags = np.zeros(gpus, dtype=np.bool_)
        self.storage_share = 1.0
