"""The exclusion set: what is in force, its digest, its differences and its plain forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_wire.metrics import EntityKind


class Scope(StrEnum):
    """ANY: nodes with any excluded GPU. NODE: nodes excluded as a whole."""

    ANY = "any"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """Where a GPU sits, for display beside its name."""

    pci_bus_id: str
    index: int | None


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One entity that may not be used, as in the exclusions' JSON form."""

    entity_kind: EntityKind
    entity: str
    node_id: str
    gpu_uuid: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    rung: Rung
    since: float
    reason: str
    decision_id: str
    decided_by: str
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class ExclusionChange:
    """Difference of two sets."""

    added: tuple[Exclusion, ...]
    removed: tuple[Exclusion, ...]


def exclusion_set(
    decisions: Iterable[Decision], places: Mapping[str, GpuPlace]
) -> tuple[Exclusion, ...]:
    """Exclusions in force, sorted by kind and entity, one an entity."""
    raise NotImplementedError


def would_exclude(
    decisions: Iterable[Decision], places: Mapping[str, GpuPlace]
) -> tuple[Exclusion, ...]:
    """What proposed and held-back decisions would exclude, in the same form."""
    raise NotImplementedError


def digest(exclusions: Iterable[Exclusion]) -> str:
    """SHA-256 hex over "\\n".join(sorted("entity_kind:entity"))."""
    raise NotImplementedError


def difference(before: Iterable[Exclusion], after: Iterable[Exclusion]) -> ExclusionChange:
    """What was added and removed, by entity."""
    raise NotImplementedError


def host_lines(exclusions: Iterable[Exclusion], scope: Scope = Scope.ANY) -> str:
    """One node a line, sorted, each line ended; "" for none."""
    raise NotImplementedError


def slurm_line(exclusions: Iterable[Exclusion], scope: Scope = Scope.ANY) -> str:
    """Comma-separated nodes for Slurm's --exclude, one line; an empty line for none."""
    raise NotImplementedError
