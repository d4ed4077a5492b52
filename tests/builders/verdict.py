"""A small fleet on a fake clock, judged by the pure core alone: no server, no threads, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from gpuwarden_kernel_log import parse_line
from gpuwarden_verdict.context import FleetContext, NodeContext, RecentEvent, entity_of, remember
from gpuwarden_verdict.detectors import (
    detect_clears,
    detect_event,
    detect_recovery,
    detect_sweep,
)
from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.exclusions import Exclusion, exclusion_set
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove, IncidentPhase
from gpuwarden_verdict.incidents.lifecycle import acquit_all, acquittals_of, advance, find_storms
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase, PolicyDocument
from gpuwarden_verdict.policy.evaluate import (
    Counted,
    EntityCase,
    decide,
    decision_target,
    pool_loads,
    revoke,
)
from gpuwarden_verdict.policy.parse import parse_policy, pool_of
from gpuwarden_verdict.policy.states import EntityRecord, Trigger, judge_state, step_record
from gpuwarden_verdict.signals import Recovery, RecoveryKind, Signal
from gpuwarden_verdict.verdicts import FeedPosition, Standing, node_verdict
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.acknowledgement import NodeVerdict
from gpuwarden_wire.batches import MissingCell, MissingKind
from gpuwarden_wire.events import Event, EventKind, GpuIdentity
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for

START = 1_800_000_000.0
ACT = """
[defaults]
mode = "act"
cap = { max_nodes = 100, max_percent = 100 }
"""


def counter_of(prefix: str) -> Callable[[], str]:
    """Ids in order: prefix-1, prefix-2, …"""
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers)}"


def gpu_ref(node: int, gpu: int) -> EntityRef:
    return EntityRef(EntityKind.GPU, f"GPU-{node}-{gpu}", f"n{node}")


def node_ref(node: int) -> EntityRef:
    return EntityRef(EntityKind.NODE, f"n{node}", f"n{node}")


def pci_of(gpu: int) -> str:
    return f"0000:{gpu + 1:02x}:00.0"


def xid_line(code: int, gpu: int = 0, rest: str = "pid=812, name=trainer, something") -> str:
    return f"NVRM: Xid (PCI:0000:{gpu + 1:02x}:00): {code}, {rest}"


@dataclass
class Fleet:
    """Nodes of eight GPUs and a port, their windows, and all that was concluded about them."""

    nodes: int = 4
    gpus: int = 8
    policy: PolicyDocument = field(default_factory=lambda: parse_policy(ACT))
    model: str = "NVIDIA H100 80GB HBM3"
    now: float = START
    state: FleetState = field(default_factory=FleetState)
    incidents: dict[str, Incident] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    records: dict[EntityRef, EntityRecord] = field(default_factory=dict)
    incident_moves: list[IncidentMove] = field(default_factory=list)
    decision_moves: list[DecisionMove] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    storms: frozenset[str] = frozenset()
    memory: SweepMemory = field(default_factory=SweepMemory)
    jobs: dict[str, str] = field(default_factory=dict)
    boots: dict[str, str] = field(default_factory=dict)
    booted_at: dict[str, float] = field(default_factory=dict)
    recent: dict[str, tuple[RecentEvent, ...]] = field(default_factory=dict)
    new_incident: Callable[[], str] = field(default_factory=lambda: counter_of("inc"))
    new_decision: Callable[[], str] = field(default_factory=lambda: counter_of("dec"))
    new_event: Callable[[], str] = field(default_factory=lambda: counter_of("kmsg:boot"))

    def __post_init__(self) -> None:
        for node in range(self.nodes):
            self.boots[f"n{node}"] = "boot-1"
            self.booted_at[f"n{node}"] = START - 86400.0
            for gpu in range(self.gpus):
                self.state.register(gpu_ref(node, gpu))

    # what is read

    def tell(
        self, refs: Sequence[EntityRef], at: float | None = None, **values: float | MissingKind
    ) -> None:
        """The same readings for some entities of one kind."""
        kind = refs[0].kind
        for ref in refs:
            self.state.register(ref)
        schema = schema_for(kind, list(values))
        columns = [values[column.name] for column in schema.columns]
        block = np.array([[np.nan if isinstance(v, str) else v] * len(refs) for v in columns])
        missing = [
            MissingCell(row, column, value)
            for column, value in enumerate(columns)
            if isinstance(value, MissingKind)
            for row in range(len(refs))
        ]
        rows = self.state.rows_of(kind, [ref.key for ref in refs])
        split = schema.f32_count
        f32, f64 = block[:split].astype(np.float32), block[split:]
        at = self.now if at is None else at
        self.state.apply_table(kind, rows, schema, f32, f64, missing, at)

    def all_gpus(self) -> list[EntityRef]:
        return [gpu_ref(node, gpu) for node in range(self.nodes) for gpu in range(self.gpus)]

    # what happens

    def context(self, node: int) -> NodeContext:
        node_id = f"n{node}"
        gpus = {
            pci_of(gpu): GpuIdentity(
                gpu_uuid=f"GPU-{node}-{gpu}", pci_bus_id=pci_of(gpu), model=self.model
            )
            for gpu in range(self.gpus)
        }
        return NodeContext(
            node_id=node_id,
            boot_id=self.boots[node_id],
            booted_at=self.booted_at[node_id],
            gpus=gpus,
            recent=self.recent.get(node_id, ()),
            pool=pool_of(self.policy, node_id).name,
            tuning=self.policy.tuning,
        )

    def line(self, node: int, text: str, family: str = "xid", **fields: object) -> Event:
        """A kernel line of a node, through the event path."""
        parsed = parse_line(text)
        known: dict[str, object] = {"family": family}
        if parsed is not None:
            known = {
                "family": parsed.family.value,
                "xid": parsed.xid,
                "sxid": parsed.sxid,
                "pci_bus_id": parsed.pci_bus_id,
                "severity": parsed.severity.value,
            }
        return self.event(node, EventKind.KERNEL_LOG, text=text, **{**known, **fields})

    def event(self, node: int, kind: EventKind, **fields: object) -> Event:
        made = Event(**{"id": self.new_event(), "observed_at": self.now, "kind": kind, **fields})  # type: ignore[arg-type]  # fields of Event by name
        return self.replay(node, made)

    def replay(self, node: int, event: Event) -> Event:
        """An event through detectors and judgement, at once."""
        context = self.context(node)
        ref = entity_of(event, context)
        signals = detect_event(event, ref, context)
        in_repair = any(
            record.state is EntityState.IN_REPAIR
            for entity, record in self.records.items()
            if entity == ref or entity.node_id == ref.key
        )
        recoveries = detect_recovery(event, ref, context, in_repair=in_repair)
        self.recent[f"n{node}"] = remember(context.recent, event, ref)
        self.judge(signals, recoveries)
        return event

    def reboot(self, node: int) -> None:
        self.boots[f"n{node}"] += "'"
        self.booted_at[f"n{node}"] = self.now
        self.event(node, EventKind.NODE_BOOT)

    def fleet_context(self) -> FleetContext:
        return FleetContext(
            models={ref.key: self.model for ref in self.all_gpus()},
            silent_nodes=frozenset(self.silent),
            booted_at=dict(self.booted_at),
            boot_ids=dict(self.boots),
            pools={node: pool_of(self.policy, node).name for node in self.boots},
            jobs=dict(self.jobs),
            memory=self.memory,
            tuning=self.policy.tuning,
        )

    def sweep(self, seconds: float = 0.0) -> list[Signal]:
        """Let time pass, then look at the whole fleet."""
        self.now += seconds
        fleet = self.fleet_context()
        signals = detect_sweep(self.state, fleet, self.now)
        clears = detect_clears(self.state, fleet, self.open(), self.now)
        self.judge(signals, clears, sweeping=True)
        return signals

    # what follows

    def judge(
        self, signals: Iterable[Signal], recoveries: Iterable[Recovery], *, sweeping: bool = False
    ) -> None:
        recoveries = list(recoveries)
        for recovery in recoveries:
            if recovery.kind is RecoveryKind.CHECK_AFTER_REPAIR:
                self._check_passed(recovery.entity)
        moves = advance(
            self.open(),
            list(signals),
            recoveries,
            self.now,
            self.new_incident,
            dwell_of=lambda one: pool_of(self.policy, one.entity.node_id).dwell_s,
        )
        self.incident_moves += moves
        for move in moves:
            self.incidents[move.incident.id] = move.incident
        targets = {decision_target(move.incident.entity) for move in moves}
        if sweeping:
            targets |= {decision_target(i.entity) for i in self.incidents.values()}
            targets |= {d.entity for d in self.decisions.values()} | set(self.records)
            self.storms = find_storms(self.open())
        for target in sorted(targets, key=lambda ref: (ref.kind, ref.key)):
            self._decide(target)

    def case(self, target: EntityRef) -> EntityCase:
        mine = tuple(i for i in self.open() if decision_target(i.entity) == target)
        silent = target.node_id in self.silent
        return EntityCase(
            entity=target,
            incidents=mine,
            decisions=self.live(target),
            state=self.record(target).state,
            contact=Contact.SILENT if silent else Contact.LIVE,
            acquittals=acquittals_of(
                [i for i in self.incidents.values() if decision_target(i.entity) == target],
                self.now,
            ),
            storms=self.storms,
        )

    def revoke(self, target: EntityRef, by: str = "ann", reason: str = "sound") -> None:
        for decision in self.live(target):
            self._apply([revoke(decision, by, reason, self.now)], target)
        for move in acquit_all(self.case(target).incidents, by, reason, self.now):
            self.incidents[move.incident.id] = move.incident
            self.incident_moves.append(move)

    def repair(self, target: EntityRef) -> None:
        self.records[target] = step_record(self.record(target), Trigger.REPAIR_BEGUN, self.now)

    # what is true

    def open(self) -> list[Incident]:
        return [i for i in self.incidents.values() if i.phase is not IncidentPhase.RESOLVED]

    def live(self, target: EntityRef) -> tuple[Decision, ...]:
        ended = {DecisionPhase.REVOKED, DecisionPhase.EXPIRED, DecisionPhase.LIFTED}
        mine = (d for d in self.decisions.values() if d.entity == target)
        return tuple(d for d in mine if d.phase not in ended)

    def excluded(self) -> tuple[Exclusion, ...]:
        return exclusion_set(self.decisions.values(), lambda gpu_uuid: None)

    def excluded_names(self) -> list[str]:
        return [one.entity for one in self.excluded()]

    def record(self, target: EntityRef) -> EntityRecord:
        return self.records.get(target, EntityRecord(EntityState.HEALTHY, START))

    def verdict(self, node: int) -> NodeVerdict:
        gpus = [self._standing(gpu_ref(node, gpu)) for gpu in range(self.gpus)]
        contact = Contact.SILENT if f"n{node}" in self.silent else Contact.LIVE
        feed = FeedPosition("feed", 1)
        return node_verdict(self._standing(node_ref(node)), gpus, contact, feed, self.now)

    def _standing(self, ref: EntityRef) -> Standing:
        record = self.record(ref)
        mine = tuple(i for i in self.open() if decision_target(i.entity) == ref)
        return Standing(ref, record.state, record.since, self.live(ref), mine)

    def _check_passed(self, entity: EntityRef) -> None:
        for target in list(self.records):
            if target == entity or target.node_id == entity.key:
                self.records[target] = step_record(
                    self.records[target], Trigger.CHECK_PASSED, self.now
                )

    def _decide(self, target: EntityRef) -> None:
        pool = pool_of(self.policy, target.node_id)
        loads = pool_loads(
            self.policy,
            self.decisions.values(),
            Counted(frozenset(f"n{node}" for node in range(self.nodes)), frozenset(self.silent)),
        )
        moves = decide(
            self.case(target),
            pool,
            self.policy.version,
            loads[pool.name],
            self.now,
            self.new_decision,
        )
        self._apply(moves, target)

    def _apply(self, moves: Sequence[DecisionMove], target: EntityRef) -> None:
        self.decision_moves += moves
        for move in moves:
            self.decisions[move.decision.id] = move.decision
        ended = [move.decision for move in moves if move.decision.phase is DecisionPhase.REVOKED]
        dwell_s = pool_of(self.policy, target.node_id).dwell_s
        looked_at = (*self.live(target), *ended)
        self.records[target] = judge_state(self.record(target), looked_at, self.now, dwell_s)
