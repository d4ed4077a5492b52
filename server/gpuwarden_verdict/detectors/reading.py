"""What sweep detectors share: which readings may be judged, and signals from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.context import BOOT_GRACE_S, FleetContext
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, RecoveryKind, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_wire.metrics import EntityKind

Bool = npt.NDArray[np.bool_]

FRESH_S = 60.0
"""A number may lag behind the entity's other readings by this much and still count as present."""

LEFT_OUT_S = 180.0
"""An entity that its node has not named for so long is gone: its last numbers say nothing about
now. Three times FRESH_S, since exporters of one node are scraped at moments of their own."""

LEVEL_TTL_S = 3600.0


def fresh(state: FleetReading, view: KindView, metric: str, fleet: FleetContext) -> Bool:
    """Entities whose reading of a metric is a number, present, and of a node that is heard of.

    Both ages are the agent's clock, so that a wrong clock does not make readings old. Shape (N,).
    """
    return read_now(view, metric) & heard_of(state, view, fleet)


def read_now(view: KindView, metric: str) -> Bool:
    """Entities whose reading of a metric is a number, and as new as their others, shape (N,)."""
    return view.present(metric, FRESH_S)


def heard_of(state: FleetReading, view: KindView, fleet: FleetContext) -> Bool:
    """Entities of nodes that are heard of, and that their node goes on to name, shape (N,)."""
    return ~of_nodes(state, view, fleet.silent_nodes) & still_named(state, view)


def still_named(state: FleetReading, view: KindView) -> Bool:
    """Entities that their node goes on to tell of, shape (N,): a part that was taken out is not."""
    return view.remembered("still_named", lambda: _still_named(state, view))


def _still_named(state: FleetReading, view: KindView) -> Bool:
    own = view.last_seen_at()
    newest = state.view(EntityKind.NODE).last_seen_at().copy()
    inside = ~np.isnan(own)
    np.fmax.at(newest, view.node_rows[inside], own[inside])
    with np.errstate(invalid="ignore"):
        left_out = newest[view.node_rows] - own > LEFT_OUT_S
    return ~left_out


def of_nodes(state: FleetReading, view: KindView, node_ids: frozenset[str]) -> Bool:
    """Entities that sit in one of the nodes, shape (N,)."""
    marked = np.zeros(len(state.view(EntityKind.NODE)), dtype=np.bool_)
    if not node_ids or not marked.size:
        return np.zeros(len(view), dtype=np.bool_)
    rows = state.rows_of(EntityKind.NODE, sorted(node_ids))
    marked[rows[rows >= 0]] = True
    return marked[view.node_rows]


def in_boot_grace(state: FleetReading, view: KindView, fleet: FleetContext, now: float) -> Bool:
    """Entities whose node was booted less than BOOT_GRACE_S ago, shape (N,)."""
    nodes = state.view(EntityKind.NODE)
    with np.errstate(invalid="ignore"):
        young = nodes.last("node_uptime_seconds") < BOOT_GRACE_S
    booted = frozenset(n for n, at in fleet.booted_at.items() if now - at < BOOT_GRACE_S)
    return young[view.node_rows] | of_nodes(state, view, booted)


def twice(view: KindView, metric: str) -> Bool:
    """Entities whose present number was read at least twice in a row, shape (N,)."""
    with np.errstate(invalid="ignore"):
        return view.steady_s(metric) > 0.0


def hits(view: KindView, mask: Bool) -> Iterator[tuple[int, EntityRef]]:
    """Rows and entities where the mask holds."""
    for row in np.flatnonzero(mask):
        yield int(row), view.refs[int(row)]


def level_signal(
    ref: EntityRef,
    now: float,
    *,
    detector: str,
    version: int,
    fault_class: FaultClass,
    score: float,
    severity: Severity,
    sentence: str,
    numbers: Mapping[str, float],
    thresholds: Mapping[str, float],
    plane: Plane = Plane.COUNTERS,
    persistence: Persistence = Persistence.LEVEL,
    action: RecommendedAction = RecommendedAction.INVESTIGATE,
    acts_alone: bool = False,
    max_rung: Rung = Rung.EXCLUDE,
    boot_id: str = "",
) -> Signal:
    """A signal that a reading holds now."""
    return Signal(
        entity=ref,
        fault_class=fault_class,
        score=score,
        severity=severity,
        plane=plane,
        sentence=sentence,
        detector=detector,
        detector_version=version,
        observed_at=now,
        expires_at=now + LEVEL_TTL_S,
        persistence=persistence,
        action=action,
        acts_alone=acts_alone,
        numbers=dict(numbers),
        thresholds=dict(thresholds),
        boot_id=boot_id,
        max_rung=max_rung,
        source="sweep",
    )


def clear_recoveries(
    state: FleetReading,
    kind: EntityKind,
    entities: Sequence[EntityRef],
    clear: Bool,
    detectors: frozenset[str],
    now: float,
    in_words: Callable[[int], str],
) -> list[Recovery]:
    """Recoveries of those entities of a kind where `clear` (shape (N,)) holds.

    Args:
        state: The fleet's state.
        kind: Kind that `clear` is about; entities of another are left out.
        entities: Asked about; one that is not known clears nothing.
        clear: Where a fresh reading shows the condition to be over.
        detectors: Whose evidence ends.
        now: Epoch seconds.
        in_words: The reading of a row in words.
    """
    asked = [ref for ref in entities if ref.kind is kind]
    rows = state.rows_of(kind, [ref.key for ref in asked])
    return [
        Recovery(ref, RecoveryKind.READING_CLEAR, now, in_words(int(row)), detectors)
        for ref, row in zip(asked, rows, strict=True)
        if row >= 0 and clear[row]
    ]
