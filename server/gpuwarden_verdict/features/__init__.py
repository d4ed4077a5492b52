"""Features of the learnt scores: one path from the windows to a matrix, for training and serving.

Missing stays missing (NaN): a reading that did not come is never a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.features.contract import Feature, FeatureSet, FeatureTable
from gpuwarden_verdict.features.gpu import GPU_COLUMNS, GPU_VERSION
from gpuwarden_verdict.features.nic import NIC_COLUMNS, NIC_VERSION
from gpuwarden_verdict.features.node import NODE_COLUMNS, NODE_VERSION
from gpuwarden_verdict.features.scene import Column, FeatureScene
from gpuwarden_wire.metrics import EntityKind

__all__ = [
    "FEATURE_SETS",
    "Feature",
    "FeatureScene",
    "FeatureSet",
    "FeatureTable",
    "feature_table",
]

_COLUMNS: Mapping[EntityKind, tuple[Column, ...]] = MappingProxyType(
    {
        EntityKind.GPU: GPU_COLUMNS,
        EntityKind.NODE: NODE_COLUMNS,
        EntityKind.NIC: NIC_COLUMNS,
    }
)
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
        for kind, columns in _COLUMNS.items()
    }
)
"""The columns of each kind that is scored."""


def feature_table(kind: EntityKind, scene: FeatureScene, now: float) -> FeatureTable:
    """All features of all entities of a kind that ever reported.

    Args:
        kind: One of FEATURE_SETS.
        scene: The fleet; one `FleetContext` serves one moment, since what is made of it is kept.
        now: Epoch seconds to which event counts are decayed.

    Returns:
        Rows in the order of the windows.
    """
    look = Scene(kind, scene.state, scene.fleet, now)
    view = look.view
    matrix = np.empty((len(view), len(FEATURE_SETS[kind])), dtype=np.float32)
    for place, column in enumerate(_COLUMNS[kind]):
        matrix[:, place] = column.make(look)
    rows = np.flatnonzero(~np.isnan(view.last_seen_at()))
    if rows.size == len(view):
        return FeatureTable(list(view.refs), matrix)
    return FeatureTable([view.refs[row] for row in rows.tolist()], matrix[rows])
