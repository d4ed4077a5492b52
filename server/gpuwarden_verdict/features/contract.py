"""What a feature is, and a set of them: the schema that a model and its rows share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.signals import Plane
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the matrix.

    Attributes:
        name: Stable snake_case name with its unit.
        plane: Kind of evidence.
        monotone: 1: a larger value never lowers the risk; -1: a smaller one; 0: free.
        fault_class: What a value that raises the risk points at.
        cheap: It costs next to nothing to compute: the first stage may look at it.
    """

    name: str
    plane: Plane
    monotone: int
    fault_class: FaultClass
    cheap: bool = False

    @property
    def unit(self) -> str:
        """What its name's ending says that it is counted in; "1" for a plain number."""
        return next((unit for ending, unit in _UNITS if self.name.endswith(ending)), "1")


_UNITS = (
    ("_celsius", "°C"),
    ("_ratio", "ratio"),
    ("_seconds_1h", "s within 1 h"),
    ("_seconds", "s"),
    ("_hours", "h"),
    ("_1h", "within 1 h"),
    ("_24h", "within 24 h"),
    ("_decayed_7d", "decayed over 7 d"),
    ("_decayed_30d", "decayed over 30 d"),
    ("_30d", "within 30 d"),
    ("_180d", "within 180 d"),
    ("_lifetime", "for life"),
)


@dataclass(frozen=True)
class FeatureSet:
    """The columns of one kind of entity, in order.

    Attributes:
        kind: The kind.
        version: Raised whenever a feature of the same name is computed in another way.
        features: Columns.
    """

    kind: EntityKind
    version: int
    features: tuple[Feature, ...]

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def cheap(self) -> tuple[int, ...]:
        """Places of the columns that cost next to nothing."""
        return tuple(place for place, one in enumerate(self.features) if one.cheap)

    @cached_property
    def schema_hash(self) -> str:
        """First 16 hex digits of SHA-256 over version, names, planes and signs: the schema."""
        rows = [[f.name, f.plane.value, f.monotone] for f in self.features]
        canonical = json.dumps([self.version, rows], separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureTable:
    """Features of all N entities of a kind that ever reported.

    Attributes:
        refs: Who, in row order.
        matrix: float32, shape (N, F), columns as the kind's set; NaN where a reading is missing.
    """

    refs: Sequence[EntityRef]
    matrix: npt.NDArray[np.float32]
