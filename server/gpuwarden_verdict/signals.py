"""What detectors and fusion hand down: Signal and Risk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity


class Plane(StrEnum):
    """Kinds of evidence; a score may act alone only on two of them."""

    EVENTS = "events"
    STRUCTURE = "structure"
    COUNTERS = "counters"
    PEERS = "peers"
    HOST = "host"
    HISTORY = "history"


class Persistence(StrEnum):
    """When the condition behind a signal ends without a repair."""

    EVENT = "event"  # a fact that happened; ends by evidence of recovery or expiry
    LEVEL = "level"  # true as long as the reading says so; ends when the reading clears
    BOOT = "boot"  # ends with a reboot or driver reload
    PART = "part"  # ends only with a repair or replacement


@dataclass(frozen=True, slots=True)
class Signal:
    """A detector's statement about one entity.

    Attributes:
        entity: What it speaks about.
        fault_class: Where the fault lies.
        score: 0..1, how strongly this evidence speaks for a fault that needs action.
        severity: Urgency.
        plane: Kind of evidence.
        sentence: The evidence in words with numbers, fit for a page and a pager.
        numbers: Measured values by name.
        thresholds: Limits they were held against, by the same names.
        detector: Name of the detector; XIDs carry their code ("xid:79"), so that evidence is kept a
            code.
        detector_version: Integer, raised on any change of its results.
        observed_at: Epoch seconds of the evidence.
        expires_at: Epoch seconds from when it counts no longer without renewal.
        persistence: How the condition ends.
        action: Recommended.
        acts_alone: May decide on the event path, without corroboration or settling.
        echo: Follows from another fault: never opens or keys an incident by itself.
        application_possible: A program's bug can cause it: settles and is judged with job context.
        event_ids: Events behind it.
        boot_id: Boot in which it was seen, "" where it does not matter.
        max_rung: Highest rung this evidence may support, however sure it is.
        source: Where the fact was read ("kernel_log", "nvml", "sweep", "check"): the same XID from
            two sources within 5 s is one occurrence.
        count: Occurrences merged into it.
        place: PCI address that it speaks of where no entity of ours was found for that and it is
            the node's, "" else.
        job: Job that ran on the GPU, or on all GPUs of the node, at that time ("slurm:4711"), ""
            for none that is known.
        model: Version of the learnt model that says it, "" for a rule.
    """

    entity: EntityRef
    fault_class: FaultClass
    score: float
    severity: Severity
    plane: Plane
    sentence: str
    detector: str
    detector_version: int
    observed_at: float
    expires_at: float
    persistence: Persistence
    action: RecommendedAction = RecommendedAction.NONE
    acts_alone: bool = False
    echo: bool = False
    application_possible: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    event_ids: tuple[str, ...] = ()
    boot_id: str = ""
    max_rung: Rung = Rung.EXCLUDE
    source: str = ""
    count: int = 1
    place: str = ""
    job: str = ""
    model: str = ""


class RecoveryKind(StrEnum):
    """What speaks for recovery. That a sweep sees nothing never does."""

    READING_CLEAR = "reading_clear"  # a fresh reading says so; must hold for the dwell
    NEW_BOOT = "new_boot"  # another boot id; must stay clean for the dwell
    CHECK_PASSED = "check_passed"  # an active check of the entity or its node passed
    CHECK_AFTER_REPAIR = "check_after_repair"  # the same, while the entity was in repair


@dataclass(frozen=True, slots=True)
class Recovery:
    """A statement that a condition has ended.

    Attributes:
        entity: What it speaks about; a node's statement covers its GPUs, NICs and disks.
        kind: What speaks for it.
        at: Epoch seconds.
        reason: In words.
        detectors: Whose evidence it clears, empty for all.
        boot_id: The new boot for NEW_BOOT, "" else.
        author: "gpuwarden" or an operator's key name.
    """

    entity: EntityRef
    kind: RecoveryKind
    at: float
    reason: str
    detectors: frozenset[str] = frozenset()
    boot_id: str = ""
    author: str = "gpuwarden"


@dataclass(frozen=True, slots=True)
class Contribution:
    """One term of a risk's log-odds.

    Attributes:
        name: Feature name, "intercept", "rule_floor" or "veto".
        plane: Kind of evidence, None for intercept, floor and veto.
        value: Feature value, NaN where missing.
        log_odds: Its share; all shares sum to the risk's log-odds.
    """

    name: str
    plane: Plane | None
    value: float
    log_odds: float


@dataclass(frozen=True, slots=True)
class Risk:
    """Fusion's statement about one entity.

    Attributes:
        entity: What it speaks about.
        probability: Of needing action within the horizon, calibrated.
        fault_class: From evidence; UNKNOWN allowed.
        contributions: Terms that sum to logit(probability).
        model_version: Artifact that scored it.
        schema_hash: Feature schema of that artifact.
        scored_at: Epoch seconds.
        operating_point: Probability from which that artifact says suspect.
        novelty: How far the entity lies outside all that the artifact learnt from: from 1 on
            nothing that it learnt fits.
        strange: Features that lie furthest outside, the furthest first; () below 1.
    """

    entity: EntityRef
    probability: float
    fault_class: FaultClass
    contributions: tuple[Contribution, ...]
    model_version: str
    schema_hash: str
    scored_at: float
    operating_point: float = 0.5
    novelty: float = 0.0
    strange: tuple[str, ...] = ()
