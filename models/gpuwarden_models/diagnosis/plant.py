"""What a case is made of: nodes, leaves, a shared mount, jobs, and the state of every part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

GPUS = 8
NIC_BYTES = 50e9
"""400 Gb/s."""
REQUEST = 1_048_576.0
BLOCK = 131_072.0
ANSWER_S = 0.004
"""Of the file server at ease."""
SLOTS = 64.0
WANTS_BYTES = 2.5e9
"""What a node writes or reads of a mount at most."""
DISK_S = 9e-5
MOUNTS = ("/scratch", "/home")
"""The one that jobs read and write, and one that people use."""


@dataclass(slots=True, eq=False)
class Parts:
    """State of every part at one moment; 1 or 0 is sound.

    Attributes:
        clock: Factor on each GPU's clock, shape (GPUs,).
        heat: Share of the time in which heat holds the clock, shape (GPUs,).
        watts_limit: Power limit, shape (GPUs,).
        lanes: PCIe lanes, shape (GPUs,).
        link: Factor on what each NIC carries, shape (GPUs,).
        trained: Factor on the rate that it shows, shape (GPUs,).
        lost: Packets lost or damaged a minute at full traffic, shape (GPUs,).
        jam: Factor on the wait to send, shape (GPUs,).
        cpu: Share of its CPUs that a host has left, shape (nodes,).
        stuck: Whether a host that is slow hangs in the kernel, and not for want of CPUs, (nodes,).
        disk: Factor on the time of a disk's request, shape (nodes,).
        client_s: Added to each answer that a client gets, seconds, shape (nodes,).
        client_lost: Share of a client's requests that is sent again, shape (nodes,).
        server: Share of its capacity that the file server has.
        credits: Share of its capacity for which it grants credits to its clients: what is short of
            them waits in the clients.
        server_lost: Share of all clients' requests that is sent again.
        server_from: Clients at work at once from which `server` and `credits` hold.
    """

    clock: Floats
    heat: Floats
    watts_limit: Floats
    lanes: Floats
    link: Floats
    trained: Floats
    lost: Floats
    jam: Floats
    cpu: Floats
    stuck: Floats
    disk: Floats
    client_s: Floats
    client_lost: Floats
    server: float = 1.0
    credits: float = 1.0
    server_lost: float = 0.0
    server_from: int = 0


def sound(nodes: int) -> Parts:
    """Parts without a fault."""
    gpus = nodes * GPUS
    return Parts(
        clock=np.ones(gpus),
        heat=np.zeros(gpus),
        watts_limit=np.full(gpus, 700.0),
        lanes=np.full(gpus, 16.0),
        link=np.ones(gpus),
        trained=np.ones(gpus),
        lost=np.zeros(gpus),
        jam=np.ones(gpus),
        cpu=np.ones(nodes),
        stuck=np.zeros(nodes),
        disk=np.ones(nodes),
        client_s=np.zeros(nodes),
        client_lost=np.zeros(nodes),
    )


@dataclass(slots=True, eq=False)
class Work:
    """A job: what each of its steps takes of whom.

    Attributes:
        name: "slurm:ID".
        nodes: Its nodes, one after the other.
        compute_s: Time of a step's arithmetic on a sound GPU.
        talk_bytes: What each NIC sends a step.
        copy_s: Time of a step's copies to the GPU over sixteen lanes.
        prepare_s: Time of the CPU side for a step; hidden behind the GPUs while it is shorter.
        feed_bytes: What a node reads of the mount a step.
        cache_bytes: What it reads of its disk a step.
        save_every_s: From the end of a checkpoint to the next.
        save_bytes: Size of a checkpoint a node.
        pause_every_s: From one evaluation to the next, 0 for none.
        share: Work of each GPU against the usual, shape (GPUs of the job,).
        presses: Share of the time in which its programs wait for a CPU of their own doing.
        tells: Whether it tells its step times.
        watts: Draw of each GPU at full effort, shape (GPUs of the job,).
    """

    name: str
    nodes: Ints
    compute_s: float
    talk_bytes: float
    copy_s: float
    prepare_s: float
    feed_bytes: float
    cache_bytes: float
    save_every_s: float
    save_bytes: float
    pause_every_s: float
    share: Floats
    presses: float
    tells: bool
    watts: Floats
    saving: Floats = field(default_factory=lambda: np.zeros(0))
    next_save_s: float = 0.0

    @property
    def gpus(self) -> Ints:
        """Rows of its GPUs, which are those of their NICs."""
        rows: Ints = (self.nodes[:, None] * GPUS + np.arange(GPUS)).ravel()
        return rows


@dataclass(slots=True, eq=False)
class Site:
    """One case's plant.

    Attributes:
        nodes: Number of nodes.
        leaf: Leaf of each node, shape (nodes,).
        works: Jobs, on nodes of their own.
        server_bytes: What the file server gives and takes in all, bytes a second.
    """

    nodes: int
    leaf: Ints
    works: list[Work]
    server_bytes: float
