"""PCIe errors that a GPU, or the kernel at its address, counts."""

from __future__ import annotations

from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity

A_MINUTE = 8.0
"""PCIe replays a minute from which DCGM's health check warns (DCGM_LIMIT_MAX_PCIREPLAY_RATE)."""

PCIE_FATAL = GrowthDetector(
    name="pcie_fatal_errors",
    version=1,
    metrics=("gpu_pcie_fatal_errors_total", "gpu_aer_fatal_total"),
    # PCI Express base specification, 6.2.2.2: after a fatal error the link is not reliable
    limit=0.5,
    window_s=DAY_S,
    fault_class=FaultClass.BUS,
    score=0.7,
    severity=Severity.ERROR,
    says="fatal PCIe errors: the GPU may be about to fall off the bus",
    action=RecommendedAction.REBOOT_NODE,
    max_rung=Rung.EXCLUDE,
    quiet_s=DAY_S,
    trains=True,
)
PCIE_NONFATAL = GrowthDetector(
    name="pcie_nonfatal_errors",
    version=1,
    metrics=("gpu_pcie_nonfatal_errors_total", "gpu_aer_nonfatal_total"),
    # the transaction is lost, the link goes on (ibid.); one may be a probe of the driver (assumed)
    limit=2.5,
    window_s=HOUR_S,
    fault_class=FaultClass.BUS,
    score=0.45,
    severity=Severity.WARNING,
    says="PCIe transactions are lost",
    trains=True,
)
PCIE_REPLAYS = GrowthDetector(
    name="pcie_replays",
    version=1,
    metrics=("gpu_pcie_replay_total",),
    limit=A_MINUTE * 60.0,
    window_s=HOUR_S,
    fault_class=FaultClass.BUS,
    score=0.4,
    severity=Severity.WARNING,
    says="the PCIe link is marginal",
    unit="replays",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
PCIE_REPLAY_ROLLOVERS = GrowthDetector(
    name="pcie_replay_rollovers",
    version=1,
    metrics=("gpu_pcie_replay_rollover_total",),
    # PCI Express base specification, 3.6.2.1: four replays of one packet failed, the link is
    # trained anew. One may be a reset; three within an hour are the link (assumed).
    limit=2.2,
    window_s=HOUR_S,
    fault_class=FaultClass.BUS,
    score=0.45,
    severity=Severity.WARNING,
    says="the PCIe link is trained anew again and again",
    unit="replay rollovers",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
PCIE_SIGNAL_INTEGRITY = GrowthDetector(
    name="pcie_signal_integrity",
    version=1,
    metrics=(
        "gpu_aer_correctable_total",
        "gpu_pcie_correctable_errors_total",
        "gpu_pcie_receiver_errors_total",
        "gpu_pcie_lcrc_errors_total",
        "gpu_pcie_lane_errors_total",
        "gpu_pcie_tlp_errors_total",
        "gpu_pcie_dllp_errors_total",
        "gpu_pcie_naks_sent_total",
        "gpu_pcie_naks_received_total",
    ),
    # As replays, which each of them brings about. Link recoveries are not among them: a GPU that
    # changes its link speed with its load goes through recovery each time.
    limit=A_MINUTE * 60.0,
    window_s=HOUR_S,
    fault_class=FaultClass.BUS,
    score=0.35,
    severity=Severity.WARNING,
    says="the PCIe link is marginal",
    unit="corrected errors",
    action=RecommendedAction.CHECK_CABLE,
    trains=True,
)
BUS_COUNTERS = (
    PCIE_FATAL,
    PCIE_NONFATAL,
    PCIE_REPLAYS,
    PCIE_REPLAY_ROLLOVERS,
    PCIE_SIGNAL_INTEGRITY,
)
