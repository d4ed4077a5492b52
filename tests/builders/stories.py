"""A fleet that tells its story in the agent's wire format, on a fake clock, to the whole judge.

What each node sends goes through the codec; what the engine concludes is kept with its time, and
whatever must never happen is looked at after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from gpuwarden_agent.collectors.kernel_entities import entity_of_line
from gpuwarden_kernel_log import LineContext, parse_events
from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.engine.facts import Patience
from gpuwarden_verdict.entities import EntityRef, EntityState, FaultClass, Rung
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.acknowledgement import Usable
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream, Table, pack_table
from gpuwarden_wire.codec import decode_batch, encode_batch
from gpuwarden_wire.events import (
    Backlog,
    Event,
    EventKind,
    GpuJob,
    Inventory,
    JobKind,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema, schema_for
from tests.builders.story_nodes import (
    DRIVER,
    H100,
    Node,
    make_node,
)

START = 1_800_000_000.0
ACT = """
[defaults]
mode = "act"
cap = { max_nodes = 1000, max_percent = 100 }
"""
EAGER = ACT + "exclude_confidence = 0.1\n"
"""Lets out whatever asks at all: what still holds under it, holds."""


@dataclass(frozen=True)
class Ban:
    """What must never happen: in words, and how to see that it did."""

    words: str
    happened: Callable[[], object]


class StoryFleet:
    """Nodes of eight GPUs and a port each, judged while the story is told."""

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 8,
        *,
        policy: str = ACT,
        model: str = H100,
        interval_s: float = 30.0,
        silent_after_s: float = 60.0,
        placed: Callable[[int], NodePlace] | None = None,
        shaped: Callable[[Node], None] = lambda _node: None,
    ) -> None:
        """Make a fleet that has just reported for the first time.

        Args:
            nodes: How many.
            gpus: In each.
            policy: TOML.
            model: Product name of the GPUs.
            interval_s: Cadence of readings and sweeps.
            silent_after_s: How long a node may be quiet.
            placed: Where each node stands, by its number.
            shaped: Makes of a usual node what it is in this story, before it first reports.
        """
        self.now = START
        self.interval_s = interval_s
        self.engine = FleetEngine(
            parse_policy(policy), patience=Patience(silent_after_s, 3600.0 + silent_after_s)
        )
        self.nodes = [make_node(f"n{number:03d}", gpus, model) for number in range(nodes)]
        self.bans: list[Ban] = []
        for number, node in enumerate(self.nodes):
            shaped(node)
            if placed is not None:
                self.engine.place(node.name, placed(number))
            self.introduce(node)
        self.run(2 * interval_s)

    # what happens

    def introduce(self, node: Node) -> None:
        """First contact of a boot, with what the node has."""
        self.events(node, self.event(EventKind.NODE_BOOT), self.inventory(node))

    def inventory(self, node: Node) -> Event:
        """What the node has, and what runs on it."""
        jobs = tuple(
            GpuJob(gpu_uuid=uuid, kind=JobKind.SLURM, job_id=job) for uuid, job in node.jobs.items()
        )
        nics = tuple(node.readings.get(EntityKind.NIC, {}))
        has = Inventory(
            gpus=tuple(node.gpus),
            nics=nics,
            gpus_expected=node.expected or len(node.gpus),
            labels=node.labels,
            jobs=jobs,
        )
        return self.event(EventKind.INVENTORY, inventory=has)

    def start_job(self, job: str, nodes: Iterable[Node]) -> None:
        """A Slurm job on all GPUs of some nodes."""
        for node in nodes:
            node.jobs = {gpu.gpu_uuid: job for gpu in node.gpus}
            self.events(node, self.inventory(node))

    def end_job(self, job: str) -> None:
        """The job's processes are gone."""
        for node in self.nodes:
            if job in node.jobs.values():
                node.jobs = {uuid: other for uuid, other in node.jobs.items() if other != job}
                self.events(node, self.inventory(node))

    def lines(self, node: Node, *texts: str, backlog: Backlog = Backlog.NONE) -> list[Event]:
        """Kernel lines of a node, as its agent reads them."""
        found = [event for text in texts for event in self._of_line(node, text, backlog)]
        self.events(node, *found)
        return found

    def xid(self, node: Node, gpu: int, code: int, rest: str = "pid=812, name=python3, x") -> None:
        """The line of an XID."""
        self.lines(node, xid_line(node.gpus[gpu].pci_bus_id, code, rest))

    def event(self, kind: EventKind, **fields: object) -> Event:
        """An event of now."""
        return Event(**{"id": "", "kind": kind, "observed_at": self.now, **fields})  # type: ignore[arg-type]  # fields by name

    def events(self, node: Node, *events: Event, more: bool = False, late: bool = False) -> None:
        """Send events of a node at once."""
        named = [
            event
            if event.id
            else msgspec.structs.replace(event, id=f"story:{node.boot_id}:{next(node.lines)}")
            for event in events
        ]
        self._send(node, Stream.EVENTS, events=tuple(named), more_events=more, late=late)
        self._look()

    def check_passed(self, node: Node, gpu: int | None = None, check: str = "dcgm_level_3") -> None:
        """An active check passed: of a GPU, or of the node."""
        whom = {} if gpu is None else _gpu_fields(node, gpu)
        self.events(node, self.event(EventKind.CHECK_PASSED, attributes={"check": check}, **whom))

    def reboot(self, node: Node, down_s: float = 0.0) -> None:
        """A new boot: counters of this boot begin anew."""
        node.boot_id = f"{node.boot_id}'"
        node.sends = True
        node.set(EntityKind.NODE, "", node_uptime_seconds=30.0 + down_s)
        self.introduce(node)

    def run(self, seconds: float, every_s: float | None = None) -> None:
        """Let time pass: readings of all nodes and a sweep at each interval."""
        step = every_s or self.interval_s
        for _ in range(round(seconds / step)):
            self.now += step
            for node in self.nodes:
                node.pass_time(step)
                if node.sends:
                    self.report(node, step)
            self.engine.sweep(self.now)
            self._look()

    def report(self, node: Node, interval_s: float | None = None, ago_s: float = 0.0) -> None:
        """A node's readings of now, or of a while ago."""
        at = self.now + node.skew_s - ago_s
        tables, schemas = self._tables(node, at)
        self._send(
            node,
            Stream.TELEMETRY,
            tables=tables,
            schemas=schemas,
            interval_s=interval_s or self.interval_s,
        )

    # what must never happen

    def never(self, words: str, happened: Callable[[], object]) -> None:
        """Watch for something from now on: after every event and every sweep."""
        self.bans.append(Ban(words, happened))
        self._look()

    def never_excluded(self, *whom: EntityRef) -> None:
        """Nothing, or none of these, may be excluded from now on."""
        keys = {ref.key for ref in whom}

        def excluded() -> list[str]:
            out = [one.entity for one in (*self.engine.exclusions(), *self.engine.would_exclude())]
            return [one for one in out if not keys or one in keys]

        few = ", ".join(sorted(keys)) if 0 < len(keys) <= 4 else f"one of {len(keys)} entities"
        self.never(f"{few if keys else 'anything'} is excluded", excluded)

    def never_suspect(self, *whom: EntityRef) -> None:
        """None of these (none at all) may leave the healthy state from now on."""

        def suspected() -> list[str]:
            refs = whom or tuple(self.engine.records)
            sound = EntityState.HEALTHY
            return [ref.key for ref in refs if self.engine.state_of(ref) is not sound]

        names = ", ".join(ref.key for ref in whom)
        few = names if 0 < len(whom) <= 4 else f"one of {len(whom)} entities"
        self.never(f"{few if whom else 'anything'} is suspected", suspected)

    def never_incident(self, words: str, such: Callable[[Incident], bool]) -> None:
        """No incident of a kind may open from now on."""
        self.never(words, lambda: [i.why for i in self.engine.open_incidents if such(i)])

    # what is true

    def excluded(self) -> list[str]:
        """What may not be used now."""
        return [one.entity for one in self.exclusions()]

    def exclusions(self) -> Sequence[Exclusion]:
        """The same with all that is told of them."""
        return self.engine.exclusions()

    def open(self, ref: EntityRef | None = None) -> list[Incident]:
        """Open incidents, of one entity."""
        found = self.engine.open_incidents
        return [one for one in found if ref is None or one.entity == ref]

    def classes(self, ref: EntityRef) -> set[FaultClass]:
        """Classes of an entity's open incidents."""
        return {one.fault_class for one in self.open(ref)}

    def state(self, ref: EntityRef) -> EntityState:
        """State of an entity."""
        return self.engine.state_of(ref)

    def usable(self, node: Node) -> Usable:
        """The node's own verdict."""
        return self.engine.verdict(node.name).node.usable

    def rungs(self, ref: EntityRef) -> set[Rung]:
        """Rungs of an entity's live decisions."""
        return {one.rung for one in self.engine.live_decisions if one.entity == ref}

    # how it is sent

    def _send(self, node: Node, stream: Stream, **content: object) -> None:
        numbers = node.seqs.setdefault(stream, count(1))
        node.spool_id = node.spool_id or f"{node.name:0>32}"
        made = Batch(
            version=WIRE_VERSION,
            node_id=node.name,
            spool_id=node.spool_id,
            stream=stream,
            seq=next(numbers),
            boot_id=f"{node.name}:{node.boot_id}",
            agent_version="1.0",
            sent_at=self.now + node.skew_s,
            **content,  # type: ignore[arg-type]  # fields of Batch by name
        )
        self.engine.hear(node.name, decode_batch(encode_batch(made)), self.now)

    def _tables(self, node: Node, at: float) -> tuple[tuple[Table, ...], tuple[Schema, ...]]:
        made: list[Table] = []
        schemas: list[Schema] = []
        for kind, rows in node.readings.items():
            if not rows:
                continue
            before = node.packed.get(kind)
            if before is None or before[0] != rows:
                schema = _schema(kind, tuple(next(iter(rows.values()))))
                names = [column.name for column in schema.columns]
                values = {key: [row[name] for name in names] for key, row in rows.items()}
                before = {k: dict(row) for k, row in rows.items()}, pack_table(schema, at, values)
                node.packed[kind] = before
                if schema.hash not in node.told:
                    node.told.add(schema.hash)
                    schemas.append(schema)
            made.append(msgspec.structs.replace(before[1], observed_at=at))
        return tuple(made), tuple(schemas)

    def _of_line(self, node: Node, text: str, backlog: Backlog) -> list[Event]:
        found = parse_events(text, LineContext(driver_version=DRIVER))
        events = []
        for one in found:
            kind, entity = entity_of_line(one)
            facts = {
                "action": one.action,
                "fault_class": one.fault_class.value if one.fault_class else None,
                "application_possible": one.application_possible or None,
                "acts_alone": one.acts_alone or None,
                "echo": one.echo or None,
            }
            events.append(
                self.event(
                    EventKind.KERNEL_LOG,
                    id=f"kmsg:{node.name}:{node.boot_id}:{next(node.lines)}",
                    entity_kind=kind,
                    entity=entity,
                    family=one.family.value,
                    xid=one.xid,
                    sxid=one.sxid,
                    pci_bus_id=one.pci_bus_id,
                    pid=one.pid,
                    process=one.process,
                    severity=one.severity.value,
                    device=one.device,
                    text=one.text,
                    backlog=backlog,
                    attributes={name: value for name, value in facts.items() if value is not None},
                )
            )
        return events

    def _look(self) -> None:
        for ban in self.bans:
            happened = ban.happened()
            after = self.now - START
            assert not happened, f"{after:.0f} s into the story, {ban.words}: {happened}"


def xid_line(pci_bus_id: str, code: int, rest: str = "pid=812, name=python3, x") -> str:
    """The kernel's line of an XID."""
    return f"NVRM: Xid (PCI:{pci_bus_id[:-2]}): {code}, {rest}"


def leaves_of(size: int, a_rack: int = 4) -> Callable[[int], NodePlace]:
    """Nodes in racks, racks on leaves, everything on one mount."""

    def place(number: int) -> NodePlace:
        rack = number // a_rack
        return NodePlace(f"r{rack:02d}", f"leaf-{number // size}", f"p{rack // 2}", ("/scratch",))

    return place


_SCHEMAS: dict[tuple[EntityKind, tuple[str, ...]], Schema] = {}


def _schema(kind: EntityKind, names: tuple[str, ...]) -> Schema:
    key = kind, names
    if key not in _SCHEMAS:
        _SCHEMAS[key] = schema_for(kind, list(names))
    return _SCHEMAS[key]


def _gpu_fields(node: Node, gpu: int) -> dict[str, object]:
    return {"entity_kind": EntityKind.GPU, "entity": node.gpus[gpu].gpu_uuid}
