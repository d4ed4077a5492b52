"""Which entities' features are kept. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.features import FEATURE_SETS, FeatureScene, feature_table
from gpuwarden_verdict.signals import Risk
from gpuwarden_wire.metrics import EntityKind

EVERY_S = 300.0
MOST_SUSPECTS = 50
MOST_IN_INCIDENTS = 50
HEALTHY_A_TIME = 4
"""Of each kind: a day gives 1,152 healthy rows of a kind, whatever the size of the fleet."""

Key = tuple[str, str]


class Why(StrEnum):
    """Why a row was kept."""

    SUSPECT = "suspect"
    INCIDENT = "incident"
    HEALTHY = "healthy"  # at random


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """Features of one entity at one moment.

    Attributes:
        at: Epoch seconds.
        kind: Of the entity.
        entity: Its key.
        node_id: Its node.
        why: Why it was kept.
        schema_hash: What its columns are.
        model_version: What judged then, "" for rules alone.
        body: Columns, little-endian float32; NaN where missing.
        share: The chance that an entity was kept for this reason at that moment, 0..1.
    """

    at: float
    kind: EntityKind
    entity: str
    node_id: str
    why: Why
    schema_hash: str
    model_version: str
    body: bytes
    share: float = 1.0


def sample(
    kind: EntityKind,
    scene: FeatureScene,
    risks: Collection[Risk],
    in_incidents: Collection[Key],
    version: str,
    now: float,
) -> list[FeatureRow]:
    """Rows of a kind that are worth keeping now.

    Args:
        kind: One of FEATURE_SETS.
        scene: The fleet.
        risks: Of this sweep.
        in_incidents: Who has an incident that is not resolved.
        version: What judges the kind, "" for rules alone.
        now: Epoch seconds; also seeds what is taken at random.
    """
    chosen = dict(_chosen(kind, scene, risks, in_incidents, now))
    if not chosen:
        return []
    places = np.array(sorted(chosen), np.int64)
    table = feature_table(kind, scene, now, places)
    matrix = table.matrix.astype("<f4", copy=False)
    schema = FEATURE_SETS[kind].schema_hash
    reported = int((~np.isnan(scene.state.view(kind).last_seen_at())).sum())
    at_random = min(1.0, HEALTHY_A_TIME / max(1, reported))
    return [
        FeatureRow(
            now,
            kind,
            ref.key,
            ref.node_id,
            chosen[int(place)],
            schema,
            version,
            matrix[number].tobytes(),
            at_random if chosen[int(place)] is Why.HEALTHY else 1.0,
        )
        for number, (place, ref) in enumerate(zip(places, table.refs, strict=True))
    ]


def _chosen(
    kind: EntityKind,
    scene: FeatureScene,
    risks: Collection[Risk],
    in_incidents: Collection[Key],
    now: float,
) -> Iterator[tuple[int, Why]]:
    """Places among the entities that ever reported, and why; of two reasons the later holds."""
    seen = ~np.isnan(scene.state.view(kind).last_seen_at())
    count = int(seen.sum())
    if count:
        rng = np.random.default_rng(int(now))
        for place in rng.choice(count, min(HEALTHY_A_TIME, count), replace=False):
            yield int(place), Why.HEALTHY
    order = np.cumsum(seen) - 1
    mine = sorted((r for r in risks if r.entity.kind is kind), key=lambda r: -r.probability)
    suspects = [risk.entity.key for risk in mine[:MOST_SUSPECTS]]
    troubled = sorted(key for of, key in in_incidents if of == kind.value)[:MOST_IN_INCIDENTS]
    for keys, why in ((suspects, Why.SUSPECT), (troubled, Why.INCIDENT)):
        for place in _places(scene, kind, keys, seen, order):
            yield place, why


def _places(
    scene: FeatureScene,
    kind: EntityKind,
    keys: Collection[str],
    seen: npt.NDArray[np.bool_],
    order: npt.NDArray[np.int64],
) -> list[int]:
    rows = scene.state.rows_of(kind, list(keys))
    known = rows[rows >= 0]
    return [int(order[row]) for row in known if seen[row]]
