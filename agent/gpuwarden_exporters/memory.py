"""What an exporter said before: what falls silent says so, and sums never fall."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from gpuwarden_exporters.rules import Parts
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Rows, Unavailable

_Key = tuple[EntityKind, str]

FORGET_AFTER_S = 3600.0
"""A device silent for an hour was taken out on purpose; until then each reading says it is gone."""

FROZEN_AFTER_S = 300.0
"""An energy counter of mJ that stands still for so long is no reading: the exporter repeats itself
(a GPU draws watts even idle). dcgm-exporter reads every 30 s unless told otherwise."""

_ENERGY = "gpu_energy_joules_total"


@dataclass(slots=True)
class _Entity:
    seen_at: float = 0.0
    metrics: set[str] = field(default_factory=set)
    makers: dict[str, str] = field(default_factory=dict)
    energy: float = -1.0
    energy_since: float = 0.0


class SeriesMemory:
    """Of one exporter. Not thread-safe."""

    def __init__(self) -> None:
        self._entities: dict[_Key, _Entity] = {}
        self._parts: dict[tuple[EntityKind, str, str, int], dict[str, Reading]] = {}

    def note_maker(self, key: _Key, metric: str, maker: str) -> None:
        """Which part of the exporter makes a metric."""
        if maker:
            self._entities.setdefault(key, _Entity()).makers[metric] = maker

    def with_last_parts(self, key: tuple[EntityKind, str, str, int], parts: Parts) -> Parts:
        """The parts of a sum, those without a number now as they were last.

        A link that is down has no counters any more; without its last count the sum would fall and
        later rise as if errors had come.
        """
        numbers = {name: one for name, one in parts.items() if isinstance(one, float | int)}
        if not numbers:
            return parts
        if len(parts) == 1 and key not in self._parts:
            return parts  # no sum
        known = self._parts.setdefault(key, {})
        known.update(numbers)
        return known

    def complete(
        self,
        rows: Mapping[EntityKind, Mapping[str, dict[str, Reading]]],
        failed: Set[str],
        clock: float,
    ) -> dict[EntityKind, Rows]:
        """The rows with what was there before, for an hour, each such reading with its reason.

        Args:
            rows: As gathered.
            failed: Parts of the exporter that failed this time.
            clock: Monotonic seconds.
        """
        done: dict[EntityKind, dict[str, Mapping[str, Reading]]] = {}
        for kind, entities in rows.items():
            for key, row in entities.items():
                done.setdefault(kind, {})[key] = self._row((kind, key), row, failed, clock)
        for (kind, key), entity in list(self._entities.items()):
            if key in done.get(kind, {}):
                continue
            if clock - entity.seen_at > FORGET_AFTER_S:
                self._forget((kind, key))
            elif entity.metrics:
                silent = {name: _silence(entity, name, failed) for name in sorted(entity.metrics)}
                done.setdefault(kind, {})[key] = silent
        return dict(done)

    def frozen_for_s(self, gpu_uuid: str, clock: float) -> float:
        """Seconds for which a GPU's energy has stood still, 0 where that is not too long."""
        entity = self._entities.get((EntityKind.GPU, gpu_uuid))
        if entity is None or entity.energy < 0:
            return 0.0
        still = clock - entity.energy_since
        return still if still >= FROZEN_AFTER_S else 0.0

    def _row(
        self, key: _Key, row: dict[str, Reading], failed: Set[str], clock: float
    ) -> dict[str, Reading]:
        entity = self._entities.setdefault(key, _Entity())
        entity.seen_at = clock
        for name, reading in row.items():
            if not isinstance(reading, NotSupported):
                entity.metrics.add(name)
        for name in entity.metrics - row.keys():
            row[name] = _silence(entity, name, failed)
        energy = row.get(_ENERGY)
        if isinstance(energy, float | int) and energy != entity.energy:
            entity.energy, entity.energy_since = energy, clock
        return row

    def _forget(self, key: _Key) -> None:
        del self._entities[key]
        for part_key in [one for one in self._parts if one[:2] == key]:
            del self._parts[part_key]


def _silence(entity: _Entity, metric: str, failed: Set[str]) -> Reading:
    if entity.makers.get(metric) in failed:
        return Unavailable("exporter_part_failed")
    return Unavailable("not_in_exporter")
