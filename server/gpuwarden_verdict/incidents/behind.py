"""Like faults behind one place at once are the place's: a parent incident, whose members wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import is_cause, live_items
from gpuwarden_verdict.incidents.place_index import PlaceIndex
from gpuwarden_verdict.incidents.place_rules import (
    BEHIND,
    LEAST_UNDECLARED,
    LEAST_WHOLE,
    LINGER_S,
    OVER_SHARE,
    PLACE_RULES,
    SILENCE,
    PlaceRule,
)
from gpuwarden_verdict.places import PlaceKind, place_ref, place_words
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, RecoveryKind, Signal
from gpuwarden_wire.metrics import EntityKind

PLACE_TTL_S = 3600.0
_TOLD = 3

ParentKey = tuple[EntityRef, str]
"""A place, and the name under which its evidence is kept."""


@dataclass(slots=True)
class Blamed:
    """What is blamed on places.

    Attributes:
        signals: Of the places.
        recoveries: Of the places.
        members: The place's evidence by id of the incident that is behind it.
    """

    signals: list[Signal] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    members: dict[str, ParentKey] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Member:
    """An incident that a place may explain; `counts` where it speaks for the place's fault."""

    incident: Incident
    onset: float
    counts: bool

    @property
    def node_id(self) -> str:
        return self.incident.entity.node_id


@dataclass(frozen=True, slots=True)
class _Cluster:
    rule: PlaceRule
    name: str
    nodes: frozenset[str]
    total: int
    members: tuple[_Member, ...]

    @property
    def weight(self) -> float:
        """Many nodes speak for a place, and so does that few behind it are well."""
        return len(self.nodes) ** 2 / self.total


def blame_places(
    incidents: Sequence[Incident],
    index: PlaceIndex,
    left_out: frozenset[str],
    now: float,
) -> Blamed:
    """What open incidents say of the places that their nodes stand behind.

    A place is blamed once enough of the nodes behind it show like faults that began together, and
    no longer when few of them still do. Each incident is behind one place at most: the one that
    explains the most.

    Args:
        incidents: All that are open, those of places among them.
        index: Who stands behind what.
        left_out: Nodes that are silent or under maintenance: they neither count nor are counted.
        now: Epoch seconds.
    """
    blamed = Blamed()
    free = {i.id: i for i in incidents if _may_be_behind(i, left_out)}
    for parent in incidents:
        quiet = [i for i in incidents if i.parent_id == parent.id and i.id not in free]
        for rule in _rules_of(parent):
            _review(_Blame(parent, rule, quiet), free, index, left_out, now, blamed)
    while (cluster := _largest(free.values(), index, left_out, now)) is not None:
        _open(cluster, now, blamed)
        for member in cluster.members:
            del free[member.incident.id]
    return blamed


def goes_beyond(incident: Incident, now: float) -> bool:
    """Whether an incident has evidence of its own that no place can cause."""
    return any(_is_own(item) for item in live_items(incident.evidence, now))


def standing_item(parent: Incident, detector: str) -> EvidenceItem | None:
    """A place's evidence of a name that has not cleared."""
    return next(
        (i for i in parent.evidence if i.detector == detector and i.cleared_at is None), None
    )


def place_signal(
    place: EntityRef,
    detector: str,
    fault_class: FaultClass,
    sentence: str,
    numbers: Mapping[str, float],
    now: float,
    *,
    severity: Severity = Severity.ERROR,
    action: RecommendedAction = RecommendedAction.INVESTIGATE,
) -> Signal:
    """What is said of a place; nothing is ever decided about one."""
    return Signal(
        entity=place,
        fault_class=fault_class,
        score=0.9,
        severity=severity,
        plane=Plane.STRUCTURE,
        sentence=sentence,
        detector=detector,
        detector_version=1,
        observed_at=now,
        expires_at=now + PLACE_TTL_S,
        persistence=Persistence.LEVEL,
        action=action,
        numbers=numbers,
        max_rung=Rung.OBSERVE,
        source="sweep",
    )


def place_clear(place: EntityRef, detector: str, reason: str, now: float) -> Recovery:
    """A place shows a thing no more."""
    return Recovery(place, RecoveryKind.READING_CLEAR, now, reason, frozenset({detector}))


def nodes_words(node_ids: Iterable[str]) -> str:
    """The first names, and how many more."""
    names = sorted(node_ids)
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return f"{', '.join(names[:_TOLD])}{more}"


def _may_be_behind(incident: Incident, left_out: frozenset[str]) -> bool:
    entity = incident.entity
    return entity.kind is not EntityKind.PLACE and entity.node_id not in left_out


def _rules_of(parent: Incident) -> list[PlaceRule]:
    """Rules whose evidence stands in a place's incident."""
    if parent.entity.kind is not EntityKind.PLACE:
        return []
    kind = parent.entity.key.partition(":")[0]
    named = {i.detector for i in parent.evidence if i.detector.startswith(BEHIND)} - {SILENCE}
    return [rule for rule in PLACE_RULES if rule.kind == kind and rule.detector in named]


def _member(incident: Incident, rule: PlaceRule, now: float) -> _Member | None:
    """An incident as the rule sees it; None where the place cannot be its cause."""
    live = live_items(incident.evidence, now)
    if not live or any(_is_own(item) for item in live):
        return None
    classes = {_class_of(incident, item) for item in live if is_cause(item.fault_class)}
    if not classes or not classes <= rule.explains | rule.follows:
        return None
    if any(_stands_by_itself(item, rule) for item in live):
        return None
    onset = max(item.received_at for item in live)
    return _Member(incident, onset, bool(classes & rule.explains))


def _stands_by_itself(item: EvidenceItem, rule: PlaceRule) -> bool:
    """A standing reading that may exclude follows from nothing: memory of a host that fails."""
    grave = item.persistence is Persistence.LEVEL and item.max_rung >= Rung.EXCLUDE
    return grave and item.fault_class not in rule.explains and item.fault_class in rule.follows


def _class_of(incident: Incident, item: EvidenceItem) -> FaultClass:
    """Its class; loss on a network interface is its link's, NVLink's fabric is the node's own."""
    on_nic = incident.entity.kind is EntityKind.NIC and item.fault_class is FaultClass.FABRIC
    return FaultClass.NIC if on_nic else item.fault_class


def _is_own(item: EvidenceItem) -> bool:
    grave_boot = item.persistence is Persistence.BOOT and item.severity is Severity.CRITICAL
    return item.acts_alone or item.persistence is Persistence.PART or grave_boot


@dataclass(frozen=True, slots=True)
class _Blame:
    """A place that is blamed already; `quiet` are members of nodes that are not heard of now."""

    parent: Incident
    rule: PlaceRule
    quiet: Sequence[Incident]

    @property
    def name(self) -> str:
        return self.parent.entity.key.partition(":")[2]

    def numbers(self) -> Mapping[str, float]:
        item = standing_item(self.parent, self.rule.detector)
        return {} if item is None else item.numbers

    def takes(self, members: Sequence[_Member], behind: int) -> list[_Member]:
        """What it has, and what began in its burst; of what began later, all while it is broken.

        What fails weeks later, when two are left of its members, is no place's.
        """
        begin = self.parent.opened_at - self.rule.within_s
        end = self.numbers().get("last_onset", self.parent.opened_at) + self.rule.within_s
        own = [m for m in members if m.incident.parent_id == self.parent.id]
        rest = [m for m in members if m.incident.parent_id != self.parent.id and m.onset >= begin]
        nodes = {member.node_id for member in own if member.counts}
        broken = _enough(self.rule, len(nodes), behind)
        return own + [member for member in rest if broken or member.onset <= end]


def _review(
    blame: _Blame,
    free: dict[str, Incident],
    index: PlaceIndex,
    left_out: frozenset[str],
    now: float,
    blamed: Blamed,
) -> None:
    """A place that is blamed already: it keeps its members, and takes what comes meanwhile."""
    rule, name = blame.rule, blame.name
    behind = index.behind(rule.kind, name) - left_out
    there = [
        member
        for incident in free.values()
        if (member := _member(incident, rule, now)) is not None
        and name in index.names_of(rule.kind, incident)
    ]
    members = blame.takes(there, len(behind))
    for member in members:
        blamed.members[member.incident.id] = (blame.parent.entity, rule.detector)
        del free[member.incident.id]
    for incident in blame.quiet:
        blamed.members[incident.id] = (blame.parent.entity, rule.detector)
    nodes = frozenset(member.node_id for member in members if member.counts)
    peak = max(blame.numbers().get("peak", 0.0), float(len(nodes)))
    enough_at = now
    if not _enough(rule, len(nodes), len(behind)):
        enough_at = blame.numbers().get("enough_at", now)
    few = len(nodes) < max(LEAST_WHOLE, math.ceil(OVER_SHARE * peak))
    if few or now - enough_at > LINGER_S:
        if not blame.quiet and standing_item(blame.parent, rule.detector) is not None:
            words = f"{len(nodes)} of {peak:.0f} nodes behind it still show it"
            blamed.recoveries.append(place_clear(blame.parent.entity, rule.detector, words, now))
        return
    total = max(len(behind), len(nodes))
    cluster = _Cluster(rule, name, nodes, total, tuple(members))
    last = max((m.onset for m in members if m.counts), default=now)
    blamed.signals.append(_signal(cluster, peak, last, enough_at, now))


def _largest(
    free: Iterable[Incident], index: PlaceIndex, left_out: frozenset[str], now: float
) -> _Cluster | None:
    """The place that explains the most, of those that may be blamed now."""
    best: _Cluster | None = None
    incidents = list(free)
    for rule in PLACE_RULES:
        by_name: dict[str, list[_Member]] = {}
        for incident in incidents:
            member = _member(incident, rule, now)
            for name in index.names_of(rule.kind, incident) if member is not None else ():
                assert member is not None
                by_name.setdefault(name, []).append(member)
        for name, members in sorted(by_name.items()):
            cluster = _cluster(rule, name, members, index.behind(rule.kind, name) - left_out)
            if cluster is not None and (best is None or cluster.weight > best.weight):
                best = cluster
    return best


def _cluster(
    rule: PlaceRule, name: str, members: Sequence[_Member], behind: frozenset[str]
) -> _Cluster | None:
    """Members that began together, where they are enough."""
    ordered = sorted((m for m in members if m.counts), key=lambda member: member.onset)
    best: frozenset[str] = frozenset()
    begin = end = 0.0
    first = 0
    for last, member in enumerate(ordered):
        while ordered[first].onset < member.onset - rule.within_s:
            first += 1
        nodes = frozenset(one.node_id for one in ordered[first : last + 1])
        if len(nodes) > len(best):
            best, begin, end = nodes, ordered[first].onset, member.onset
    if not _enough(rule, len(best), len(behind)):
        return None
    room = rule.within_s
    mine = tuple(m for m in members if begin - room <= m.onset <= end + room)
    return _Cluster(rule, name, best, max(len(behind), len(best)), mine)


def _enough(rule: PlaceRule, nodes: int, behind: int) -> bool:
    if behind == 0:
        return rule.kind is PlaceKind.MOUNT and nodes >= LEAST_UNDECLARED
    if nodes >= behind and nodes >= LEAST_WHOLE:
        return True
    return nodes >= rule.least_nodes and nodes >= rule.least_share * behind


def _open(cluster: _Cluster, now: float, blamed: Blamed) -> None:
    place = place_ref(cluster.rule.kind, cluster.name)
    last = max(member.onset for member in cluster.members if member.counts)
    blamed.signals.append(_signal(cluster, float(len(cluster.nodes)), last, now, now))
    for member in cluster.members:
        blamed.members[member.incident.id] = (place, cluster.rule.detector)


def _signal(
    cluster: _Cluster, peak: float, last_onset: float, enough_at: float, now: float
) -> Signal:
    rule, nodes = cluster.rule, cluster.nodes
    place = place_ref(rule.kind, cluster.name)
    sentence = (
        f"{len(nodes)} of {cluster.total} nodes behind {place_words(place.key)} show {rule.words} "
        f"at once: {nodes_words(nodes)}"
    )
    numbers = {
        "nodes": float(len(nodes)),
        "behind": float(cluster.total),
        "peak": peak,
        "last_onset": last_onset,
        "enough_at": enough_at,
    }
    return place_signal(place, rule.detector, rule.fault_class, sentence, numbers, now)
