"""The whole judge in process: batches or readings in, incidents, decisions and verdicts out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.engine.book import Book, Kept
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.commands import cleared, decided, repairs_begun, revoked
from gpuwarden_verdict.engine.desk import EventDesk
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.domain import Outcome, StateMove, key_of
from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_verdict.engine.facts import FleetFacts, Patience
from gpuwarden_verdict.engine.failures import raise_failure
from gpuwarden_verdict.engine.hearing import FUTURE_TOLERANCE_S, FrontDoor, Heard
from gpuwarden_verdict.engine.judge import Judge, NodeStanding, Watch, unwatched
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.placing import FleetPlacing
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.engine.reasoner import Reasoner
from gpuwarden_verdict.engine.relocation import Departure, Relocation
from gpuwarden_verdict.engine.risks import NO_MODELS, ModelRisks
from gpuwarden_verdict.engine.sweep import RiskSource, Sweeper
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.exclusions import Exclusion, exclusion_set, would_exclude
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove
from gpuwarden_verdict.incidents.moves import acknowledge
from gpuwarden_verdict.ledger import PartLedger
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.policy.document import Decision, DecisionMove, PolicyDocument
from gpuwarden_verdict.policy.evaluate import approve, decision_target, revoke
from gpuwarden_verdict.policy.states import EntityRecord
from gpuwarden_verdict.verdicts import FeedPosition, Standing, node_verdict
from gpuwarden_verdict.windows import Columns, FleetSnapshot, FleetState, ReadTable
from gpuwarden_wire.acknowledgement import NodeVerdict
from gpuwarden_wire.batches import Batch
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

PATIENCE = Patience(silent_after_s=60.0, gone_after_s=3600.0)
Rows = npt.NDArray[np.int64]
Move = IncidentMove | DecisionMove | StateMove


def ids_in_order() -> Callable[[str], str]:
    """Makes "inc-000000000001", "dec-000000000002", …: the same for the same story."""
    numbers = count(1)
    return lambda prefix: f"{prefix}-{next(numbers):012x}"


@dataclass(slots=True)
class _Moment:
    """The time that the engine was last told; it never runs backwards."""

    at: float = 0.0

    def advance(self, at: float) -> float:
        self.at = max(self.at, at)
        return self.at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class _Untold:
    """Agents' own trouble is shown by the server only."""

    def note(self, node_id: str, event: Event) -> None:
        """Nobody asks."""


@dataclass(frozen=True, slots=True)
class _OwnWindows:
    state: FleetState

    def snapshot(self, columns: Columns) -> FleetSnapshot:
        return self.state.snapshot()


class FleetEngine:
    """One fleet, judged by the parts that the server uses, on the time that it is told.

    Attributes:
        windows: Readings.
        directory: Nodes and GPUs.
        memory: What sweep detectors remember.
        incidents: All that ever were, by id, as they are now.
        decisions: All that ever were, by id, as they are now.
        moves: What happened, in order; what was put on record as history is not among them.
        history: Moves of incidents of the past, put on record.
    """

    def __init__(
        self,
        policy: PolicyDocument,
        *,
        models: FusionModels = NO_MODELS,
        gate_open: bool = False,
        new_id: Callable[[str], str] | None = None,
        memory: SweepMemory | None = None,
        ledger: PartLedger | None = None,
        patience: Patience = PATIENCE,
        future_tolerance_s: float = FUTURE_TOLERANCE_S,
        watch: Watch = unwatched,
    ) -> None:
        """Make an engine of a fleet that nothing is known of.

        Args:
            policy: The rules.
            models: The learnt scores; without any, rules judge alone.
            gate_open: Take policy and trial as fulfilled: what would the score have done? It needs
                evidence from several planes all the same.
            new_id: Makes an id that is new, from its prefix; None for numbers in order.
            memory: What sweep detectors remember from before.
            ledger: What is on record of parts from before.
            patience: How long silence of a node means nothing yet.
            future_tolerance_s: How far an agent's clock may run ahead.
            watch: Looks on while entities are judged.
        """
        self.windows = FleetState()
        self.memory = memory if memory is not None else SweepMemory()
        self.incidents: dict[str, Incident] = {}
        self.decisions: dict[str, Decision] = {}
        self.moves: list[Move] = []
        self.history: list[IncidentMove] = []
        self._moment = _Moment()
        self._maintained: dict[str, tuple[float, str]] = {}
        self.directory = Directory(self._is_live)
        self._door = FrontDoor(self.directory, self.windows, future_tolerance_s)
        self._placing = FleetPlacing(policy, self.directory)
        self._facts = FleetFacts(self.directory, self, self._moment, patience)
        self._patience = patience
        self._book = Book(Kept())
        self._follow()
        self._pools = PoolBook(self._placing, self._book, self._facts.census, self._facts.seat_of)
        self._desk = EventDesk(self._book, self._facts, self.windows, _Untold())
        self._chronicle = Chronicle(self.directory, ledger)
        self._facts.follow_job_ends(self._chronicle.note_job_end)
        self._reasoner = self._make_reasoner(
            ModelRisks(models, gate_open=gate_open), new_id or ids_in_order(), watch
        )

    def _follow(self) -> None:
        self._facts.follow_retired(lambda: self._book.retired)
        self._facts.follow_repairs(lambda: self._book.repaired_at)
        self._facts.follow_declared(lambda: self._placing.expected)
        self._facts.follow_places(self._placing.places)
        self._facts.follow_racks(self._placing.rack)
        self._facts.follow_maintenance(lambda: bool(self._maintained), self._maintenance_of)
        self._facts.follow_policy(
            lambda node_id: self._pools.pool(node_id).name, self._placing.policy.tuning
        )

    def _make_reasoner(
        self, risks: RiskSource, new_id: Callable[[str], str], watch: Watch
    ) -> Reasoner:
        def standing_of(node_id: str) -> NodeStanding:
            hold = self._desk.hold_of(node_id, self.presence(node_id), self._moment.now())
            under = self._facts.maintenance_of(node_id)
            return NodeStanding(self._facts.contact_of(node_id), hold, under)

        windows = _OwnWindows(self.windows)
        return Reasoner(
            book=self._book,
            desk=self._desk,
            judge=Judge(self._book, self._pools, standing_of, new_id, risks, watch),
            sweeper=Sweeper(
                *(windows, self._facts, self._book, self._pools, risks, self.memory),
                self._chronicle,
            ),
            relocation=Relocation(self._book, self.directory),
            chronicle=self._chronicle,
            failed=raise_failure,
        )

    # what comes in

    def hear(self, node_id: str, batch: Batch, at: float) -> Heard:
        """Take one batch of a node, as the server does, and judge its events at once.

        Args:
            node_id: The node.
            batch: As its agent sends it.
            at: When it arrives, epoch seconds; never before what was told last.

        Raises:
            ValueError: The batch is another node's.
            KeyError: A table is of a schema that no batch has brought yet.
        """
        if batch.node_id != node_id:
            raise ValueError(f"a batch of node {batch.node_id!r} for node {node_id!r}")
        now = self._moment.advance(at)
        heard, kept = self._door.take(batch, now)
        if kept:
            self._judge(kept, now)
        return heard

    def tell(self, node_id: str, event: Event, at: float) -> None:
        """Judge what somebody else says of a node: that a job ended, or an alert of another system.

        Args:
            node_id: The node.
            event: What is said.
            at: When, epoch seconds.
        """
        now = self._moment.advance(at)
        kept = self._door.tell(node_id, event, now)
        if kept:
            self._judge(kept, now)

    def register(self, kind: EntityKind, keys: Iterable[str], nodes: Iterable[str]) -> Rows:
        """Rows of entities by their names over the fleet, each with its node; for `read`."""
        refs = (EntityRef(kind, key, node) for key, node in zip(keys, nodes, strict=True))
        return np.array([self.windows.register(ref) for ref in refs], np.int64)

    def read(
        self, tables: Sequence[ReadTable], nodes: Collection[str], at: float, interval_s: float
    ) -> None:
        """Readings of many nodes of one moment, as telemetry batches of each would bring them.

        Args:
            tables: One a kind of entity.
            nodes: Nodes that these are of: they are heard of.
            at: Epoch seconds.
            interval_s: Their cadence.
        """
        now = self._moment.advance(at)
        for table in tables:
            self.windows.apply_batches([[table]])
        self._door.note_heard(nodes, now, interval_s)

    def place(self, node_id: str, place: NodePlace, gpus_expected: int | None = None) -> None:
        """Say where a node stands, as an inventory would, and how many GPUs it should have."""
        self._placing.put(node_id, place, gpus_expected)

    def sweep(self, now: float) -> None:
        """Look over the fleet, and let time pass for all that is live; `now` is epoch seconds."""
        now = self._moment.advance(now)
        self._move(self._reasoner.relocation.moved(now), now)
        self._pools.recount()
        result = self._reasoner.sweeper.look(now, self._reasoner.failed)
        self._book.risks = dict(result.risks)
        self._take_over(self._reasoner.conclude_sweep(result, (), now))

    # what people do

    def revoke(self, target: EntityRef, by: str, reason: str, now: float) -> None:
        """End all live decisions about a target and acquit what is open against it."""
        now = self._moment.advance(now)
        for decision in self._book.decisions_of(key_of(target)):
            move = revoke(decision, by, reason, now)
            self._take_over((revoked(self._book, self._pools, move, now),))

    def approve(self, target: EntityRef, by: str, reason: str, now: float) -> None:
        """Bring waiting advice about a target into force.

        Raises:
            DecisionError: It is in force, or asks for no exclusion.
        """
        now = self._moment.advance(now)
        for decision in self._book.decisions_of(key_of(target)):
            move = approve(decision, by, reason, now)
            self._pools.fold(target.node_id, (move,))
            self._take_over((decided(self._book, self._pools, move, now),))

    def acknowledge(self, incident_id: str, by: str, reason: str, now: float) -> None:
        """Note that a person has seen an incident.

        Raises:
            LifecycleError: Its phase does not allow it.
        """
        now = self._moment.advance(now)
        move = acknowledge(self.incidents[incident_id], by, reason, now)
        target = decision_target(move.incident.entity)
        self._take_over((Outcome(target, incident_moves=(move,)),))

    def clear(self, incident_id: str, by: str, reason: str, now: float) -> None:
        """Close an incident; it comes back on new evidence only.

        Raises:
            LifecycleError: It is resolved already.
        """
        now = self._moment.advance(now)
        _, outcome = cleared(self.incidents[incident_id], by, reason, now)
        self._take_over((outcome,))

    def begin_repair(self, target: EntityRef, by: str, reason: str, now: float) -> None:
        """Move what is excluded of a target into repair; a node takes its GPUs along."""
        now = self._moment.advance(now)
        self._take_over(repairs_begun(self._book, target, by, reason, now))

    def maintain(self, node_ids: Iterable[str], reason: str, until: float) -> None:
        """Put nodes under maintenance; nothing is decided about them anew.

        Args:
            node_ids: The nodes.
            reason: Why, in words.
            until: Epoch seconds of its end; one that is over ends it now.
        """
        self._maintained |= dict.fromkeys(node_ids, (until, reason))

    # what is true

    @property
    def ledger(self) -> PartLedger:
        """What is on record of parts."""
        return self._chronicle.ledger

    def feature_scene(self) -> FeatureScene:
        """What features are made of, as a sweep of now would hand it to the score."""
        return self._reasoner.sweeper.scene()

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        """Incidents that are not resolved."""
        return tuple(self._book.incidents())

    @property
    def live_decisions(self) -> tuple[Decision, ...]:
        """Decisions that have not ended."""
        return tuple(self._book.decisions())

    @property
    def records(self) -> Mapping[EntityRef, EntityRecord]:
        """State of every entity that ever left the healthy one."""
        return dict(self._book.records())

    def pool_name(self, node_id: str) -> str:
        """The policy's pool of a node."""
        return self._pools.pool(node_id).name

    def state_of(self, target: EntityRef) -> EntityState:
        """State of an entity; healthy where it was never judged."""
        return self._book.record_of(key_of(target)).state

    def exclusions(self) -> tuple[Exclusion, ...]:
        """What may not be used now."""
        return exclusion_set(self._book.decisions(), self._facts.place)

    def would_exclude(self) -> tuple[Exclusion, ...]:
        """What observe mode, unapproved advice and guards keep in."""
        return would_exclude(self._book.decisions(), self._facts.place)

    def verdict(self, node_id: str) -> NodeVerdict:
        """The verdict about a node and its GPUs, as the server gives it."""
        gpus = [
            EntityRef(EntityKind.GPU, gpu.gpu_uuid, node_id)
            for gpu in self.directory.gpus_of(node_id)
            if gpu.present or self._is_open(gpu.gpu_uuid)
        ]
        return node_verdict(
            self._standing(EntityRef(EntityKind.NODE, node_id, node_id)),
            [self._standing(gpu) for gpu in gpus],
            self._facts.contact_of(node_id),
            FeedPosition("", 0),
            self._moment.now(),
        )

    def presence(self, node_id: str) -> Presence | None:
        """When a node was last heard of; None where it never was."""
        return self._door.presence(node_id, self._moment.now())

    def _judge(self, events: Sequence[StoredEvent], now: float) -> None:
        inventoried = {e.node_id for e in events if e.event.kind is EventKind.INVENTORY}
        if inventoried:
            self._pools.recount()
            self._chronicle.note_inventory(inventoried, now)
            self._move(self._reasoner.relocation.moved_into(inventoried, now), now)
        findings = self._reasoner.findings_of(events, now)
        self._take_over(self._reasoner.conclude(findings.values(), now))

    def _move(self, moved: Sequence[Departure], now: float) -> None:
        if moved:
            self._take_over(tuple(one.outcome for one in moved))
            self._pools.recount()

    def _take_over(self, outcomes: Sequence[Outcome]) -> None:
        self._book.apply(outcomes)
        self._chronicle.note(outcomes)
        for outcome in outcomes:
            self.history += outcome.history
            for move in (*outcome.history, *outcome.incident_moves):
                self.incidents[move.incident.id] = move.incident
            self.incidents |= {one.id: one for one in outcome.renewed_incidents}
            self.decisions |= {m.decision.id: m.decision for m in outcome.decision_moves}
            self.decisions |= {one.id: one for one in outcome.renewed_decisions}
            self.moves += outcome.incident_moves
            self.moves += outcome.decision_moves
            if outcome.state_move is not None:
                self.moves.append(outcome.state_move)

    def _standing(self, ref: EntityRef) -> Standing:
        key = key_of(ref)
        record = self._book.record_of(key)
        known = self.directory.node(ref.node_id) is not None
        gpu = self.directory.gpu(ref.key) if ref.kind is EntityKind.GPU else None
        return Standing(
            entity=ref,
            state=record.state if known else None,
            since=record.since or None,
            decisions=self._book.decisions_of(key),
            incidents=self._book.incidents_of(key),
            pci_bus_id=gpu.pci_bus_id if gpu else None,
            index=gpu.gpu_index if gpu else None,
        )

    def _maintenance_of(self, node_id: str) -> str:
        until, reason = self._maintained.get(node_id, (0.0, ""))
        return reason if self._moment.now() < until else ""

    def _is_open(self, gpu_uuid: str) -> bool:
        key = EntityKind.GPU.value, gpu_uuid
        return bool(self._book.incidents_of(key) or self._book.decisions_of(key))

    def _is_live(self, node_id: str) -> bool:
        presence = self.presence(node_id)
        return presence is not None and not presence.is_silent(self._patience.silent_after_s)
