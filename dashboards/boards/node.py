"""One node, or some: its GPUs, ports, disks and host side by side."""

from __future__ import annotations

from dashboards.boards.parts import Json, Query, Row, dashboard, graph, stat, table, variable

_NODE = 'node=~"$node"'
_GPU = 'node=~"$node", gpu_uuid=~"$gpu_uuid"'
_BY_GPU = "{{node}} {{gpu_uuid}}"
_BY_DEVICE = "{{node}} {{device}}"


def node() -> Json:
    """The dashboard."""
    variables = [
        variable("node", "Node", "label_values(gpuwarden_node_info, node)"),
        variable("gpu_uuid", "GPU", f"label_values(gpuwarden_gpu_info{{{_NODE}}}, gpu_uuid)"),
    ]
    rows = (_identity(), _errors(), _load(), _network(), _host())
    return dashboard("gpuwarden-node", "gpuwarden node", variables, rows)


def _rate(metric: str, labels: str) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def _identity() -> Row:
    return Row(
        "What is it, and what runs on it?",
        (
            stat(
                "GPUs present",
                "GPUs that answer the driver.",
                f"sum(gpuwarden_gpu_present{{{_GPU}}})",
            ),
            stat(
                "Uncorrected ECC",
                "Uncorrected errors since the driver was loaded.",
                f"sum(gpuwarden_gpu_ecc_uncorrected_volatile_total{{{_GPU}}})",
                alarm_at=1,
            ),
            stat(
                "Recovery action",
                "0 nothing, 1 reset, 2 reboot, 3 drain, 4 drain and reset.",
                f"max(gpuwarden_gpu_recovery_action{{{_GPU}}})",
                alarm_at=1,
            ),
            table(
                "GPUs",
                "Identity of each GPU; the serial is the part through its repairs.",
                Query(f"gpuwarden_gpu_info{{{_GPU}}}"),
                columns=("node", "index", "pci_bus_id", "model", "serial", "gpu_uuid"),
                value="present",
            ),
        ),
    )


def _errors() -> Row:
    return Row(
        "Is a part wearing out?",
        (
            graph(
                "XIDs",
                "Codes of the GPU driver since the agent's start.",
                "short",
                Query(
                    f"sum by (node, gpu_uuid, xid) (gpuwarden_xid_events_total{{{_NODE}}})",
                    "{{node}} {{gpu_uuid}} XID {{xid}}",
                ),
            ),
            graph(
                "Corrected ECC errors",
                "A rate that grows is wear; by itself it never excludes.",
                "cps",
                Query(_rate("gpuwarden_gpu_ecc_corrected_volatile_total", _GPU), _BY_GPU),
            ),
            graph(
                "Rows remapped",
                "Rows of memory replaced by spare ones, over the life of the part.",
                "short",
                Query(
                    f"gpuwarden_gpu_rows_remapped_correctable_total{{{_GPU}}}"
                    f" + gpuwarden_gpu_rows_remapped_uncorrectable_total{{{_GPU}}}",
                    _BY_GPU,
                ),
            ),
            graph(
                "PCIe replays",
                "Packets sent again: a marginal link or slot.",
                "cps",
                Query(_rate("gpuwarden_gpu_pcie_replay_total", _GPU), _BY_GPU),
            ),
        ),
    )


def _load() -> Row:
    return Row(
        "Is a GPU slow, hot or capped?",
        (
            graph(
                "Utilisation",
                "Share of time with a kernel running; 100 % at idle power is a hung kernel.",
                "percentunit",
                Query(f"gpuwarden_gpu_utilization_ratio{{{_GPU}}}", _BY_GPU),
                width=8,
            ),
            graph(
                "Power",
                "Against the others of the same job.",
                "watt",
                Query(f"gpuwarden_gpu_power_watts{{{_GPU}}}", _BY_GPU),
                width=8,
            ),
            graph(
                "Clock",
                "Of the multiprocessors, in hertz.",
                "hertz",
                Query(f"gpuwarden_gpu_sm_clock_hertz{{{_GPU}}}", _BY_GPU),
                width=8,
            ),
            graph(
                "Temperature",
                "Of the chip.",
                "celsius",
                Query(f"gpuwarden_gpu_temperature_celsius{{{_GPU}}}", _BY_GPU),
                width=8,
            ),
            graph(
                "Memory in use",
                "Of the GPU's own memory.",
                "bytes",
                Query(f"gpuwarden_gpu_memory_used_bytes{{{_GPU}}}", _BY_GPU),
                width=8,
            ),
            graph(
                "Time of the driver's answers",
                "One GPU's NVML calls; a driver that grows slow is a fault of its own.",
                "s",
                Query(f"gpuwarden_gpu_probe_seconds{{{_GPU}}}", _BY_GPU),
                width=8,
            ),
        ),
    )


def _network() -> Row:
    return Row(
        "Network and disks",
        (
            graph(
                "Received by port",
                "Rails of one job carry alike.",
                "Bps",
                Query(_rate("gpuwarden_nic_received_bytes_total", _NODE), _BY_DEVICE),
                width=8,
            ),
            graph(
                "Carrier of interfaces",
                "1 up, 0 down.",
                "short",
                Query(f"gpuwarden_nic_carrier{{{_NODE}}}", _BY_DEVICE),
                width=8,
            ),
            graph(
                "Written to disks",
                "Checkpoints show as blocks.",
                "Bps",
                Query(_rate("gpuwarden_disk_written_bytes_total", _NODE), _BY_DEVICE),
                width=8,
            ),
        ),
    )


def _host() -> Row:
    return Row(
        "Host",
        (
            graph(
                "Load, 1 minute",
                "Runnable and uninterruptible tasks.",
                "short",
                Query(f"gpuwarden_node_load1{{{_NODE}}}", "{{node}}"),
            ),
            graph(
                "Collectors",
                "Time of each collector's round.",
                "s",
                Query("gpuwarden_agent_collector_duration_seconds", "{{instance}} {{collector}}"),
            ),
        ),
    )
