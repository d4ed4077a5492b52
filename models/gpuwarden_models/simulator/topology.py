"""What the simulated fleet is made of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

# Bus numbers of the eight GPUs of an HGX H100 board, as DGX H100 systems list them.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
NODES_PER_RACK = 4
_RACKS_PER_LEAF = 4
_RACKS_PER_POWER = 8
DISKS = ("nvme0n1", "nvme1n1")
EXPORTS: Mapping[str, str] = MappingProxyType({"/checkpoints": "nfs-01:/export/checkpoints"})
"""Export of each NFS mount point; every node has them all."""


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One GPU: identity as NVML gives it, and where it sits."""

    gpu_uuid: str
    serial: str
    pci_bus_id: str
    index: int
    node: int
    nic: str

    def next_part(self, number: int) -> SimulatedGpu:
        """The part that takes its slot as the `number`th after the first."""
        name = f"gpuwarden-simulated/{self.gpu_uuid}/{number}"
        identity = uuid.uuid5(uuid.NAMESPACE_URL, name)
        return replace(self, gpu_uuid=f"GPU-{identity}", serial=_serial(identity))


@dataclass(frozen=True)
class Topology:
    """Nodes in order; GPUs, NICs and disks node after node, so that a node is a slice of rows.

    Attributes:
        nodes: Names.
        racks: Rack of each node.
        leaves: Leaf switch of each node.
        powers: Power domain of each node.
        gpus: All GPUs.
        gpus_per_node: The same for every node; each GPU has its NIC.
    """

    nodes: tuple[str, ...]
    racks: tuple[str, ...]
    leaves: tuple[str, ...]
    powers: tuple[str, ...]
    gpus: tuple[SimulatedGpu, ...]
    gpus_per_node: int

    @cached_property
    def gpu_node(self) -> NDArray[np.int64]:
        """Node index of each GPU, shape (GPUs,)."""
        return np.repeat(np.arange(len(self.nodes)), self.gpus_per_node)

    @cached_property
    def gpu_row(self) -> Mapping[str, int]:
        """Row of each GPU by UUID."""
        return MappingProxyType({gpu.gpu_uuid: row for row, gpu in enumerate(self.gpus)})

    @cached_property
    def node_row(self) -> Mapping[str, int]:
        """Row of each node by name."""
        return MappingProxyType({node: row for row, node in enumerate(self.nodes)})

    @cached_property
    def nic_wire_keys(self) -> tuple[str, ...]:
        """NIC of each GPU as its node names it: "mlx5_0/1"."""
        return tuple(gpu.nic for gpu in self.gpus)

    @cached_property
    def nic_row(self) -> Mapping[str, int]:
        """Row of each NIC by its name over the fleet: "node/mlx5_0/1"."""
        return MappingProxyType(
            {f"{self.nodes[gpu.node]}/{gpu.nic}": row for row, gpu in enumerate(self.gpus)}
        )

    @cached_property
    def places(self) -> Mapping[str, NDArray[np.int64]]:
        """Nodes behind each place: "rack:NAME", "leaf:NAME", "power:NAME", "mount:POINT"."""
        found: dict[str, list[int]] = {}
        kinds = (("rack", self.racks), ("leaf", self.leaves), ("power", self.powers))
        for kind, names in kinds:
            for node, name in enumerate(names):
                found.setdefault(f"{kind}:{name}", []).append(node)
        for point in EXPORTS:
            found[f"mount:{point}"] = list(range(len(self.nodes)))
        return MappingProxyType({place: np.array(nodes) for place, nodes in found.items()})

    def nodes_at(self, place: str) -> NDArray[np.int64]:
        """Nodes behind a place; "*" is all of them.

        Raises:
            KeyError: There is no such place.
        """
        return np.arange(len(self.nodes)) if place == "*" else self.places[place]

    def nodes_in_rack(self, rack: str) -> tuple[str, ...]:
        """Names of the nodes in a rack."""
        return tuple(node for node, at in zip(self.nodes, self.racks, strict=True) if at == rack)


def build_topology(nodes: int, gpus_per_node: int, seed: int) -> Topology:
    """A fleet of equal nodes, four a rack, four racks a leaf, eight racks a power domain.

    Args:
        nodes: Number of nodes, at least 1.
        gpus_per_node: 1 to 8.
        seed: Makes UUIDs and serials; equal seeds give equal fleets.

    Raises:
        ValueError: A number is out of range; the message says which and what to use.
    """
    if nodes < 1:
        raise ValueError(f"nodes is {nodes}: a fleet has at least 1 node")
    if not 1 <= gpus_per_node <= len(_BUSES):
        raise ValueError(f"gpus_per_node is {gpus_per_node}: use 1 to {len(_BUSES)}")
    names = tuple(f"gpu-{number:04d}" for number in range(1, nodes + 1))
    racks = tuple(f"rack-{row // NODES_PER_RACK + 1:02d}" for row in range(nodes))
    per_leaf = NODES_PER_RACK * _RACKS_PER_LEAF
    leaves = tuple(f"leaf-{row // per_leaf + 1:02d}" for row in range(nodes))
    per_power = NODES_PER_RACK * _RACKS_PER_POWER
    powers = tuple(f"power-{row // per_power + 1:02d}" for row in range(nodes))
    gpus = tuple(_gpu(seed, node, index) for node in range(nodes) for index in range(gpus_per_node))
    return Topology(names, racks, leaves, powers, gpus, gpus_per_node)


def _serial(identity: uuid.UUID) -> str:
    return f"165{identity.int % 10**10:010d}"


def _gpu(seed: int, node: int, index: int) -> SimulatedGpu:
    name = f"gpuwarden-simulated/{seed}/{node}/{index}"
    identity = uuid.uuid5(uuid.NAMESPACE_URL, name)
    return SimulatedGpu(
        gpu_uuid=f"GPU-{identity}",
        serial=_serial(identity),
        pci_bus_id=f"0000:{_BUSES[index]:02x}:00.0",
        index=index,
        node=node,
        nic=f"mlx5_{index}/1",
    )
