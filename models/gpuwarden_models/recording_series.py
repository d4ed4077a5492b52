"""What the series of a recording mean: from names and labels to metrics of entities.

The meanings are those by which an agent reads an exporter's page; they are looked up once a series,
so that its numbers can be read as arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_exporters.gathering import meaning_of
from gpuwarden_exporters.identity import gpu_uuid_of
from gpuwarden_exporters.mounts import MOUNTSTATS, mount_meaning, mount_point
from gpuwarden_exporters.rules import NOTHING, GpuFacts, Level, Meaning, Rule, Target, XidForm
from gpuwarden_models.names import OWN
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import METRIC_BY_NAME, metrics_of
from gpuwarden_wire.schema import Schema, schema_for

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]
Entity: TypeAlias = tuple[str, str]
"""Node, and the entity's key inside it; "" for the node itself."""

STAND_IN_UUID = "GPU-00000000-0000-0000-0000-000000000000"
"""Where only the meaning of a name is wanted, whichever GPU it speaks of."""

# What a name means is asked with the labels of some entity of a kind.
STAND_INS: Mapping[EntityKind, Mapping[str, str]] = MappingProxyType(
    {
        EntityKind.GPU: {},
        EntityKind.NODE: {"job": "dcgm"},
        EntityKind.NIC: {"device": "mlx5_0", "port": "1"},
        EntityKind.DISK: {"device": "nvme0n1"},
        EntityKind.MOUNT: {"export": "server:/export", "mountpoint": "/mount"},
    }
)

_PORT = re.compile(r":\d+$")
_GPU_LABELS = ("UUID", "uuid", "gpu_uuid")
_OF_INSTANCE = 10  # as an agent ranks what a MIG row says of its GPU: after the GPU's own
_POLL = Rule("node_nvml_poll_seconds", rank=1)
_SCRAPE_SECONDS = "scrape_duration_seconds"


@dataclass(frozen=True, slots=True)
class XidColumn:
    """A series about XIDs: how it tells of them, and the code where its label names it."""

    form: XidForm
    code: int | None


@dataclass(frozen=True, slots=True)
class Channel:
    """One way in which a metric of a kind of entity is told.

    Attributes:
        kind: Kind of entity.
        rule: From the series' number to the metric, None for XIDs.
        rank: Where several channels give a metric, the lowest that has a number is taken.
        part: Part in the metric.
        origin: Which exporter; each is scraped at its own moment.
        xid: What it tells of XIDs, None for metrics.
    """

    kind: EntityKind
    rule: Rule | None
    rank: int
    part: str
    origin: str
    xid: XidColumn | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the numbers of a series go.

    Attributes:
        channel: Index into the catalogue's channels.
        row: Provisional row of the entity, in order of first sight; see `Layout.order`.
        constant: What the labels alone say, NaN where the number counts.
    """

    channel: int
    row: int
    constant: float = np.nan


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Numbers of one channel, in any order.

    Attributes:
        channel: Index into the catalogue's channels.
        row: Provisional rows, shape (N,).
        at: Epoch seconds, shape (N,).
        value: As recorded, float64, shape (N,).
    """

    channel: int
    row: Rows
    at: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class Span:
    """First and last time of some samples, epoch seconds, and how many series they are of."""

    first: float
    last: float
    series: int


class SampleSource(Protocol):
    """Where samples come from."""

    def survey(self, catalogue: Catalogue) -> Span | None:
        """Tell the catalogue of every series; None where there is no sample.

        Raises:
            RecordingError: Something cannot be read; names it and the mend.
        """
        ...

    def blocks(self, begin: float, until: float) -> Sequence[Block]:
        """Samples with begin <= time < until, in epoch seconds.

        Raises:
            RecordingError: Something cannot be read; names it and the mend.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KindLayout:
    """Rows and columns of the tables of one kind.

    Attributes:
        schema: Columns.
        keys: Names over the fleet in row order; a node's entities are consecutive.
        wire_keys: Names inside the node.
        node_of: Index into the layout's nodes, shape (rows,).
        order: Final row of each provisional one.
        channels: Channels by metric, lowest rank first.
    """

    schema: Schema
    keys: tuple[str, ...]
    wire_keys: tuple[str, ...]
    node_of: Rows
    order: Rows
    channels: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Tables of all frames: nodes, and for each kind its rows and columns."""

    nodes: tuple[str, ...]
    kinds: Mapping[EntityKind, KindLayout]

    def entities(self) -> frozenset[tuple[str, EntityKind, str]]:
        """Node, kind and key of every entity."""
        return frozenset(
            (self.nodes[node], kind, key)
            for kind, item in self.kinds.items()
            for node, key in zip(item.node_of.tolist(), item.wire_keys, strict=True)
        )


@dataclass(slots=True)
class Catalogue:
    """Every series of a recording that means something to us.

    Attributes:
        wanted: Kinds to read, in the order of a frame's tables; series of others mean nothing.
        channels: All channels.
        facts: What labels say of GPUs, by node and UUID.
        nameless: First series whose labels name no node, "" none.
    """

    wanted: tuple[EntityKind, ...]
    channels: list[Channel] = field(default_factory=list)
    facts: dict[Entity, GpuFacts] = field(default_factory=dict)
    nameless: str = ""
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _rows: dict[EntityKind, dict[Entity, int]] = field(default_factory=dict)
    _points: dict[Entity, str] = field(default_factory=dict)

    def slots(self, name: str, labels: dict[str, str]) -> tuple[Slot, ...]:
        """Where the numbers of a series go; () where it means nothing to us."""
        node = node_of(labels)
        meaning, uuid = _meaning(name, labels)
        if not node:
            if meaning.tells:
                self.nameless = self.nameless or name
            return ()
        if (point := mount_point(name, labels)) is not None:
            self._points[(node, point[0])] = point[1]
        if meaning.gpu is not None and uuid:
            known = self.facts.get((node, uuid))
            self.facts[(node, uuid)] = known.merged(meaning.gpu) if known else meaning.gpu
        found = []
        for channel, target in self.channels_of(meaning, name):
            kind = self.channels[channel].kind
            key = {EntityKind.GPU: uuid, EntityKind.NODE: ""}.get(kind)
            key = target.entity if key is None and target is not None else key or ""
            constant = target.constant if target is not None else None
            row = self.row(kind, (node, key))
            found.append(Slot(channel, row, np.nan if constant is None else constant))
        return tuple(found)

    def channels_of(self, meaning: Meaning, name: str) -> list[tuple[int, Target | None]]:
        """Channels of what a series means, with the target where it is none of XIDs."""
        origin = name.partition("_")[0].lower()
        found: list[tuple[int, Target | None]] = []
        if meaning.xid is not None and EntityKind.GPU in self.wanted:
            xid = XidColumn(meaning.xid.form, meaning.xid.code)
            channel = Channel(EntityKind.GPU, None, 0, "", origin, xid)
            found.append((self._number(("xid", xid), channel), None))
        for target in meaning.targets:
            rule = target.rule
            only_instance = target.of_instance and rule.level is Level.INSTANCE
            if target.kind in self.wanted and not only_instance:
                rank = rule.rank + (_OF_INSTANCE if target.of_instance else 0)
                channel = Channel(target.kind, rule, rank, target.part, origin)
                key = (target.kind, id(rule), rank, target.part, origin)
                found.append((self._number(key, channel), target))
        return found

    def row(self, kind: EntityKind, entity: Entity) -> int:
        """Provisional row of an entity, new at first sight."""
        rows = self._rows.setdefault(kind, {})
        return rows.setdefault(entity, len(rows))

    def layout(self) -> Layout:
        """Rows and columns, now that all series are known."""
        nodes = tuple(sorted({node for rows in self._rows.values() for node, _ in rows}))
        kinds = {kind: self._kind(kind, nodes) for kind in self.wanted if self._rows.get(kind)}
        return Layout(nodes, MappingProxyType(kinds))

    def _kind(self, kind: EntityKind, nodes: Sequence[str]) -> KindLayout:
        named = [(node, self._key(kind, node, key)) for node, key in self._rows[kind]]
        ordered = sorted(set(named))
        place = {entity: row for row, entity in enumerate(ordered)}
        node_row = {node: row for row, node in enumerate(nodes)}
        channels: dict[str, list[int]] = {}
        for number, channel in enumerate(self.channels):
            if channel.kind is kind and channel.rule is not None:
                channels.setdefault(channel.rule.metric, []).append(number)
        names = [metric.name for metric in metrics_of(kind) if metric.name in channels]
        return KindLayout(
            schema=schema_for(kind, names),
            keys=tuple(_fleet_key(kind, entity) for entity in ordered),
            wire_keys=tuple(key for _, key in ordered),
            node_of=np.array([node_row[node] for node, _ in ordered], dtype=np.int64),
            order=np.array([place[entity] for entity in named], dtype=np.int64),
            channels={
                metric: tuple(sorted(numbers, key=lambda number: self.channels[number].rank))
                for metric, numbers in channels.items()
            },
        )

    def _key(self, kind: EntityKind, node: str, key: str) -> str:
        """A mount by its mount point: as some series says it, else the path of the export."""
        if kind is not EntityKind.MOUNT or key.startswith("/"):
            return key
        return self._points.get((node, key)) or key.rpartition(":")[2] or key

    def _number(self, key: tuple[object, ...], channel: Channel) -> int:
        number = self._numbers.setdefault(key, len(self.channels))
        if number == len(self.channels):
            self.channels.append(channel)
        return number


def node_of(labels: Mapping[str, str]) -> str:
    """The node that labels name; "" where they name none. A port is cut off."""
    for name in ("node", "Hostname", "hostname", "instance"):
        if node := labels.get(name, "").strip():
            return _PORT.sub("", node) if name == "instance" else node
    return ""


def _fleet_key(kind: EntityKind, entity: Entity) -> str:
    node, key = entity
    if kind is EntityKind.GPU:
        return key
    return f"{node}/{key}" if key else node


def gpu_key(text: str) -> str:
    """A GPU's name: NVML's spelling of a UUID, else as it is written; "" for a MIG instance."""
    bare = text.strip()
    return gpu_uuid_of(bare) or ("" if bare.startswith("MIG-") else bare)


def _meaning(name: str, labels: dict[str, str]) -> tuple[Meaning, str]:
    """What a series means, and its GPU; UUIDs need not be such, where people made them up."""
    uuid = gpu_key(next((labels[label] for label in _GPU_LABELS if labels.get(label)), ""))
    meaning = name_meaning(name, {**labels, "UUID": gpu_uuid_of(uuid) or STAND_IN_UUID})
    if not uuid:  # only what speaks of the node may go without a GPU
        of_node = tuple(t for t in meaning.targets if t.kind is not EntityKind.GPU)
        return Meaning(of_node, success_of=meaning.success_of), ""
    return meaning, uuid


def name_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a name of a recording means; labels as the exporters have them."""
    if name.startswith(OWN):
        return _own_meaning(name.removeprefix(OWN), labels)
    if name.startswith(MOUNTSTATS):
        return mount_meaning(name, labels)
    if name == _SCRAPE_SECONDS:
        of_gpus = "dcgm" in labels.get("job", "")
        return Meaning((Target(EntityKind.NODE, "", _POLL),)) if of_gpus else NOTHING
    return meaning_of(name, labels)


def may_tell(name: str) -> bool:
    """Whether series of this name mean anything to us, with labels of the right kind."""
    stand_ins = ({**labels, "UUID": STAND_IN_UUID} for labels in STAND_INS.values())
    return any(name_meaning(name, labels).tells for labels in stand_ins)


def _own_meaning(name: str, labels: Mapping[str, str]) -> Meaning:
    metric = METRIC_BY_NAME.get(name)
    if metric is None:
        return NOTHING
    device, port = labels.get("device", ""), labels.get("port", "")
    entity = {
        EntityKind.NIC: f"{device}/{port}" if port else device,
        EntityKind.DISK: device,
        EntityKind.MOUNT: labels.get("mountpoint") or labels.get("export", ""),
    }.get(metric.entity_kind)
    if entity == "":
        return NOTHING
    return Meaning((Target(metric.entity_kind, entity or "", _own_rule(name)),))


@cache
def _own_rule(metric: str) -> Rule:
    """Our own word goes before an exporter's."""
    return Rule(metric, rank=-1)
