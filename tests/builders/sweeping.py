"""One sweep detector over a small fleet: what it tells, and what it clears."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_verdict.detectors.contract import SweepDetector
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.batches import MissingKind
from tests.builders.verdict import Fleet, gpu_ref, node_ref

GPU = gpu_ref(0, 0)
NODE = node_ref(0)
DAY = 86400.0


def told(detector: SweepDetector, fleet: Fleet) -> list[Signal]:
    return detector.detect(fleet.state, fleet.fleet_context(), fleet.now)


def clears(detector: SweepDetector, fleet: Fleet, *refs: EntityRef) -> list[str]:
    found = detector.clears(fleet.state, fleet.fleet_context(), refs, fleet.now)
    assert all(recovery.detectors == detector.speaks_for for recovery in found)
    return [recovery.entity.key for recovery in found]


def hold(
    fleet: Fleet,
    refs: Sequence[EntityRef],
    seconds: float,
    step: float = 10.0,
    /,
    **values: float | MissingKind,
) -> None:
    """The same readings for some time, which passes."""
    for number in range(1, int(seconds / step) + 1):
        fleet.tell(refs, at=fleet.now + number * step, **values)
    fleet.now += int(seconds / step) * step
