"""NVLink errors that a GPU counts, summed over its links; and the link to the CPU (C2C).

Either end of a link may be at fault, so that all of these are advice, until an XID or the driver's
recovery action names the end.
"""

from __future__ import annotations

from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S
from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity

CRC_A_SECOND = 100.0
"""DCGM's health check fails an NVLink beyond (DCGM_LIMIT_MAX_NVLINK_CRC_ERROR)."""
WORST_BER = 1e-12
"""Bit errors that remain after correction. InfiniBand and PCI Express ask for fewer than this of
any link; NVIDIA publishes no limit for NVLink."""

NVLINK_CRC = GrowthDetector(
    name="nvlink_crc_errors",
    version=1,
    metrics=("gpu_nvlink_crc_errors_total", "gpu_nvlink_errors_total"),
    # so many for six minutes; what is faster gets there sooner
    limit=CRC_A_SECOND * HOUR_S / 10.0,
    window_s=HOUR_S,
    fault_class=FaultClass.NVLINK,
    score=0.5,
    severity=Severity.WARNING,
    says="NVLink packets arrive broken",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
NVLINK_REPLAYS = GrowthDetector(
    name="nvlink_replays",
    version=1,
    metrics=("gpu_nvlink_dl_replays_total",),
    # DCGM's health check takes a single replay for an error; one may be training (assumed)
    limit=2.5,
    window_s=HOUR_S,
    fault_class=FaultClass.NVLINK,
    score=0.4,
    severity=Severity.WARNING,
    says="NVLink packets are sent again",
    unit="replays",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
NVLINK_RECOVERIES = GrowthDetector(
    name="nvlink_recoveries",
    version=1,
    metrics=(
        "gpu_nvlink_dl_recoveries_total",
        "gpu_nvlink_recoveries_total",
        "gpu_nvlink_recovery_events_total",
    ),
    limit=2.2,  # as a NIC port flaps: two never reach it, three within forty minutes do
    window_s=HOUR_S,
    fault_class=FaultClass.NVLINK,
    score=0.5,
    severity=Severity.WARNING,
    says="an NVLink falls and comes back",
    unit="recoveries",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
NVLINK_RECOVERIES_FAILED = GrowthDetector(
    name="nvlink_recoveries_failed",
    version=1,
    metrics=("gpu_nvlink_recoveries_failed_total",),
    # NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS: the link stays down until a reset
    limit=0.5,
    window_s=DAY_S,
    fault_class=FaultClass.NVLINK,
    score=0.7,
    severity=Severity.ERROR,
    says="an NVLink could not recover",
    unit="failed recoveries",
    action=RecommendedAction.RESET_GPU,
    max_rung=Rung.EXCLUDE,
    quiet_s=DAY_S,
    trains=True,
)
NVLINK_PACKET_ERRORS = GrowthDetector(
    name="nvlink_packet_errors",
    version=1,
    metrics=(
        "gpu_nvlink_malformed_packets_total",
        "gpu_nvlink_buffer_overruns_total",
        "gpu_nvlink_receive_errors_total",
        "gpu_nvlink_general_errors_total",
        "gpu_nvlink_integrity_errors_total",
        "gpu_nvlink_effective_errors_total",
        "gpu_nvlink_ecc_errors_total",
    ),
    # What is left after forward error correction: none is usual (assumed). Symbol errors are
    # corrected ones, discards are congestion, remote errors the far end's: none is read here.
    limit=10.0,
    window_s=HOUR_S,
    fault_class=FaultClass.NVLINK,
    score=0.4,
    severity=Severity.WARNING,
    says="NVLink errors are left after correction",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
NVLINK_EFFECTIVE_BER = StateDetector(
    name="nvlink_effective_ber",
    version=1,
    metric="gpu_nvlink_effective_ber_ratio",
    fault_class=FaultClass.NVLINK,
    limit=WORST_BER,
    score=0.5,
    severity=Severity.WARNING,
    says="bit errors are left after correction on an NVLink",
    action=RecommendedAction.CHECK_CABLE,
    max_rung=Rung.SUSPECT,
    after_boot=False,
)
NVLINK_SYMBOL_BER = StateDetector(
    name="nvlink_symbol_ber",
    version=1,
    metric="gpu_nvlink_symbol_ber_ratio",
    fault_class=FaultClass.NVLINK,
    limit=WORST_BER,
    score=0.4,
    severity=Severity.WARNING,
    says="symbol errors are left after correction on an NVLink",
    action=RecommendedAction.CHECK_CABLE,
    max_rung=Rung.SUSPECT,
    after_boot=False,
)
C2C_ERRORS = GrowthDetector(
    name="c2c_errors",
    version=1,
    metrics=("gpu_c2c_errors_total",),
    # XID 121 tells corrected ones, which NVIDIA ignores; this counter holds what was interrupted
    limit=2.5,
    window_s=HOUR_S,
    fault_class=FaultClass.NVLINK,
    score=0.4,
    severity=Severity.WARNING,
    says="the link to the CPU has errors",
    trains=True,
)
NVLINK_COUNTERS = (
    NVLINK_CRC,
    NVLINK_REPLAYS,
    NVLINK_RECOVERIES,
    NVLINK_RECOVERIES_FAILED,
    NVLINK_PACKET_ERRORS,
    NVLINK_EFFECTIVE_BER,
    NVLINK_SYMBOL_BER,
    C2C_ERRORS,
)
