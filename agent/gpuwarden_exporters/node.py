"""node_exporter: its series by the collector that makes them.

So far as both have a reading, these rules and the native collectors give the same metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gpuwarden_exporters.mounts import MOUNTSTATS, mount_meaning, mount_point
from gpuwarden_exporters.rules import (
    INCOMPLETE,
    NOTHING,
    Meaning,
    Parts,
    Rule,
    Target,
    difference,
)
from gpuwarden_wire.readings import Reading, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME

NODE = "node_"
_Labels = Mapping[str, str]

_KIBI = 1024.0
_IFF_UP = 0x1  # linux/if.h


def _carrier(parts: Parts) -> Reading:
    """As the native collector judges: switched off is no reading, "unknown" asks the carrier."""
    flags, state = parts.get("flags"), parts.get("operstate")
    if isinstance(flags, float | int) and not int(flags) & _IFF_UP:
        return Unavailable("administratively_down")
    if isinstance(state, float | int) and state >= 0:
        return state
    return parts.get("carrier", INCOMPLETE)


def _speed(parts: Parts) -> Reading:
    speed = next(iter(parts.values()))
    if isinstance(speed, float | int) and speed <= 0:  # -1 Mb/s: no link
        return Unavailable("speed_unknown")
    return speed


# Prefix of the series' names and the rules by the rest, for each collector of node_exporter.
# `sticks_at` as in the InfiniBand specification 1, 16.1.3.5; data counters are words of 4 bytes
# there and bytes here. _memory_ has KiB as bytes, _vmstat_pgpgout keeps the kernel's KiB.
_STICKS_AT_32_BIT_WORDS = ((1 << 32) - 1) * 4
NODE_COLLECTORS: Mapping[str, tuple[str, Mapping[str, Rule]]] = MappingProxyType(
    {
        "loadavg": ("node_", {"load1": Rule("node_load1")}),
        "meminfo": (
            "node_memory_",
            {
                "MemAvailable_bytes": Rule("node_memory_available_bytes"),
                "MemTotal_bytes": Rule("node_memory_total_bytes"),
                "SwapTotal_bytes": Rule("node_swap_used_bytes", part="whole", combine=difference),
                "SwapFree_bytes": Rule("node_swap_used_bytes", part="off", combine=difference),
            },
        ),
        "stat": (
            "node_",
            {
                "procs_running": Rule("node_processes_running"),
                "procs_blocked": Rule("node_processes_blocked"),
                "intr_total": Rule("node_interrupts_total"),
                "context_switches_total": Rule("node_context_switches_total"),
                "boot_time_seconds": Rule("node_uptime_seconds", part="off", combine=difference),
            },
        ),
        "time": (
            "node_",
            {"time_seconds": Rule("node_uptime_seconds", part="whole", combine=difference)},
        ),
        "vmstat": ("node_vmstat_", {"pgpgout": Rule("node_pages_out_bytes_total", _KIBI)}),
        "pressure": (
            "node_pressure_",
            {
                "cpu_waiting_seconds_total": Rule("node_pressure_cpu_seconds_total"),
                "io_waiting_seconds_total": Rule("node_pressure_io_seconds_total"),
                "io_stalled_seconds_total": Rule("node_pressure_io_full_seconds_total"),
                "memory_waiting_seconds_total": Rule("node_pressure_memory_seconds_total"),
                "memory_stalled_seconds_total": Rule("node_pressure_memory_full_seconds_total"),
            },
        ),
        "kernel_hung": ("node_kernel_", {"hung_tasks_total": Rule("node_hung_tasks_total")}),
        "edac": (
            "node_edac_",
            {
                "correctable_errors_total": Rule(
                    "node_memory_corrected_errors_total", split_by=("controller",)
                ),
                "uncorrectable_errors_total": Rule(
                    "node_memory_uncorrected_errors_total", split_by=("controller",)
                ),
            },
        ),
        "diskstats": (
            "node_disk_",
            {
                "reads_completed_total": Rule("disk_reads_completed_total"),
                "read_bytes_total": Rule("disk_read_bytes_total"),
                "read_time_seconds_total": Rule("disk_read_seconds_total"),
                "writes_completed_total": Rule("disk_writes_completed_total"),
                "written_bytes_total": Rule("disk_written_bytes_total"),
                "write_time_seconds_total": Rule("disk_write_seconds_total"),
                "io_now": Rule("disk_in_flight"),
                "io_time_seconds_total": Rule("disk_io_seconds_total"),
                "io_time_weighted_seconds_total": Rule("disk_io_weighted_seconds_total"),
                "flush_requests_total": Rule("disk_flushes_completed_total"),
                "flush_requests_time_seconds_total": Rule("disk_flush_seconds_total"),
            },
        ),
        "netdev": (
            "node_network_",
            {
                "receive_bytes_total": Rule("nic_received_bytes_total"),
                "transmit_bytes_total": Rule("nic_transmitted_bytes_total"),
                "receive_errs_total": Rule("nic_receive_errors_total"),
                "transmit_drop_total": Rule("nic_transmit_discards_total"),
            },
        ),
        "netclass": (
            "node_network_",
            {
                "carrier_changes_total": Rule("nic_carrier_changes_total"),
                "speed_bytes": Rule("nic_rate_bytes_per_second", combine=_speed),
                "flags": Rule("nic_carrier", part="flags", combine=_carrier),
                "carrier": Rule("nic_carrier", part="carrier", combine=_carrier),
                "info": Rule("nic_carrier", part="operstate", combine=_carrier),
            },
        ),
        "infiniband": (
            "node_infiniband_",
            {
                "state_id": Rule("nic_port_state"),
                "physical_state_id": Rule("nic_port_physical_state"),
                "rate_bytes_per_second": Rule("nic_rate_bytes_per_second"),
                "port_data_received_bytes_total": Rule(
                    "nic_received_bytes_total", sticks_at=_STICKS_AT_32_BIT_WORDS
                ),
                "port_data_transmitted_bytes_total": Rule(
                    "nic_transmitted_bytes_total", sticks_at=_STICKS_AT_32_BIT_WORDS
                ),
                "link_downed_total": Rule("nic_link_downed_total", sticks_at=0xFF),
                "link_error_recovery_total": Rule("nic_link_error_recovery_total", sticks_at=0xFF),
                "symbol_error_total": Rule("nic_symbol_errors_total", sticks_at=0xFFFF),
                "port_errors_received_total": Rule("nic_receive_errors_total", sticks_at=0xFFFF),
                "port_discards_transmitted_total": Rule(
                    "nic_transmit_discards_total", sticks_at=0xFFFF
                ),
                "port_transmit_wait_total": Rule("nic_transmit_wait_total", sticks_at=0xFFFFFFFF),
                "local_link_integrity_errors_total": Rule(
                    "nic_local_link_integrity_errors_total", sticks_at=0xF
                ),
                "excessive_buffer_overrun_errors_total": Rule(
                    "nic_buffer_overruns_total", sticks_at=0xF
                ),
                "vl15_dropped_total": Rule("nic_vl15_dropped_total", sticks_at=0xFFFF),
                "port_receive_remote_physical_errors_total": Rule(
                    "nic_receive_remote_physical_errors_total", sticks_at=0xFFFF
                ),
                "port_receive_switch_relay_errors_total": Rule(
                    "nic_receive_switch_relay_errors_total", sticks_at=0xFFFF
                ),
                "port_constraint_errors_received_total": Rule(
                    "nic_receive_constraint_errors_total", sticks_at=0xFF
                ),
                "port_constraint_errors_transmitted_total": Rule(
                    "nic_transmit_constraint_errors_total", sticks_at=0xFF
                ),
                # hw_counters, since node_exporter 1.9
                "out_of_sequence_packets_received_total": Rule("nic_out_of_sequence_total"),
                "packet_sequence_errors_total": Rule("nic_packet_sequence_errors_total"),
                "implied_nak_seq_errors_total": Rule("nic_implied_nak_sequence_errors_total"),
                "local_ack_timeout_errors_total": Rule("nic_local_ack_timeouts_total"),
                "rnr_nak_retry_packets_received_total": Rule("nic_rnr_nak_retries_total"),
                "out_of_buffer_drops_total": Rule("nic_out_of_buffer_total"),
                "np_ecn_marked_roce_packets_received_total": Rule("nic_ecn_marked_packets_total"),
                "np_cnp_packets_sent_total": Rule("nic_cnp_sent_total"),
                "rp_cnp_packets_handled_total": Rule("nic_cnp_handled_total"),
                "rp_cnp_ignored_packets_received_total": Rule("nic_cnp_ignored_total"),
                "roce_adp_retransmits_total": Rule("nic_adaptive_retransmits_total"),
                "roce_adp_retransmits_timeout_total": Rule(
                    "nic_adaptive_retransmit_timeouts_total"
                ),
                "roce_slow_restart_used_total": Rule("nic_slow_restarts_total"),
                "roce_slow_restart_cnps_total": Rule("nic_slow_restart_cnps_total"),
                "roce_slow_restart_total": Rule("nic_slow_restart_transitions_total"),
                "req_cqes_errors_total": Rule("nic_request_completion_errors_total"),
                "resp_cqes_errors_total": Rule("nic_response_completion_errors_total"),
                "req_remote_access_errors_total": Rule("nic_request_remote_access_errors_total"),
                "resp_remote_access_errors_total": Rule("nic_response_remote_access_errors_total"),
            },
        ),
    }
)


def _by_name() -> dict[str, tuple[str, Rule]]:
    return {
        prefix + rest: (collector, rule)
        for collector, (prefix, rules) in NODE_COLLECTORS.items()
        for rest, rule in rules.items()
    }


_RULES = MappingProxyType(_by_name())
_OPERSTATES = MappingProxyType({"up": 1.0, "unknown": -1.0})  # all others: no link

# Labels do not tell a physical interface from one of software, so that names must: what container
# networks, bridges, bonds, tunnels and VLANs are called, and virtual functions ("eth0v3").
_SOFTWARE_INTERFACE = re.compile(
    r"lo|.*\..*|(?:veth|docker|br|cni|cali|flannel|cilium|lxc|virbr|vnet|tap|tun|bond|team|dummy|"
    r"ifb|ovs|gre|gretap|erspan|sit|ip6tnl|ip6gre|ip6_vti|tunl|vxlan|geneve|wg|nodelocaldns|"
    r"kube-|macvlan|ipvlan|vcan|can|lxd|podman|azv|gke|eni)[\w-]*|\w+?\d+(?:np\d+)?v\d+"
)
# "nvme0n1", "sda", "vdb" are whole; "nvme0n1p2", "sda1" are parts; md, dm, loop are software.
_WHOLE_DISK = re.compile(r"nvme\d+n\d+|(?:sd|vd|xvd|hd)[a-z]+|mmcblk\d+|pmem\d+")


def _node_entity(labels: _Labels) -> str | None:
    return ""


def _port(labels: _Labels) -> str | None:
    device, port = labels.get("device"), labels.get("port")
    return f"{device}/{port}" if device and port else None


def _interface(labels: _Labels) -> str | None:
    device = labels.get("device") or None
    return None if device and _SOFTWARE_INTERFACE.fullmatch(device) else device


def _disk(labels: _Labels) -> str | None:
    device = labels.get("device", "")
    return device if _WHOLE_DISK.fullmatch(device) else None


_ENTITIES: Mapping[str, Callable[[_Labels], str | None]] = MappingProxyType(
    {"infiniband": _port, "netdev": _interface, "netclass": _interface, "diskstats": _disk}
)


def node_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a series of node_exporter means to us."""
    if name == "node_scrape_collector_success":
        return Meaning(success_of=labels.get("collector", ""))
    if name == "node_uname_info":
        return Meaning(host=labels.get("nodename", ""))
    if (mounted := mount_point(name, labels)) is not None:
        return Meaning(mounted=mounted)
    if name.startswith(MOUNTSTATS):
        return mount_meaning(name, labels)
    if (found := _RULES.get(name)) is None:
        return NOTHING
    collector, rule = found
    entity = _ENTITIES.get(collector, _node_entity)(labels)
    if entity is None:
        return NOTHING
    part = "/".join((rule.part, *(labels.get(label, "") for label in rule.split_by)))
    constant = None
    if name == "node_network_info":
        constant = _OPERSTATES.get(labels.get("operstate", ""), 0.0)
    kind = METRIC_BY_NAME[rule.metric].entity_kind
    return Meaning(
        (Target(kind, entity, rule, part, constant=constant, made_by=collector),),
    )
