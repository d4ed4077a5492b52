"""What is blamed on a place: which faults, of how many nodes, within which time."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.places import PlaceKind

BEHIND = "behind_place:"
"""Begin of the names under which a place's own evidence is kept."""


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """Like faults behind one place that are the place's.

    Attributes:
        kind: Of the place.
        explains: Classes of faults of nodes, and of what sits in them, that it may cause.
        fault_class: Where the fault lies then.
        words: What the nodes show.
        within_s: Their faults began within this time of each other.
        least_nodes: Nodes that show it, at least.
        least_share: Of the nodes behind the place that are heard of.
        follows: Classes that come of it too; they do not count.
    """

    kind: PlaceKind
    explains: frozenset[FaultClass]
    fault_class: FaultClass
    words: str
    within_s: float
    least_nodes: int = 3
    least_share: float = 0.5
    follows: frozenset[FaultClass] = frozenset()

    @property
    def detector(self) -> str:
        """Name under which the place's evidence is kept."""
        return f"{BEHIND}{self.fault_class.value}"


_LINKS = frozenset({FaultClass.NIC})
PLACE_RULES: tuple[PlaceRule, ...] = (
    PlaceRule(
        PlaceKind.LEAF,
        _LINKS,
        FaultClass.FABRIC,
        "links that failed",
        120.0,
        follows=frozenset({FaultClass.STORAGE, FaultClass.HOST}),
    ),
    # Its server stalls under the load of many: absent at 4 nodes, there at 60.
    PlaceRule(
        PlaceKind.MOUNT,
        frozenset({FaultClass.STORAGE}),
        FaultClass.STORAGE,
        "stalls of storage",
        300.0,
        least_share=0.3,
        follows=frozenset({FaultClass.HOST}),
    ),
    PlaceRule(
        PlaceKind.POWER, frozenset({FaultClass.POWER}), FaultClass.POWER, "lack of power", 300.0
    ),
    PlaceRule(
        PlaceKind.RACK, frozenset({FaultClass.POWER}), FaultClass.POWER, "lack of power", 300.0
    ),
    # Air warms over minutes, and each node meets its limit at another time.
    PlaceRule(PlaceKind.RACK, frozenset({FaultClass.THERMAL}), FaultClass.THERMAL, "heat", 3600.0),
    PlaceRule(PlaceKind.RACK, _LINKS, FaultClass.FABRIC, "links that failed", 120.0),
)
"""In order of preference where two places would hold as many."""

LEAST_WHOLE = 2
"""All nodes behind a place are enough, where they are so many."""
LEAST_UNDECLARED = 10
"""Nodes that are wanted where no inventory says who is behind a mount."""
OVER_SHARE = 0.2
"""A place's fault is over when fewer than this share of its worst show it, or one node alone."""
LINGER_S = 3600.0
"""It is over too when for so long fewer showed it than it takes to blame a place: what is still
broken then is broken by itself."""


@dataclass(frozen=True, slots=True)
class SilenceRule:
    """Nodes that vanished together; silence is never a fault of theirs.

    Attributes:
        kind: Of the place.
        fault_class: Where the fault lies then.
        least_nodes: Nodes that vanished, at least.
        least_share: Of the nodes behind the place.
    """

    kind: PlaceKind
    fault_class: FaultClass
    least_nodes: int = 3
    least_share: float = 0.8


SILENCE_RULES: tuple[SilenceRule, ...] = (
    SilenceRule(PlaceKind.RACK, FaultClass.POWER),
    SilenceRule(PlaceKind.LEAF, FaultClass.FABRIC),
    SilenceRule(PlaceKind.POWER, FaultClass.POWER),
    SilenceRule(PlaceKind.FLEET, FaultClass.UNKNOWN, least_nodes=5, least_share=0.3),
)
"""Narrowest first. Agents speak over another network than jobs do: a rack that is gone from it lost
its power sooner than its leaf switch."""

SILENCE_WITHIN_S = 120.0
"""Nodes that fell silent within this time of each other fell silent together."""
SILENCE = f"{BEHIND}silence"
FLEET_NAME = "all"
