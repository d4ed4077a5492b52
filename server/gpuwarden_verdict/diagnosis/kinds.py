"""What a diagnosis may blame. Imports nothing: plants that play faults name them by it."""

from __future__ import annotations

from enum import StrEnum


class CulpritKind(StrEnum):
    """What makes a job slow."""

    GPU = "gpu"  # one GPU: power, clock, heat or PCIe
    HOST = "host"  # the CPU side of one node
    NIC = "nic"  # one NIC, or one rail
    FABRIC = "fabric"  # a leaf switch, or the network as a whole
    DISK = "disk"  # a local disk
    MOUNT_CLIENT = "mount_client"  # one client of a mount
    STORAGE = "storage"  # the server of a mount, or the RPC layer of its clients
    INPUT = "input"  # the job's own input pipeline
    IMBALANCE = "imbalance"  # the job gives its ranks unequal work
    NOTHING = "nothing"  # nothing abnormal
