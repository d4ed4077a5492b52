"""How each fault unfolds: one function a fault, called once a step while the fault lasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.common_causes import ADVANCE_COMMON, END_COMMON
from gpuwarden_models.simulator.fault_names import FaultName
from gpuwarden_models.simulator.faults import (
    bus,
    confounders,
    driver,
    host,
    memory,
    nic,
    nvlink,
    power,
    storage,
    straggler,
    thermal,
)
from gpuwarden_models.simulator.faults.repairs import end_fault, take_out
from gpuwarden_models.simulator.world import World

__all__ = ["ADVANCE", "END", "end_fault", "take_out"]

_Advance: TypeAlias = Callable[[ActiveFault, World, float], None]
_End: TypeAlias = Callable[[ActiveFault, World], None]

ADVANCE: Mapping[FaultName, _Advance] = MappingProxyType(
    {
        **ADVANCE_COMMON,
        FaultName.ROW_REMAP_FAILURE: memory.row_remap_failure,
        FaultName.ECC_WEAR: memory.ecc_wear,
        FaultName.UNCONTAINED_ERROR: memory.uncontained_error,
        FaultName.SRAM_ERRORS: memory.sram_errors,
        FaultName.BENIGN_ECC: memory.benign_ecc,
        FaultName.GPU_OFF_BUS: bus.gpu_off_bus,
        FaultName.PCIE_DEGRADATION: bus.pcie_degradation,
        FaultName.PCIE_FATAL: bus.pcie_fatal,
        FaultName.NVLINK_DEGRADATION: nvlink.nvlink_degradation,
        FaultName.NVLINK_DOWN: nvlink.nvlink_down,
        FaultName.NVSWITCH_FATAL: nvlink.nvswitch_fatal,
        FaultName.BENIGN_LINK_NOISE: nvlink.benign_link_noise,
        FaultName.GSP_TIMEOUT: driver.gsp_timeout,
        FaultName.PMU_FAILURE: driver.pmu_failure,
        FaultName.PMU_HALT: driver.pmu_halt,
        FaultName.HUNG_KERNEL: driver.hung_kernel,
        FaultName.STRAGGLER_CLOCK: straggler.straggler_clock,
        FaultName.STRAGGLER_MEMORY: straggler.straggler_memory,
        FaultName.SLOW_OVERHEATING: thermal.slow_overheating,
        FaultName.COOLING_FAILURE: thermal.cooling_failure,
        FaultName.AIRFLOW_LOSS: thermal.airflow_loss,
        FaultName.POWER_BRAKE: power.power_brake,
        FaultName.VRM_WEAR: power.vrm_wear,
        FaultName.NIC_PORT_DOWN: nic.nic_port_down,
        FaultName.NIC_FLAPPING: nic.nic_flapping,
        FaultName.NIC_DOWNTRAIN: nic.nic_downtrain,
        FaultName.BENIGN_SYMBOL_NOISE: nic.benign_symbol_noise,
        FaultName.NVME_WEAR: storage.nvme_wear,
        FaultName.NVME_CONTROLLER_DOWN: storage.nvme_controller_down,
        FaultName.HOST_STALL: host.host_stall,
        FaultName.CPU_LOCKUP: host.cpu_lockup,
        FaultName.HOST_MEMORY_WEAR: host.host_memory_wear,
        FaultName.HOST_MEMORY_NOISE: host.host_memory_noise,
        FaultName.APPLICATION_BURST: confounders.application_burst,
        FaultName.APPLICATION_FAULT: confounders.application_fault,
        FaultName.HOT_AISLE: confounders.hot_aisle,
        FaultName.POWER_CAP: confounders.power_cap,
        FaultName.MISSING_SCRAPES: confounders.missing_scrapes,
        FaultName.EXPORTER_RESTART: confounders.missing_scrapes,
        FaultName.EXPORTER_HANG: confounders.exporter_hang,
        FaultName.DRIVER_RELOAD: confounders.driver_reload,
        FaultName.PARTIAL_READINGS: confounders.partial_readings,
        FaultName.LATE_READINGS: confounders.late_readings,
        FaultName.COUNTER_RESET: confounders.counter_reset,
        FaultName.MAINTENANCE_DRAIN: confounders.maintenance_drain,
        FaultName.INPUT_WAIT: confounders.input_wait,
    }
)
"""By fault: what it does in a step."""

END: Mapping[FaultName, _End] = MappingProxyType(
    {
        **END_COMMON,
        FaultName.DRIVER_RELOAD: confounders.driver_loaded,
        FaultName.EXPORTER_HANG: confounders.exporter_answers,
    }
)
"""By fault: what its end brings beside the repair."""
