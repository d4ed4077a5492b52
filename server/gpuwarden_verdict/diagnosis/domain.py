"""What a diagnosis says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_verdict.diagnosis.kinds import CulpritKind as CulpritKind
from gpuwarden_verdict.diagnosis.phases import JobPhases
from gpuwarden_verdict.diagnosis.robust import Run
from gpuwarden_verdict.entities import FaultClass

COMPONENTS = frozenset(
    {
        CulpritKind.GPU,
        CulpritKind.HOST,
        CulpritKind.NIC,
        CulpritKind.FABRIC,
        CulpritKind.DISK,
        CulpritKind.MOUNT_CLIENT,
        CulpritKind.STORAGE,
    }
)
"""Kinds that blame a piece of the plant: wrongly, that is a false blame."""

NETWORK = frozenset({CulpritKind.NIC, CulpritKind.FABRIC})

FAULT_CLASS: Mapping[CulpritKind, FaultClass] = MappingProxyType(
    {
        CulpritKind.GPU: FaultClass.UNKNOWN,
        CulpritKind.HOST: FaultClass.HOST,
        CulpritKind.NIC: FaultClass.NIC,
        CulpritKind.FABRIC: FaultClass.FABRIC,
        CulpritKind.DISK: FaultClass.STORAGE,
        CulpritKind.MOUNT_CLIENT: FaultClass.STORAGE,
        CulpritKind.STORAGE: FaultClass.STORAGE,
        CulpritKind.INPUT: FaultClass.APPLICATION,
        CulpritKind.IMBALANCE: FaultClass.APPLICATION,
        CulpritKind.NOTHING: FaultClass.UNKNOWN,
    }
)
"""Class of each kind in the words of incidents; a GPU's comes from its own detectors."""


class Layer(StrEnum):
    """Of what a culprit suffers, where its kind has several ways."""

    NONE = ""
    POWER = "power"
    CLOCK = "clock"
    THERMAL = "thermal"
    PCIE = "pcie"
    SERVER = "server"  # the file server answers slowly, and its clients' queues fill behind it
    RPC_QUEUE = "rpc_queue"  # the server answers as ever: requests wait in the clients
    RETRANSMIT = "retransmit"  # requests are lost and sent again


@dataclass(frozen=True, slots=True)
class Evidence:
    """One link of the chain.

    Attributes:
        sentence: In words and numbers.
        strength: 0..1, what it adds.
        numbers: What the sentence rests on, by name; ratios as shares of 1, times in seconds.
    """

    sentence: str
    strength: float
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """At which scale a culprit shows.

    Attributes:
        affected: Nodes that show it.
        among: Nodes that could.
        sentence: In words.
        spared_jobs: Nodes of the largest job behind it that does not suffer, None where there is
            none.
        hurt_jobs: Nodes of the smallest job behind it that suffers, None where there is none.
        calm_clients: Most clients at once that it served well, None where not known.
        strained_clients: Fewest clients at once that it served badly, None where not known.
        growth: Rank correlation of request time with clients at once, -1..1; None where not known.
    """

    affected: int
    among: int
    sentence: str
    spared_jobs: int | None = None
    hurt_jobs: int | None = None
    calm_clients: int | None = None
    strained_clients: int | None = None
    growth: float | None = None

    @property
    def share(self) -> float:
        """Share of the nodes that show it."""
        return self.affected / self.among if self.among else 0.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """One candidate.

    Attributes:
        kind: What.
        entity: Key of the part, node or place: "GPU-…", "n07", "n07/mlx5_0/1", "leaf:l3",
            "rail:4", "mount:/scratch", "fleet:" for the network as a whole; a job's name for what
            is the job's own.
        node: Node that it sits in, "" for what sits in none.
        layer: Of what it suffers.
        score: 0..1.
        run: Steps over which it shows.
        evidence: The chain, the strongest first.
        hit: Nodes that suffer from it.
        scale: At which scale it shows.
    """

    kind: CulpritKind
    entity: str
    node: str
    layer: Layer
    score: float
    run: Run
    evidence: tuple[Evidence, ...]
    hit: tuple[str, ...]
    scale: Scale


@dataclass(frozen=True, slots=True)
class Acquittal:
    """What was looked at and is not the cause.

    Attributes:
        what: "GPUs", "network" and so on.
        sentence: Why, in numbers; or that it could not be read.
        read: Whether it could be read at all: what could not is not acquitted.
    """

    what: str
    sentence: str
    read: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer.

    Attributes:
        job: Whose, "" for the fleet.
        kind: What the first culprit is; NOTHING where nothing is abnormal; None where the evidence
            does not decide.
        confidence: 0..1, how sure of `kind`.
        line: In one line.
        culprits: All candidates of note, the likeliest first; with None they are what to look at.
        acquitted: What was excluded.
        phases: What the job did; None for the fleet.
        slow: Steps over which the job was slower than by its own past, None where it was not.
        lost: Share of its pace that was lost over `slow`.
        blind: What could not be seen, in words.
    """

    job: str
    kind: CulpritKind | None
    confidence: float
    line: str
    culprits: tuple[Culprit, ...]
    acquitted: tuple[Acquittal, ...]
    phases: JobPhases | None
    slow: Run | None
    lost: float
    blind: tuple[str, ...]
