"""Features of network ports: state, rate, errors on the wire, loss, pauses, their own PCIe link."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.measures import below_rail, largest_rate, times_rail
from gpuwarden_verdict.detectors.nic_planes import any_state, is_up, pauses
from gpuwarden_verdict.detectors.peer_deviation import rails
from gpuwarden_verdict.detectors.scene import combined
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.making import (
    column,
    deviation,
    events_1h,
    events_24h,
    grown_1h,
    grown_24h,
    measured,
    of_its_node,
    risen,
    settled,
)
from gpuwarden_verdict.features.scene import Column, Look, made
from gpuwarden_verdict.features.standing import calm_share, leaves, ledger_columns
from gpuwarden_verdict.features.trouble import nic_troubled, node_troubled
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows.planes import F32, I64

NIC_VERSION = 2

_DOWNED = ("nic_link_downed_total", "nic_phy_link_downs_total", "nic_carrier_changes_total")
_SYMBOLS = (
    "nic_symbol_errors_total",
    "nic_phy_symbol_errors_total",
    "nic_phy_pcs_symbol_errors_total",
)
_INTEGRITY = (
    "nic_local_link_integrity_errors_total",
    "nic_link_error_recovery_total",
    "nic_buffer_overruns_total",
)
_LOST = (
    "nic_out_of_sequence_total",
    "nic_packet_sequence_errors_total",
    "nic_implied_nak_sequence_errors_total",
    "nic_adaptive_retransmits_total",
)
_UNANSWERED = (
    "nic_local_ack_timeouts_total",
    "nic_transport_retries_exceeded_total",
    "nic_adaptive_retransmit_timeouts_total",
)
_PCIE_LOST = ("nic_aer_nonfatal_total", "nic_aer_fatal_total")


@made("1 while the port is down, 0 while it is up")
def _down(look: Look) -> F32:
    """1 while the port is down, 0 while it is up; NaN where neither is known."""
    known = ~np.isnan(look.latest("nic_port_state")) | ~np.isnan(look.latest("nic_carrier"))
    return np.where(known, ~is_up(look), np.nan).astype(np.float32)


def _job_rails(look: Look) -> I64:
    """The same port on the nodes of the same job."""
    return combined(look.jobs(), rails(look))


_NOT_UP = "unread, or the port is down"


def _below(what: str) -> str:
    return f"share of {what} that it lacks, of the same port of other nodes or of its own best"


_wire = partial(column, plane=Plane.COUNTERS, fault=FaultClass.NIC)
_structure = partial(column, plane=Plane.STRUCTURE, fault=FaultClass.NIC)
_peer = partial(column, plane=Plane.PEERS, fault=FaultClass.NIC)
_event = partial(column, plane=Plane.EVENTS, fault=FaultClass.NIC)

NIC_COLUMNS: tuple[Column, ...] = (
    _structure("port_down", make=settled(_down), cheap=True),
    _structure(
        "rate_deficit_ratio",
        make=settled(
            measured(below_rail("nic_rate_bytes_per_second", is_up), _below("its rate"), _NOT_UP)
        ),
    ),
    _structure(
        "pcie_width_deficit_ratio",
        make=settled(
            measured(below_rail("nic_pcie_link_width", any_state), _below("lanes of PCIe"))
        ),
    ),
    _structure(
        "pcie_generation_deficit_ratio",
        make=settled(
            measured(below_rail("nic_pcie_link_generation", any_state), _below("speed of PCIe"))
        ),
    ),
    _wire("link_downed_1h", make=grown_1h(*_DOWNED), cheap=True),
    _wire("link_downed_24h", make=grown_24h(*_DOWNED), cheap=True),
    _wire("symbol_errors_1h", make=grown_1h(*_SYMBOLS), cheap=True),
    _wire("symbol_errors_24h", make=grown_24h(*_SYMBOLS), cheap=True),
    _wire("symbol_errors_rise_1h", make=risen(*_SYMBOLS)),
    _wire("integrity_errors_1h", make=grown_1h(*_INTEGRITY), cheap=True),
    _wire("receive_errors_1h", make=grown_1h("nic_receive_errors_total"), cheap=True),
    _wire("transmit_discards_1h", make=grown_1h("nic_transmit_discards_total")),
    _wire("packets_lost_1h", make=grown_1h(*_LOST), cheap=True),
    _wire("packets_lost_rise_1h", make=risen(*_LOST)),
    _wire("ack_timeouts_1h", make=grown_1h(*_UNANSWERED), cheap=True),
    _wire("ack_timeouts_24h", make=grown_24h(*_UNANSWERED)),
    column(
        "out_of_buffer_1h",
        Plane.COUNTERS,
        FaultClass.HOST,
        grown_1h("nic_out_of_buffer_total", "nic_rnr_nak_retries_total"),
    ),
    _wire(
        "pause_sent_ratio",
        make=measured(largest_rate(*pauses("sent")), "share of the time that it stops others"),
    ),
    column(
        "pause_received_ratio",
        Plane.COUNTERS,
        FaultClass.FABRIC,
        measured(largest_rate(*pauses("received")), "share of the time that it is told to pause"),
    ),
    _wire("pcie_corrected_1h", make=grown_1h("nic_aer_correctable_total")),
    _wire("pcie_uncorrected_24h", make=grown_24h(*_PCIE_LOST), cheap=True),
    _peer(
        "corrected_bits_to_rail_ratio",
        make=measured(
            times_rail("nic_phy_corrected_bits_total"),
            "corrected bits a second, in times of the same port of other nodes",
        ),
    ),
    _peer(
        "receive_deficit_ratio",
        make=deviation(
            "nic_receive_peers", "share by which it receives less than the same port of its job"
        ),
    ),
    _peer(
        "transmit_deficit_ratio",
        make=deviation(
            "nic_transmit_peers", "share by which it sends less than the same port of its job"
        ),
    ),
    _event("nic_events_1h", make=events_1h(EventGroup.NIC), cheap=True),
    _event("nic_events_24h", make=events_24h(EventGroup.NIC), cheap=True),
    _peer(
        "job_ports_calm_ratio",
        make=calm_share(_job_rails, nic_troubled, "the same ports of the job's other nodes"),
    ),
    _peer(
        "leaf_calm_ratio",
        make=of_its_node(calm_share(leaves, node_troubled, "the leaf switch's other nodes")),
    ),
    *ledger_columns(FaultClass.NIC),
)
"""How each is made, in the order of the matrix."""
