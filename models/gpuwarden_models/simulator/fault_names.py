"""The faults and confounders that the simulator knows, and what each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind


class FaultName(StrEnum):
    """Mechanisms of faults, then confounders; `parameters.toml` says in a line what each is."""

    ROW_REMAP_FAILURE = "row_remap_failure"
    ECC_WEAR = "ecc_wear"
    UNCONTAINED_ERROR = "uncontained_error"
    SRAM_ERRORS = "sram_errors"
    GPU_OFF_BUS = "gpu_off_bus"
    PCIE_DEGRADATION = "pcie_degradation"
    PCIE_FATAL = "pcie_fatal"
    NVLINK_DEGRADATION = "nvlink_degradation"
    NVLINK_DOWN = "nvlink_down"
    NVSWITCH_FATAL = "nvswitch_fatal"
    GSP_TIMEOUT = "gsp_timeout"
    PMU_FAILURE = "pmu_failure"
    PMU_HALT = "pmu_halt"
    HUNG_KERNEL = "hung_kernel"
    STRAGGLER_CLOCK = "straggler_clock"
    STRAGGLER_MEMORY = "straggler_memory"
    SLOW_OVERHEATING = "slow_overheating"
    COOLING_FAILURE = "cooling_failure"
    AIRFLOW_LOSS = "airflow_loss"
    POWER_BRAKE = "power_brake"
    VRM_WEAR = "vrm_wear"
    NIC_PORT_DOWN = "nic_port_down"
    NIC_FLAPPING = "nic_flapping"
    NIC_DOWNTRAIN = "nic_downtrain"
    NVME_WEAR = "nvme_wear"
    NVME_CONTROLLER_DOWN = "nvme_controller_down"
    HOST_STALL = "host_stall"
    CPU_LOCKUP = "cpu_lockup"
    HOST_MEMORY_WEAR = "host_memory_wear"
    APPLICATION_BURST = "application_burst"
    APPLICATION_FAULT = "application_fault"
    HOT_AISLE = "hot_aisle"
    POWER_CAP = "power_cap"
    MISSING_SCRAPES = "missing_scrapes"
    DRIVER_RELOAD = "driver_reload"
    EXPORTER_RESTART = "exporter_restart"
    EXPORTER_HANG = "exporter_hang"
    PARTIAL_READINGS = "partial_readings"
    LATE_READINGS = "late_readings"
    COUNTER_RESET = "counter_reset"
    BENIGN_ECC = "benign_ecc"
    BENIGN_LINK_NOISE = "benign_link_noise"
    BENIGN_SYMBOL_NOISE = "benign_symbol_noise"
    HOST_MEMORY_NOISE = "host_memory_noise"
    MAINTENANCE_DRAIN = "maintenance_drain"
    INPUT_WAIT = "input_wait"
    # One cause that many entities show; `common_causes` has them.
    LEAF_REBOOT = "leaf_reboot"
    MOUNT_STALL = "mount_stall"
    FACILITY_OUTAGE = "facility_outage"
    PLANNED_REBOOT = "planned_reboot"
    DRIVER_UPGRADE = "driver_upgrade"
    CRASH_STORM = "crash_storm"
    CHECKPOINT_BURST = "checkpoint_burst"
    SOFTWARE_POWER_CAP = "software_power_cap"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What a fault is.

    Attributes:
        entity_kind: What `ScriptedFault.entity` names. For HOT_AISLE the entity is any node of the
            rack. Where it is a place, "leaf:NAME", "rack:NAME", "power:NAME" or "mount:POINT". For
            both, "*" is all nodes.
        fault_class: Where the fault lies.
        action_needed: False for confounders: nobody may be excluded for them.
        common: One cause that many entities show.
    """

    entity_kind: EntityKind
    fault_class: FaultClass
    action_needed: bool = True
    common: bool = False


_GPU, _NODE, _NIC = EntityKind.GPU, EntityKind.NODE, EntityKind.NIC
_PLACE = EntityKind.PLACE
_C = FaultClass
FAULT_KINDS: Mapping[FaultName, FaultKind] = MappingProxyType(
    {
        FaultName.ROW_REMAP_FAILURE: FaultKind(_GPU, _C.MEMORY),
        FaultName.ECC_WEAR: FaultKind(_GPU, _C.MEMORY),
        FaultName.UNCONTAINED_ERROR: FaultKind(_GPU, _C.MEMORY),
        FaultName.SRAM_ERRORS: FaultKind(_GPU, _C.MEMORY),
        FaultName.GPU_OFF_BUS: FaultKind(_GPU, _C.BUS),
        FaultName.PCIE_DEGRADATION: FaultKind(_GPU, _C.BUS),
        FaultName.PCIE_FATAL: FaultKind(_GPU, _C.BUS),
        FaultName.NVLINK_DEGRADATION: FaultKind(_GPU, _C.NVLINK),
        FaultName.NVLINK_DOWN: FaultKind(_GPU, _C.NVLINK),
        FaultName.NVSWITCH_FATAL: FaultKind(_NODE, _C.NVLINK),
        FaultName.GSP_TIMEOUT: FaultKind(_GPU, _C.DRIVER),
        FaultName.PMU_FAILURE: FaultKind(_GPU, _C.DRIVER),
        FaultName.PMU_HALT: FaultKind(_GPU, _C.DRIVER),
        FaultName.HUNG_KERNEL: FaultKind(_GPU, _C.DRIVER),
        FaultName.STRAGGLER_CLOCK: FaultKind(_GPU, _C.UNKNOWN),
        FaultName.STRAGGLER_MEMORY: FaultKind(_GPU, _C.UNKNOWN),
        FaultName.SLOW_OVERHEATING: FaultKind(_GPU, _C.THERMAL),
        FaultName.COOLING_FAILURE: FaultKind(_GPU, _C.THERMAL),
        FaultName.AIRFLOW_LOSS: FaultKind(_NODE, _C.THERMAL),
        FaultName.POWER_BRAKE: FaultKind(_NODE, _C.POWER),
        FaultName.VRM_WEAR: FaultKind(_GPU, _C.POWER),
        FaultName.NIC_PORT_DOWN: FaultKind(_NIC, _C.NIC),
        FaultName.NIC_FLAPPING: FaultKind(_NIC, _C.NIC),
        FaultName.NIC_DOWNTRAIN: FaultKind(_NIC, _C.NIC),
        FaultName.NVME_WEAR: FaultKind(_NODE, _C.STORAGE),
        FaultName.NVME_CONTROLLER_DOWN: FaultKind(_NODE, _C.STORAGE),
        FaultName.HOST_STALL: FaultKind(_NODE, _C.HOST),
        FaultName.CPU_LOCKUP: FaultKind(_NODE, _C.HOST),
        FaultName.HOST_MEMORY_WEAR: FaultKind(_NODE, _C.HOST),
        FaultName.APPLICATION_BURST: FaultKind(_NODE, _C.APPLICATION, False),
        FaultName.APPLICATION_FAULT: FaultKind(_GPU, _C.APPLICATION, False),
        FaultName.HOT_AISLE: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.POWER_CAP: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.MISSING_SCRAPES: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.DRIVER_RELOAD: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.EXPORTER_RESTART: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.EXPORTER_HANG: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.PARTIAL_READINGS: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.LATE_READINGS: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.COUNTER_RESET: FaultKind(_GPU, _C.OPERATOR, False),
        FaultName.BENIGN_ECC: FaultKind(_GPU, _C.MEMORY, False),
        FaultName.BENIGN_LINK_NOISE: FaultKind(_GPU, _C.NVLINK, False),
        FaultName.BENIGN_SYMBOL_NOISE: FaultKind(_NIC, _C.NIC, False),
        FaultName.HOST_MEMORY_NOISE: FaultKind(_NODE, _C.HOST, False),
        FaultName.MAINTENANCE_DRAIN: FaultKind(_NODE, _C.OPERATOR, False),
        FaultName.INPUT_WAIT: FaultKind(_NODE, _C.APPLICATION, False),
        FaultName.LEAF_REBOOT: FaultKind(_PLACE, _C.FABRIC, True, True),
        FaultName.MOUNT_STALL: FaultKind(_PLACE, _C.STORAGE, True, True),
        FaultName.FACILITY_OUTAGE: FaultKind(_PLACE, _C.POWER, False, True),
        FaultName.PLANNED_REBOOT: FaultKind(_PLACE, _C.OPERATOR, False, True),
        FaultName.DRIVER_UPGRADE: FaultKind(_PLACE, _C.OPERATOR, False, True),
        FaultName.CRASH_STORM: FaultKind(_NODE, _C.APPLICATION, False, True),
        FaultName.CHECKPOINT_BURST: FaultKind(_PLACE, _C.APPLICATION, False, True),
        FaultName.SOFTWARE_POWER_CAP: FaultKind(_PLACE, _C.OPERATOR, False, True),
    }
)
