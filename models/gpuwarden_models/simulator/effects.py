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
        sram_corrected_per_hour: The same.
        replays_per_hour: The same, PCIe.
        aer_correctable_per_hour: The same, correctable PCIe errors.
        nvlink_errors_per_hour: The same.
        nvlink_recoveries_per_hour: The same.
        links_lost: NVLinks that are inactive, shape (GPUs,).
        lanes: PCIe lanes that are left, shape (GPUs,), 16 where sound.
        brake: Share of the clock that a hardware power brake takes, shape (GPUs,).
        watts_noise: Standard deviation that is added to the draw, shape (GPUs,).
        clock_share: Factor on the clock that no reason tells of, shape (GPUs,).
        watts_share: Factor on the draw above idle, shape (GPUs,).
        memory_share: Factor on the memory's utilisation, shape (GPUs,).
        probe_factor: Factor on the time of a probe, shape (GPUs,).
        power_limit_watts: Enforced limit, shape (GPUs,).
        capped: GPUs whose software power cap shows, and nothing else, shape (GPUs,).
        training: GPUs whose links train after a boot, shape (GPUs,).
        mute: GPUs whose readings do not arrive, shape (GPUs,).
        silent: Nodes whose readings do not arrive, shape (nodes,).
        down: Nodes without power or in reboot: silent, and nothing happens there, shape (nodes,).
        driver_away_s: Seconds for which the driver has not answered, shape (nodes,), 0 where it
            does; readings of GPUs do not arrive then.
        late: Nodes whose readings are held back, shape (nodes,).
        host_missing: Readings of hosts that are missing, shape (columns, nodes).
        host_collapse: Share by which interrupts and runnable programs fall, shape (nodes,).
        pages_out: Bytes a second that go out to disk for want of memory, shape (nodes,).
        memory_corrected_per_hour: Added to the rate of host memory, shape (nodes,).
        disk_slower: Factor less 1 on the time of the first drive's requests, shape (nodes,).
        media_errors_per_hour: Of the first drive, shape (nodes,).
        disk_gone: Nodes whose first drive does not answer, shape (nodes,).
        ports_down: NICs without link, shape (GPUs,).
        symbol_errors_per_hour: Added to the NIC's rate, shape (GPUs,).
        recoveries_per_hour: The same.
        rate_share: Factor on the NIC's rate, shape (GPUs,).
        storage_share: Share of its capacity that the NFS server has left.
    """

    def __init__(self, gpus: int, nodes: int, power_limit_watts: float, host_columns: int) -> None:
        self.cooling, self.clock_share, self.watts_share = np.ones((3, gpus))
        self.memory_share, self.probe_factor, self.rate_share = np.ones((3, gpus))
        self.inlet_celsius, self.brake, self.watts_noise = np.zeros((3, gpus))
        self.ecc_corrected_per_hour, self.sram_corrected_per_hour = np.zeros((2, gpus))
        self.replays_per_hour, self.aer_correctable_per_hour = np.zeros((2, gpus))
        self.nvlink_errors_per_hour, self.nvlink_recoveries_per_hour = np.zeros((2, gpus))
        self.symbol_errors_per_hour, self.recoveries_per_hour = np.zeros((2, gpus))
        self.links_lost: Floats = np.zeros(gpus)
        self.lanes: Floats = np.full(gpus, 16.0)
        self.power_limit_watts: Floats = np.full(gpus, power_limit_watts)
        self.capped: Flags = np.zeros(gpus, dtype=np.bool_)
        self.training: Flags = np.zeros(gpus, dtype=np.bool_)
        self.mute: Flags = np.zeros(gpus, dtype=np.bool_)
        self.ports_down: Flags = np.zeros(gpus, dtype=np.bool_)
        self.silent: Flags = np.zeros(nodes, dtype=np.bool_)
        self.down: Flags = np.zeros(nodes, dtype=np.bool_)
        self.late: Flags = np.zeros(nodes, dtype=np.bool_)
        self.disk_gone: Flags = np.zeros(nodes, dtype=np.bool_)
        self.host_missing: Flags = np.zeros((host_columns, nodes), dtype=np.bool_)
        self.driver_away_s, self.host_collapse = np.zeros((2, nodes))
        self.pages_out, self.memory_corrected_per_hour = np.zeros((2, nodes))
        self.disk_slower, self.media_errors_per_hour = np.zeros((2, nodes))
        self.storage_share = 1.0
