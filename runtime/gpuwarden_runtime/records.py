"""What the REST routes answer, as typed values. Unknown fields are ignored: the API is additive."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from gpuwarden_runtime.cost_records import CostRecord
from gpuwarden_runtime.explained import ExplanationRecord
from gpuwarden_runtime.plan_records import PinRecord, PlannedLeave, StayRecord, read_plans
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable

Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One page of a list.

    Attributes:
        items: In the order of the route.
        next_cursor: Give it back for the next page; None on the last.
    """

    items: tuple[Item, ...]
    next_cursor: str | int | None = None


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of some or all nodes, all of one epoch."""

    feed_id: str
    epoch: int
    issued_at: float
    verdicts: tuple[NodeVerdict, ...]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent cannot read, or a second agent of its node: never a hardware verdict.

    Attributes:
        source: Collector, or the code that refuses batches.
        reason: Why.
        since: Epoch seconds.
        mend: What to do about it, "" where nothing is known.
    """

    source: str
    reason: str = ""
    since: float | None = None
    mend: str = ""


class GpuLine(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as listed with its node."""

    gpu_uuid: str
    index: int | None = None
    pci_bus_id: str | None = None
    model: str = ""
    state: str = "unknown"
    usable: Usable = Usable.UNKNOWN


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        silent: True while its agent has not reported for longer than the server allows.
        gpus_visible: GPUs that the driver shows now.
        gpus_expected: How many there should be, None where nobody said.
        gpus_unread: Why no GPU is read, None where one is or none is looked for.
        trouble: Sources of the agent that cannot be read.
    """

    node_id: str
    pool: str = ""
    rack: str = ""
    leaf: str = ""
    mounts: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    state: str = "unknown"
    usable: Usable = Usable.UNKNOWN
    agent_version: str | None = None
    boot_id: str | None = None
    last_seen_at: float | None = None
    silent: bool = False
    gpus_visible: int | None = None
    gpus_expected: int | None = None
    gpus_unread: str | None = None
    gpus: tuple[GpuLine, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    open_incidents: int = 0


class MissingReading(msgspec.Struct, frozen=True, kw_only=True):
    """Why a metric has no number."""

    missing: str
    reason: str = ""
    age_s: float | None = None


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU with its latest readings."""

    gpu_uuid: str
    node_id: str = ""
    serial: str = ""
    pci_bus_id: str | None = None
    index: int | None = None
    model: str = ""
    driver_version: str = ""
    state: str = "unknown"
    usable: Usable = Usable.UNKNOWN
    readings: dict[str, float | MissingReading] = {}


class EvidenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence behind an incident."""

    detector: str
    sentence: str
    score: float = 0.0
    severity: str = "info"
    persistence: str = ""
    acts_alone: bool = False
    first_at: float | None = None
    last_at: float | None = None
    count: int = 1
    numbers: dict[str, float | None] = {}
    event_ids: tuple[str, ...] = ()


class IncidentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An incident."""

    id: str
    entity_kind: str = ""
    entity: str = ""
    node_id: str = ""
    fault_class: str = "unknown"
    severity: str = "info"
    phase: str = "open"
    why: str = ""
    action: str = "none"
    confidence: float | None = None
    opened_at: float | None = None
    updated_at: float | None = None
    resolved_at: float | None = None
    parent_id: str | None = None
    held: str = ""
    acquitted_until: float | None = None
    evidence: tuple[EvidenceRecord, ...] = ()


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A decision."""

    id: str
    entity_kind: str = ""
    entity: str = ""
    node_id: str = ""
    rung: str | int = ""
    phase: str = ""
    mode: str = ""
    fault_class: str = "unknown"
    reasons: tuple[str, ...] = ()
    confidence: float | None = None
    decided_by: str = ""
    incident_id: str | None = None
    policy_version: str = ""
    model_version: str = ""
    decided_at: float | None = None
    expires_at: float | None = None
    guard: str = ""
    guard_says: str = ""
    advised: str = ""
    jobs: tuple[str, ...] = ()
    held: StayRecord | None = None
    ledger: CostRecord | None = None

    @property
    def held_back_by(self) -> str:
        """What held it back, in words; "" for nothing."""
        return f"held back: {self.guard_says or self.guard}" if self.guard else ""

    @property
    def waits_for(self) -> str:
        """The higher rung that a person may approve, in words; "" for none."""
        return f"{self.advised} waits for approval" if self.advised else ""


class ContributionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One term of a risk's log-odds; `value` is None where the feature is missing."""

    name: str
    log_odds: float
    plane: str | None = None
    value: float | None = None


class RiskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The learnt score of an entity."""

    probability: float
    fault_class: str = "unknown"
    model_version: str = ""
    contributions: tuple[ContributionRecord, ...] = ()


class GateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """May the learnt score act alone, and what is missing for it."""

    open: bool
    missing: tuple[str, ...] = ()


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Everything behind a verdict; `risk_missing` says why there is no risk.

    `standby` is what the book of spares says of its node, "" for nothing.
    """

    entity: str
    verdict: EntityVerdict
    incidents: tuple[IncidentRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    pins: tuple[PinRecord, ...] = ()
    risk: RiskRecord | None = None
    risk_missing: str = ""
    explanation: ExplanationRecord | None = None
    gate: GateRecord | None = None
    standby: str = ""


class Exclusion(msgspec.Struct, frozen=True, kw_only=True):
    """One exclusion in force.

    Attributes:
        entity_kind: node, gpu, nic or disk.
        entity: Its fleet-wide name.
        node_id: Node that it sits in.
        gpu_uuid: For GPUs.
        since: Epoch seconds.
        reason: One sentence.
        decided_by: rule, score, operator:NAME or pin.
        joiner: Spare that works for its node from now on, None where none does.
    """

    entity_kind: str
    entity: str
    node_id: str
    gpu_uuid: str | None = None
    pci_bus_id: str | None = None
    gpu_index: int | None = None
    rung: str | int = ""
    since: float | None = None
    reason: str = ""
    decision_id: str | None = None
    decided_by: str = ""
    expires_at: float | None = None
    joiner: str | None = None

    @property
    def key(self) -> str:
        """Name in the digest of a set: "entity_kind:entity"."""
        return f"{self.entity_kind}:{self.entity}"


_NO_PLANS = msgspec.Raw(b"[]")
_UNCHANGED = msgspec.Raw(b"null")


class ExclusionSet(msgspec.Struct, frozen=True, kw_only=True):
    """All exclusions in force at one epoch of one feed."""

    feed_id: str
    epoch: int
    count: int
    digest: str
    exclusions: tuple[Exclusion, ...]
    would_exclude: tuple[Exclusion, ...] = ()
    plans: msgspec.Raw = msgspec.field(name="planned", default=_NO_PLANS)

    @property
    def planned(self) -> tuple[PlannedLeave, ...]:
        """Leaves that will become exclusions; what cannot be read is left out."""
        return read_plans(self.plans)[0]


class ExclusionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the set; count and digest are those after it."""

    feed_id: str
    epoch: int
    count: int
    digest: str
    added: tuple[Exclusion, ...] = ()
    removed: tuple[Exclusion, ...] = ()
    plans: msgspec.Raw = msgspec.field(name="planned", default=_UNCHANGED)

    @property
    def planned(self) -> tuple[PlannedLeave, ...] | None:
        """Leaves that will become exclusions, None where unchanged."""
        return None if bytes(self.plans) == bytes(_UNCHANGED) else read_plans(self.plans)[0]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of stored events.

    Attributes:
        items: The event's fields, with the `row` of its arrival and its `node_id`.
        next_after: Row to go on after, also on the last page.
    """

    items: tuple[dict[str, Any], ...]
    next_after: int | None = None


class RowPage(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One page of rows; `next_after` is where to go on, also on the last page."""

    items: tuple[Item, ...]
    next_after: int | None = None


class EntryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one source of the inventory says of one node; empty and None where it does not."""

    node_id: str
    rack: str = ""
    leaf: str = ""
    pool: str = ""
    mounts: tuple[str, ...] = ()
    gpus_expected: int | None = None
    labels: dict[str, str] = {}


class PlacementRecord(EntryRecord, frozen=True, kw_only=True):
    """A node as all sources of the inventory have it.

    Attributes:
        origin: Source of each field.
        sources: Sources that name it.
        known: It was heard of, or added by hand.
    """

    origin: dict[str, str] = {}
    sources: tuple[str, ...] = ()
    known: bool = True


class InventoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """How one entry changes; None before: new; None after: removed."""

    node_id: str
    before: EntryRecord | None = None
    after: EntryRecord | None = None


class InventoryChanges(msgspec.Struct, frozen=True, kw_only=True):
    """How a source's entries change, or would."""

    source: str
    dry_run: bool
    added: int = 0
    removed: int = 0
    changed: int = 0
    changes: tuple[InventoryChange, ...] = ()


class RenameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is called, and the names that it had, oldest first."""

    node_id: str
    former: tuple[str, ...] = ()


class RepairRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entity stands after a repair was begun, or its node retired."""

    entity_kind: str
    entity: str
    state: str


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What mistakes of the learnt score cost; the probability from which acting costs less."""

    gpu_hour_false_exclusion: float = 1.0
    gpu_hour_missed_fault: float = 1.0
    operating_point: float = 0.5


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules in force; of the pools, the first that matches a node has it."""

    version: str
    pools: tuple[dict[str, Any], ...] = ()
    learning: Costs = Costs()


class Role(StrEnum):
    """What a key may do."""

    AGENT = "agent"
    READER = "reader"
    RUNTIME = "runtime"
    FEEDER = "feeder"
    OPERATOR = "operator"
    ADMIN = "admin"


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key; `key` itself is there once, in the answer that made it."""

    id: str
    role: Role
    node_id: str | None = None
    name: str = ""
    key: str | None = None
    created_at: float | None = None
    created_by: str = ""
    revoked_at: float | None = None
    expires_at: float | None = None
    scope: dict[str, tuple[str, ...]] = {}
    former_until: float | None = None


class EnrolmentToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token for enrolment; `token` itself is there once, in the answer that made it."""

    id: str
    name: str = ""
    nodes: str = "*"
    uses: int = 0
    used: int = 0
    re_enrol: bool = False
    token: str | None = None
    created_at: float | None = None
    created_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who the server takes us for."""

    role: Role
    name: str = ""


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The learnt model in use: its version, "" where rules judge alone; then `trouble` says why."""

    version: str = ""
    trouble: str = ""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the fleet.

    Attributes:
        nodes: Of the fleet; retired ones are in `node_states` alone.
        mode: Of the default pool, with others where pools differ.
        pools: Nodes by pool.
        excluded: Exclusions in force: a node's is one, whatever it holds.
        caller: Who the server takes us for.
    """

    nodes: int = 0
    gpus: int = 0
    node_states: dict[str, int] = {}
    gpu_states: dict[str, int] = {}
    silent_nodes: int = 0
    unusable_nodes: int = 0
    open_incidents: int = 0
    mode: str = ""
    pools: dict[str, int] = {}
    feed_id: str = ""
    epoch: int = 0
    excluded: int = 0
    excluded_by_kind: dict[str, int] = {}
    would_exclude: int = 0
    version: str = ""
    policy_version: str = ""
    model: ModelRecord | None = None
    caller: Caller | None = None
