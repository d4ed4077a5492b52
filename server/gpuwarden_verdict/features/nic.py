"""Features of network ports: state, rate, errors on the wire, loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.detectors.measures import (
    Measure,
    below_rail,
    growth_a_day,
    growth_an_hour,
)
from gpuwarden_verdict.detectors.nic_planes import is_up
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.contract import Feature
from gpuwarden_verdict.features.scene import Column
from gpuwarden_verdict.signals import Plane

F32 = npt.NDArray[np.float32]

NIC_VERSION = 1


def _down(scene: Scene) -> F32:
    """1 while the port is down, 0 while it is up; NaN where neither is known."""
    known = ~np.isnan(scene.latest("nic_port_state")) | ~np.isnan(scene.latest("nic_carrier"))
    return np.where(known, ~is_up(scene), np.nan).astype(np.float32)


def _measured(measure: Measure) -> Callable[[Scene], F32]:
    return lambda scene: measure(scene).value


def _events_24h(scene: Scene) -> F32:
    return scene.view.events_24h(EventGroup.NIC, scene.now)


def _counter(name: str, measure: Measure) -> Column:
    return Column(Feature(name, Plane.COUNTERS, 1, FaultClass.NIC, cheap=True), _measured(measure))


NIC_COLUMNS: tuple[Column, ...] = (
    Column(Feature("port_down", Plane.STRUCTURE, 1, FaultClass.NIC, cheap=True), _down),
    Column(
        Feature("rate_deficit_ratio", Plane.PEERS, 1, FaultClass.NIC),
        _measured(below_rail("nic_rate_bytes_per_second", is_up)),
    ),
    _counter(
        "link_downed_24h",
        growth_a_day(
            "nic_link_downed_total", "nic_phy_link_downs_total", "nic_carrier_changes_total"
        ),
    ),
    _counter(
        "symbol_errors_1h",
        growth_an_hour("nic_symbol_errors_total", "nic_phy_symbol_errors_total"),
    ),
    _counter("receive_errors_1h", growth_an_hour("nic_receive_errors_total")),
    _counter("error_recoveries_1h", growth_an_hour("nic_link_error_recovery_total")),
    _counter(
        "retransmits_1h",
        growth_an_hour("nic_adaptive_retransmits_total", "nic_packet_sequence_errors_total"),
    ),
    Column(Feature("nic_events_24h", Plane.EVENTS, 1, FaultClass.NIC, cheap=True), _events_24h),
)
"""How each is made, in the order of the matrix."""
