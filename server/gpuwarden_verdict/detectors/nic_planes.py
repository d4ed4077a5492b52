"""Ports: trained down, errors on the wire, loss on RoCE, pauses, their own PCIe link.

Any of them is advice: what a port loses, a job survives slower. Where more than a quarter of the
ports of one name in a pool show the same, the fabric is the cause and no port is told of.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import DAY_S
from gpuwarden_verdict.detectors.measures import (
    below_rail,
    growth_an_hour,
    largest_rate,
    times_rail,
)
from gpuwarden_verdict.detectors.reading import Bool
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.detectors.statistic import StatisticDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_wire.metrics import EntityKind

_ACTIVE = 4.0  # /sys/class/infiniband/D/ports/P/state
_PRIORITIES = range(8)


def is_up(scene: Scene) -> Bool:
    """Ports that are up by whichever of the two states they have."""
    with np.errstate(invalid="ignore"):
        up: Bool = (scene.latest("nic_port_state") == _ACTIVE) | (
            np.isnan(scene.latest("nic_port_state")) & (scene.latest("nic_carrier") == 1.0)
        )
    return up


def any_state(scene: Scene) -> Bool:
    """All ports, up or down."""
    return np.ones(len(scene.view), np.bool_)


_detector = partial(
    StatisticDetector,
    version=1,
    kind=EntityKind.NIC,
    fault_class=FaultClass.NIC,
    plane=Plane.COUNTERS,
    severity=Severity.WARNING,
    action=RecommendedAction.CHECK_CABLE,
)


def _errors(
    name: str,
    limits: LimitRule,
    score: float,
    what: str,
    *metrics: str,
    fault_class: FaultClass = FaultClass.NIC,
    action: RecommendedAction = RecommendedAction.CHECK_CABLE,
) -> StatisticDetector:
    return _detector(
        name=name,
        what=what,
        needs=metrics,
        measure=growth_an_hour(*metrics),
        limits=limits,
        score=score,
        says=f"port {{entity}}: {what}, {{value:.3g}} in an hour ({{limit:.3g}} would be odd)",
        clear_says="{value:.3g} in an hour",
        fault_class=fault_class,
        action=action,
    )


def pauses(way: str) -> tuple[str, ...]:
    """Seconds of pauses "sent" or "received", by priority."""
    return tuple(f"nic_pause_{way}_priority{n}_seconds_total" for n in _PRIORITIES)


NIC_PLANES: tuple[StatisticDetector | GrowthDetector, ...] = (
    _detector(
        name="nic_downtrained",
        what="a port that is up at less than its rate",
        needs=("nic_rate_bytes_per_second",),
        measure=below_rail("nic_rate_bytes_per_second", is_up),
        limits=LimitRule("ratio", 0.2, 0.1, 0.9, persist_s=120.0, budget=None),
        plane=Plane.STRUCTURE,
        score=0.6,
        says="port {entity} is up at {own:.3g} bytes a second where {usual:.3g} are usual:"
        " lanes or speed are lost",
        clear_says="{own:.3g} bytes a second",
    ),
    *(
        _detector(
            name=f"nic_pcie_{what}",
            what=f"a NIC whose PCIe link lost {what}",
            needs=(metric,),
            measure=below_rail(metric, any_state),
            limits=LimitRule("ratio", 0.1, 0.1, 0.9, persist_s=600.0, budget=None),
            plane=Plane.STRUCTURE,
            score=0.5,
            says=f"the PCIe link of NIC {{entity}} has {what} {{own:.0f}} where {{usual:.0f}} is"
            " usual",
            clear_says="{own:.0f}",
            action=RecommendedAction.INVESTIGATE,
        )
        for what, metric in (
            ("width", "nic_pcie_link_width"),
            ("generation", "nic_pcie_link_generation"),
        )
    ),
    _errors(
        "nic_symbol_errors",
        LimitRule("errors an hour", 100.0, 10.0, 1e7, persist_s=300.0, heavy=True),
        0.4,
        "symbol errors",
        "nic_symbol_errors_total",
        "nic_phy_symbol_errors_total",
        "nic_phy_pcs_symbol_errors_total",
    ),
    _errors(
        "nic_link_integrity",
        LimitRule("errors an hour", 20.0, 3.0, 1e6, persist_s=300.0, heavy=True),
        0.4,
        "the link loses its integrity",
        "nic_local_link_integrity_errors_total",
        "nic_link_error_recovery_total",
        "nic_buffer_overruns_total",
    ),
    _detector(
        name="nic_corrected_bits",
        what="a port that corrects far more bits than the same port of other nodes",
        needs=("nic_phy_corrected_bits_total",),
        measure=times_rail("nic_phy_corrected_bits_total"),
        limits=LimitRule("times the usual", 300.0, 30.0, 1e6, persist_s=600.0, heavy=True),
        plane=Plane.PEERS,
        score=0.3,
        says="port {entity} corrects {own:.3g} bits a second where {usual:.3g} are usual:"
        " optics or cable wear out",
        clear_says="{own:.3g} bits a second",
    ),
    _errors(
        "nic_packet_loss",
        LimitRule("packets an hour", 1e5, 100.0, 1e10, persist_s=300.0, heavy=True),
        0.3,
        "packets are lost or overtake each other",
        "nic_out_of_sequence_total",
        "nic_packet_sequence_errors_total",
        "nic_implied_nak_sequence_errors_total",
        "nic_adaptive_retransmits_total",
    ),
    _errors(
        "nic_ack_timeouts",
        LimitRule("timeouts an hour", 50.0, 5.0, 1e6, persist_s=60.0, heavy=True),
        0.4,
        "no acknowledgements come back",
        "nic_local_ack_timeouts_total",
        "nic_transport_retries_exceeded_total",
        "nic_adaptive_retransmit_timeouts_total",
    ),
    _errors(
        "nic_out_of_buffer",
        LimitRule("packets an hour", 1e5, 1000.0, 1e10, persist_s=300.0, heavy=True),
        0.2,
        "the host is too slow a receiver",
        "nic_out_of_buffer_total",
        "nic_rnr_nak_retries_total",
        fault_class=FaultClass.HOST,
        action=RecommendedAction.INVESTIGATE,
    ),
    _detector(
        name="nic_pause_received",
        what="a port that is told to pause for much of the time",
        needs=pauses("received"),
        measure=largest_rate(*pauses("received")),
        limits=LimitRule("ratio", 0.3, 0.1, 0.95, persist_s=300.0),
        fault_class=FaultClass.FABRIC,
        score=0.2,
        says="port {entity} is told to pause {value:.0%} of the time: congestion behind it",
        clear_says="paused {value:.0%} of the time",
        action=RecommendedAction.INVESTIGATE,
    ),
    _detector(
        name="nic_pause_sent",
        what="a port that stops others for much of the time",
        needs=pauses("sent"),
        measure=largest_rate(*pauses("sent")),
        limits=LimitRule("ratio", 0.2, 0.05, 0.95, persist_s=300.0),
        score=0.4,
        says="port {entity} tells the fabric to pause {value:.0%} of the time: it blocks others",
        clear_says="tells others to pause {value:.0%} of the time",
        action=RecommendedAction.INVESTIGATE,
    ),
    GrowthDetector(
        name="nic_pcie_errors",
        version=1,
        metrics=("nic_aer_fatal_total", "nic_aer_nonfatal_total"),
        limit=0.5,
        window_s=DAY_S,
        fault_class=FaultClass.NIC,
        score=0.4,
        severity=Severity.WARNING,
        says="uncorrected errors of the PCIe link",
        trains=True,
        kind=EntityKind.NIC,
    ),
)
