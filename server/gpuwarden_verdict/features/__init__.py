"""Features of the learnt scores: one path from the windows to a matrix, for training and serving.

Missing stays missing (NaN): a reading that did not come is never a zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gpuwarden_verdict.features.contract import Feature, FeatureSet, FeatureTable
from gpuwarden_verdict.features.gpu import GPU_COLUMNS, GPU_VERSION
from gpuwarden_verdict.features.nic import NIC_COLUMNS, NIC_VERSION
from gpuwarden_verdict.features.node import NODE_COLUMNS, NODE_VERSION
from gpuwarden_verdict.features.scene import Column, FeatureScene, Look, Make, Some
from gpuwarden_verdict.windows.planes import F32, I64, Bool
from gpuwarden_wire.metrics import EntityKind

__all__ = [
    "FEATURE_COLUMNS",
    "FEATURE_SETS",
    "Feature",
    "FeatureScene",
    "FeatureSet",
    "FeatureTable",
    "above_limits",
    "column_of",
    "feature_table",
]

FEATURE_COLUMNS: Mapping[EntityKind, tuple[Column, ...]] = MappingProxyType(
    {
        EntityKind.GPU: GPU_COLUMNS,
        EntityKind.NODE: NODE_COLUMNS,
        EntityKind.NIC: NIC_COLUMNS,
    }
)
"""How each column is made, in the order of the matrix."""

_VERSIONS = MappingProxyType(
    {
        EntityKind.GPU: GPU_VERSION,
        EntityKind.NODE: NODE_VERSION,
        EntityKind.NIC: NIC_VERSION,
    }
)

FEATURE_SETS: Mapping[EntityKind, FeatureSet] = MappingProxyType(
    {
        kind: FeatureSet(kind, _VERSIONS[kind], tuple(column.feature for column in columns))
        for kind, columns in FEATURE_COLUMNS.items()
    }
)
"""The columns of each kind that is scored."""


def feature_table(
    kind: EntityKind, scene: FeatureScene, now: float, rows: I64 | None = None
) -> FeatureTable:
    """All features of entities of a kind that ever reported.

    Args:
        kind: One of FEATURE_SETS.
        scene: The fleet; one `FleetContext` serves one moment, since what is made of it is kept.
        now: Epoch seconds to which event counts are decayed.
        rows: Which of these entities, by their places in the order of the windows; None for all.

    Returns:
        Rows in the order of the windows, or of `rows`.
    """
    look = Look(kind, scene.state, scene.fleet, now, scene.ledger)
    view = look.view
    seen = np.flatnonzero(~np.isnan(view.last_seen_at()))
    chosen = seen if rows is None else seen[rows]
    if not chosen.size:
        return FeatureTable([], np.empty((0, len(FEATURE_SETS[kind])), np.float32))
    some = Some.of_rows(look, chosen) if chosen.size * _FEW < len(view) else None
    everyone = rows is None and chosen.size == len(view)
    matrix = np.empty((chosen.size, len(FEATURE_SETS[kind])), dtype=np.float32)
    for place, column in enumerate(FEATURE_COLUMNS[kind]):
        make = column.make
        seen_by_all = column.feature.cheap and make.bound is None  # the first stage made it
        if some is not None and make.alone and not seen_by_all:
            matrix[:, place] = make(some)
        else:
            whole = _whole(look, place)
            matrix[:, place] = whole if everyone else whole[chosen]
    return FeatureTable([view.refs[row] for row in chosen.tolist()], matrix)


def above_limits(
    kind: EntityKind, scene: FeatureScene, now: float, limits: Sequence[tuple[int, float]]
) -> Bool:
    """Which entities of a kind that ever reported are above any limit.

    A missing feature is above none. Where a feature's bound is not, it is not made; it is made of
    those few where it is.

    Args:
        kind: One of FEATURE_SETS.
        scene: See `feature_table`.
        now: See `feature_table`.
        limits: Places of columns, and the limit of each, in the feature's unit; without any, all
            entities are above.

    Returns:
        In the order of `feature_table`.
    """
    look = Look(kind, scene.state, scene.fleet, now, scene.ledger)
    seen = ~np.isnan(look.view.last_seen_at())
    if not limits:
        return np.ones(int(np.count_nonzero(seen)), np.bool_)
    above, maybe = np.zeros(seen.size, np.bool_), np.zeros(seen.size, np.bool_)
    bounds_above: list[tuple[Make, float]] = []
    for place, limit in limits:
        make = FEATURE_COLUMNS[kind][place].make
        if make.bound is None:
            above |= _whole(look, place) > limit
        elif (beyond := make.bound(look) > limit).any():
            maybe |= beyond
            bounds_above.append((make, limit))
    rows = np.flatnonzero(maybe)
    some = Some.of_rows(look, rows) if rows.size * _FEW < seen.size else look
    for make, limit in bounds_above:
        found = np.asarray(make(some), np.float32) > limit
        above[rows] |= found if some is not look else found[rows]
    return above[seen]


def column_of(kind: EntityKind, name: str, scene: FeatureScene, now: float) -> F32:
    """One column of a kind, all entities that are known, float32, shape (N,).

    Args:
        kind: One of FEATURE_SETS.
        name: Of the feature.
        scene: See `feature_table`.
        now: Epoch seconds.
    """
    look = Look(kind, scene.state, scene.fleet, now, scene.ledger)
    return _whole(look, FEATURE_SETS[kind].names.index(name))


def _whole(look: Look, place: int) -> F32:
    """A column of all entities, made once a moment: the first stage asks for some beforehand."""
    make = FEATURE_COLUMNS[look.kind][place].make
    return look.once(
        ("feature", place, look.now, id(look.ledger)), lambda: np.asarray(make(look), np.float32)
    )


_FEW = 8
"""Of so many times more entities, columns that ask for nothing of others are made of few."""
