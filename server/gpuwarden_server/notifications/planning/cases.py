"""Cases: incidents of one physical cause, told as one. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from gpuwarden_verdict.entities import SEVERITY_RANK, Severity
from gpuwarden_verdict.places import place_words

LONGEST_KEY = 255
"""Characters: PagerDuty's limit of a dedup_key."""
MOVES_KEPT = 50
_NOUNS = {
    "gpu": "GPU",
    "node": "node",
    "nic": "NIC",
    "disk": "disk",
    "mount": "mount",
    "place": "place",
}


class Standing(StrEnum):
    """What an endpoint knows of an incident or decision."""

    TOLD = "told"
    SILENCED = "silenced"  # a silence covers it: told when that ends, if it still stands
    DIGEST = "digest"  # waits for the next digest
    DIGESTED = "digested"  # was in a digest and still stands
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Member:
    """An incident or decision as one endpoint knows it.

    Attributes:
        endpoint: Which.
        subject: Incident or decision.
        case_key: Its case, "" for none.
        standing: What the endpoint knows.
        since: Epoch seconds of that standing.
        body: Latest form of the incident or decision, as facts tell it.
    """

    endpoint: str
    subject: str
    case_key: str
    standing: Standing
    since: float
    body: Mapping[str, Any]

    @property
    def resolved(self) -> bool:
        """Whether the incident has ended."""
        return self.body.get("resolved_at") is not None

    @property
    def severity(self) -> Severity:
        """Of the incident."""
        return Severity(self.body.get("severity", Severity.ERROR.value))


@dataclass(frozen=True, slots=True)
class Case:
    """What one endpoint is told as one.

    Attributes:
        endpoint: Which.
        key: De-duplication key: the entity and class of the first incident, so that the same
            fault has the same key each time.
        opened_at: Epoch seconds.
        joined_at: When an incident joined last.
        closed: Whether all members are over.
        overflow: It holds what the rate cap folded together.
        fault_class: Of the first incident.
        severity: Highest that was ever told of it.
        place: Node, rack and leaf of the first incident.
        moves: What happened, oldest first, the last MOVES_KEPT.
        moved: How many moves there ever were.
        external: What the receiver named it, and what it was last told.
    """

    endpoint: str
    key: str
    opened_at: float
    joined_at: float
    closed: bool = False
    overflow: bool = False
    fault_class: str = ""
    severity: Severity = Severity.INFO
    place: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[tuple[float, str], ...] = ()
    moved: int = 0
    external: Mapping[str, Any] = field(default_factory=dict)

    def risen(self, severity: Severity) -> Case:
        """The case where an incident of this severity is told with it."""
        if SEVERITY_RANK[severity] <= SEVERITY_RANK[self.severity]:
            return self
        return replace(self, severity=severity)

    def noted(self, at: float, text: str) -> Case:
        """The case with one more move."""
        return replace(self, moves=(*self.moves, (at, text))[-MOVES_KEPT:], moved=self.moved + 1)

    def moves_after(self, count: int) -> Sequence[tuple[float, str]]:
        """Moves after the first `count`, as far as they are kept."""
        missing = min(self.moved - count, len(self.moves))
        return self.moves[len(self.moves) - missing :] if missing > 0 else ()


def case_key_of(body: Mapping[str, Any]) -> str:
    """The de-duplication key of an incident: stable, at most LONGEST_KEY characters."""
    key = f"gpuwarden:{body['entity_kind']}:{body['entity']}:{body['fault_class']}"
    if len(key) <= LONGEST_KEY and key.isprintable():
        return key
    return f"gpuwarden:{hashlib.sha256(key.encode()).hexdigest()}"


def place_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Node, rack and leaf, as far as known."""
    return {name: labels[name] for name in ("node", "rack", "leaf") if labels.get(name)}


def joins(case: Case, labels: Mapping[str, str], now: float, group_s: float) -> bool:
    """Whether a new incident has the same physical cause as an open case, as far as one can say.

    The same node within the window whatever the class (what fails on a node at once fails for one
    reason); the same class behind the same leaf, or in the same rack. What is urgent never hides
    in a case that was told as a warning: receivers page once for a key.
    """
    if case.closed or case.overflow or group_s <= 0 or now - case.joined_at > group_s:
        return False
    severity = Severity(labels.get("severity", Severity.ERROR.value))
    urgent = SEVERITY_RANK[severity] >= SEVERITY_RANK[Severity.ERROR]
    if urgent and SEVERITY_RANK[case.severity] < SEVERITY_RANK[Severity.ERROR]:
        return False
    place = place_of(labels)
    if "node" in place and case.place.get("node") == place["node"]:
        return True
    if case.fault_class != labels.get("fault_class"):
        return False
    return any(
        place.get(name) is not None and case.place.get(name) == place[name]
        for name in ("leaf", "rack")
    )


def labels_of(body: Mapping[str, Any]) -> dict[str, str]:
    """What routes and silences match: the place's labels and the fact's own."""
    own = {
        "node": body.get("node_id"),
        "entity": body.get("entity"),
        "entity_kind": body.get("entity_kind"),
        "fault_class": body.get("fault_class"),
        "severity": body.get("severity"),
        "pool": body.get("pool"),
    }
    labels = {str(name): str(value) for name, value in (body.get("labels") or {}).items()}
    return labels | {name: str(value) for name, value in own.items() if value}


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case with its members, as channels write it.

    Attributes:
        case: The case.
        members: All that it ever had, oldest first.
    """

    case: Case
    members: tuple[Member, ...]

    @property
    def standing(self) -> list[Member]:
        """Members that are not resolved."""
        return [member for member in self.members if not member.resolved]

    @property
    def closed(self) -> bool:
        """Whether nothing of it stands any more."""
        return not self.standing

    @property
    def severity(self) -> Severity:
        """Highest of what stands; of all where nothing does."""
        members = self.standing or self.members
        return max((m.severity for m in members), key=SEVERITY_RANK.__getitem__)

    @property
    def acknowledged(self) -> bool:
        """Whether a person has seen all that stands."""
        standing = self.standing
        return bool(standing) and all(m.body.get("phase") == "acknowledged" for m in standing)

    @property
    def first(self) -> Mapping[str, Any]:
        """The incident that the case is about: a place's, else the one that it began with."""
        places = (m.body for m in self.members if m.body["entity_kind"] == "place")
        return next(places, self.members[0].body)

    @property
    def title(self) -> str:
        """One line: "37 GPUs behind leaf 12: nvlink", "GPU-… on node-7: memory"."""
        subject = self._subject()
        if self.case.overflow:
            return f"{subject}: told as one, the limit of new notifications is reached"
        classes = Counter(str(member.body["fault_class"]) for member in self.members)
        return f"{subject}: {', '.join(name for name, _ in classes.most_common(3))}"

    def _subject(self) -> str:
        place = next((m.body for m in self.members if m.body["entity_kind"] == "place"), None)
        if place is not None:
            behind = [member for member in self.members if member.body is not place]
            with_them = f" with {_counted(behind)} behind it" if behind else ""
            return f"{place_words(str(place['entity']))}{with_them}"
        if len(self.members) == 1:
            first = self.first
            if first["entity_kind"] == "node":
                return f"node {first['node_id']}"
            return f"{_NOUNS.get(first['entity_kind'], 'entity')} {first['entity']} " + (
                f"on {first['node_id']}"
            )
        return f"{_counted(self.members)}{self._where()}"

    def _where(self) -> str:
        """The narrowest place that holds all members."""
        labels = [labels_of(member.body) for member in self.members]
        for name, word in (("node", "on"), ("leaf", "behind leaf"), ("rack", "in rack")):
            values = {one.get(name) for one in labels}
            if len(values) == 1 and None not in values:
                return f" {word} {values.pop()}"
        nodes = {one.get("node") for one in labels}
        return f" on {len(nodes)} nodes"


def _counted(members: Iterable[Member]) -> str:
    kinds = Counter(_NOUNS.get(str(m.body["entity_kind"]), "entity") for m in _distinct(members))
    words = [f"{count} {noun}{'s' if count > 1 else ''}" for noun, count in kinds.most_common()]
    return " and ".join(words)


def _distinct(members: Iterable[Member]) -> Iterable[Member]:
    return {(m.body["entity_kind"], m.body["entity"]): m for m in members}.values()


def subject_of(body: Mapping[str, Any]) -> str:
    """Node and entity of an incident; a place sits in no node."""
    return f"{body.get('node_id') or ''} {body.get('entity')}".strip()


def line_of(body: Mapping[str, Any]) -> str:
    """One incident in a line, for lists."""
    state = "resolved" if body.get("resolved_at") is not None else str(body.get("phase", ""))
    return (
        f"{subject_of(body)} ({body.get('severity')}, "
        f"{body.get('fault_class')}, {state}): {body.get('why')}"
    )
