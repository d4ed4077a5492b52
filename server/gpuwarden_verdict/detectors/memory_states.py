"""What the driver says of a GPU's memory and board, by one state each.

Sources: NVIDIA, GPU Memory Error Management ("RMA policy", "Row remapping", "RAS repair for GPU
memory"); the NVML reference for states that the guide does not name.
"""

from __future__ import annotations

from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence

_PENDING_SCORE = 0.6
"""As `row_remap_pending`: what is broken is out of use, the reset can wait for the job's end."""


def _pending(name: str, metric: str, says: str) -> StateDetector:
    return StateDetector(
        name=name,
        version=1,
        metric=metric,
        fault_class=FaultClass.MEMORY,
        score=_PENDING_SCORE,
        severity=Severity.WARNING,
        action=RecommendedAction.RESET_GPU,
        says=says,
    )


BANK_REMAP_PENDING = _pending(
    "bank_remap_pending", "gpu_bank_remap_pending", "a bank remap waits for a GPU reset"
)
CHANNEL_REPAIR_PENDING = _pending(
    "channel_repair_pending",
    "gpu_channel_repair_pending",
    "the repair of a memory channel waits for a GPU reset",
)
TPC_REPAIR_PENDING = _pending(
    "tpc_repair_pending",
    "gpu_tpc_repair_pending",
    "the repair of a processing cluster waits for a GPU reset",
)
RETIRED_PAGES_PENDING = _pending(
    "retired_pages_pending",
    "gpu_retired_pages_pending",
    "the retirement of a memory page waits for a GPU reset",
)
SRAM_THRESHOLD = StateDetector(
    name="sram_threshold",
    version=1,
    metric="gpu_sram_threshold_exceeded",
    fault_class=FaultClass.MEMORY,
    # Set after more than 4 unique uncorrectable errors in one bank of parity-protected SRAM, more
    # than 2 where it has SEC-DED: "RMA policy". Of XID 48's workflow: if set, run the field diag.
    score=0.9,
    severity=Severity.CRITICAL,
    persistence=Persistence.PART,
    action=RecommendedAction.REPAIR,
    says="NVIDIA's limit of uncorrectable SRAM errors is exceeded (criterion for an RMA)",
)
MEMORY_UNREPAIRABLE = StateDetector(
    name="memory_unrepairable",
    version=1,
    metric="gpu_memory_unrepairable",
    fault_class=FaultClass.MEMORY,
    # nvmlDeviceGetUnrepairableMemoryFlag_v1: neither remapping nor channel repair could help
    score=0.97,
    severity=Severity.CRITICAL,
    persistence=Persistence.PART,
    action=RecommendedAction.REPAIR,
    says="the driver calls the memory unrepairable (criterion for an RMA)",
)
ROW_REMAP_BANKS_NONE = StateDetector(
    name="row_remap_banks_none",
    version=1,
    metric="gpu_row_remap_banks_none",
    fault_class=FaultClass.MEMORY,
    # "RMA policy": a remap in a bank that has eight already sets the failure flag. Until then the
    # GPU works, so it is advice: plan its replacement.
    score=0.5,
    severity=Severity.WARNING,
    max_rung=Rung.SUSPECT,
    says="memory banks have no spare row left: the next error there cannot be remapped",
)
ROW_REMAP_BANKS_LOW = StateDetector(
    name="row_remap_banks_low",
    version=1,
    metric="gpu_row_remap_banks_low",
    fault_class=FaultClass.MEMORY,
    # below the score of advice (0.3): shown as an incident, and a support to other evidence
    score=0.25,
    severity=Severity.WARNING,
    max_rung=Rung.SUSPECT,
    says="memory banks have few spare rows left",
)
BANK_SPARES_NONE = StateDetector(
    name="bank_spares_none",
    version=1,
    metric="gpu_bank_remap_spares_none",
    fault_class=FaultClass.MEMORY,
    score=0.4,
    severity=Severity.WARNING,
    max_rung=Rung.SUSPECT,
    says="memory channels have no spare bank left",
)
INFOROM_INVALID = StateDetector(
    name="inforom_invalid",
    version=1,
    metric="gpu_inforom_valid",
    fault_class=FaultClass.UNKNOWN,
    # nvmlDeviceValidateInforom; DCGM's health check fails a GPU for it and asks to flash it anew
    # (DCGM_FR_CORRUPT_INFOROM). Remaps can no longer be recorded; running work is not touched.
    limit=0.0,
    below=True,
    score=0.5,
    severity=Severity.WARNING,
    max_rung=Rung.SUSPECT,
    says="the board's InfoROM is corrupted: it cannot record memory errors any more",
)
MEMORY_STATES = (
    SRAM_THRESHOLD,
    MEMORY_UNREPAIRABLE,
    BANK_REMAP_PENDING,
    CHANNEL_REPAIR_PENDING,
    TPC_REPAIR_PENDING,
    RETIRED_PAGES_PENDING,
    ROW_REMAP_BANKS_NONE,
    ROW_REMAP_BANKS_LOW,
    BANK_SPARES_NONE,
    INFOROM_INVALID,
)
