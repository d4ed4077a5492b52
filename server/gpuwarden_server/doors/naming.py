"""Which node and which GPU the labels of a series or an alert name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuwarden_exporters.identity import gpu_uuid_of
from gpuwarden_kernel_log.pci import canonical_pci
from gpuwarden_server.core.ids import is_node_id

_GPU_LABELS = ("UUID", "gpu_uuid", "uuid", "GPU_UUID")
_PORT = re.compile(r":\d+$")


def node_of(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The node by the first of some labels that names one; "" where none does.

    A port is cut off: "gpu-17:9400" and "gpu-17:9100" are one node.
    """
    for name in names:
        node_id = _PORT.sub("", labels.get(name, "").strip())
        if node_id and is_node_id(node_id):
            return node_id
    return ""


def gpu_of(labels: Mapping[str, str]) -> str:
    """UUID of the GPU that labels name, in NVML's spelling; "" where they name none."""
    return next((uuid for name in _GPU_LABELS if (uuid := gpu_uuid_of(labels.get(name, "")))), "")


def slot_of(labels: Mapping[str, str]) -> str:
    """PCI address that labels name, dddd:bb:dd.f; "" where they name none."""
    return canonical_pci(labels.get("pci_bus_id", "").strip()) or ""
