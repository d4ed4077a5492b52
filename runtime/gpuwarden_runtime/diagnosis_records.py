"""What the server answers about where jobs are slow."""

from __future__ import annotations

import msgspec

Number = float | None


class DiagnosisRow(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnosis as it is listed.

    Attributes:
        id: "dia-…".
        at: When it was made, epoch seconds.
        asked_by: Name of the key; "trigger": the server itself.
        job: "KIND:ID", "" for the fleet.
        kind: Of the first culprit; "nothing"; "undecided".
        entity_kind: Of the first culprit, "" where none is named.
        entity: Its key.
        node_id: Node that it sits in, "" for none.
        confidence: 0..1.
        line: The answer in one line.
        begin: Epoch seconds, of the window that was asked about.
        end: Epoch seconds.
    """

    id: str
    at: float
    asked_by: str
    job: str
    kind: str
    entity_kind: str = ""
    entity: str = ""
    node_id: str = ""
    confidence: float
    line: str
    begin: float
    end: float


class DiagnosisEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a culprit's chain."""

    sentence: str
    strength: float
    numbers: dict[str, Number] = {}


class DiagnosisScale(msgspec.Struct, frozen=True, kw_only=True):
    """At which scale a culprit shows; None where it is not known."""

    affected_nodes: int
    among_nodes: int
    sentence: str
    spared_job_nodes: int | None = None
    hurt_job_nodes: int | None = None
    calm_clients: int | None = None
    strained_clients: int | None = None
    growth: Number = None


class DiagnosisCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate; times in epoch seconds."""

    kind: str
    entity: str
    node_id: str = ""
    words: str
    layer: str = ""
    fault_class: str
    score: float
    since: float
    until: float
    evidence: tuple[DiagnosisEvidence, ...] = ()
    hit_nodes: tuple[str, ...] = ()
    scale: DiagnosisScale


class DiagnosisAcquittal(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at and is not the cause."""

    what: str
    sentence: str


class DiagnosisPhases(msgspec.Struct, frozen=True, kw_only=True):
    """What the job did; lists are as long as `times`."""

    times: tuple[float, ...]
    step_s: float
    phase: tuple[str, ...]
    effort: tuple[Number, ...]
    pace: tuple[Number, ...]
    read_bytes: tuple[Number, ...]
    written_bytes: tuple[Number, ...]
    shares: dict[str, float]
    measured: bool


class DiagnosisRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnosis, whole.

    Attributes:
        id: "dia-…".
        at: When it was made, epoch seconds.
        asked_by: Name of the key; "trigger": the server itself.
        job: "KIND:ID", "" for the fleet.
        kind: Of the first culprit; "nothing"; "undecided".
        confidence: 0..1, how sure of `kind`.
        line: The answer in one line.
        begin: Epoch seconds, of the window that was asked about.
        end: Epoch seconds.
        past: Epoch seconds from which the past was read.
        nodes: How many were read.
        nodes_left_out: Beyond the bound of one answer.
        culprits: The likeliest first.
        acquitted: What it is not.
        blind: What could not be seen.
        slow_since: Epoch seconds since when the job is slower than by its own past, None where it
            is not.
        lost_share: Share of its pace that it lost.
        phases: What the job did, None for the fleet.
    """

    id: str
    at: float
    asked_by: str
    job: str
    kind: str
    confidence: float
    line: str
    begin: float
    end: float
    past: float
    nodes: int
    nodes_left_out: int = 0
    culprits: tuple[DiagnosisCulprit, ...] = ()
    acquitted: tuple[DiagnosisAcquittal, ...] = ()
    blind: tuple[str, ...] = ()
    slow_since: float | None = None
    lost_share: float = 0.0
    phases: DiagnosisPhases | None = None


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what a training process told of a step.

    Attributes:
        job: "KIND:ID".
        step: Its number.
        odd_loss: "not_finite", "spike", None where nothing is odd.
        event_id: Under which an odd loss is evidence; None where it is not.
    """

    job: str
    step: int
    odd_loss: str | None = None
    event_id: str | None = None
