"""A node shows fewer GPUs than it should have; where it can be told, which ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext, Shortfall
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.reading import (
    FRESH_S,
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
    of_nodes,
    twice,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, RecoveryKind, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import AnyArray
from gpuwarden_wire.metrics import EntityKind

VISIBLE, ON_PCI, EXPECTED = "node_gpus_visible", "node_gpus_on_pci", "node_gpus_expected"
PRESENT = "gpu_present"
_SCORE_BOTH, _SCORE_DRIVER = 0.9, 0.82

NAMED_SHARE = 0.5
"""Of a node's GPUs: when more are absent, the node is the cause, not each of them."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """What one node lacks.

    Attributes:
        visible: GPUs that the driver shows.
        on_pci: GPUs on the bus, NaN unknown.
        expected: GPUs that there should be.
        named: Those that are absent, by uuid; GPUs that are told lost are not among them.
        unnamed: How many more are missing, nobody knows which.
    """

    visible: float
    on_pci: float
    expected: float
    named: tuple[str, ...]
    unnamed: float

    @property
    def off_bus(self) -> bool:
        """Whether they are not even on the bus."""
        return self.on_pci < self.expected


class DeviceMissingDetector:
    """Signals of nodes whose count of GPUs is below what is expected in two readings.

    A count that could not be read is no count: our own trouble never makes a GPU missing. A GPU
    that the server remembers and that the node names no more has a signal of its own. GPUs that are
    told lost have incidents of their own; where all that is missing is known, the node is suspect
    at most, so that the others can still be used.
    """

    name = "device_missing"
    version = 2
    about = About(
        Plane.STRUCTURE,
        (VISIBLE, ON_PCI, EXPECTED, PRESENT),
        "a node shows fewer GPUs than it should have",
        "in two readings, not in the grace after a boot",
        Rung.EXCLUDE,
        "all GPUs are shown, or are missed no more; or a passed check",
    )
    speaks_for = frozenset({"device_missing"})

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """Signals of each node with fewer GPUs than expected, outside boot grace."""
        view = state.view(EntityKind.NODE)
        grace = in_boot_grace(state, view, fleet, now)
        return [
            signal
            for row, ref, lack in _lacks(state, fleet)
            if not grace[row]
            for signal in self._signals(ref, lack, now)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Nodes that show all their GPUs now, and GPUs that are missed no more."""
        view = state.view(EntityKind.NODE)
        clear = _complete(state, view, fleet)
        visible = view.last(VISIBLE)
        of_nodes_found = clear_recoveries(
            state,
            EntityKind.NODE,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda row: f"all {visible[row]:.0f} GPUs are visible",
        )
        return of_nodes_found + self._found_again(state, fleet, entities, now)

    def _found_again(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs that answer at two probes, or that their node lacks no more (exchanged, given away).

        What was moved to another node answers there. What is named among those lacking does not
        answer: its last readings are from before it went, and may be only seconds old.
        """
        asked = [ref for ref in entities if ref.kind is EntityKind.GPU]
        if not asked:
            return []
        answering = answering_gpus(state, fleet) - _named(state, fleet)
        unmissed = _unmissed(state, fleet)
        why = dict.fromkeys(unmissed, "its node lacks it no more")
        why |= dict.fromkeys(answering, "the GPU answers at two probes")
        return [
            Recovery(ref, RecoveryKind.READING_CLEAR, now, why[ref.key], self.speaks_for)
            for ref in asked
            if ref.key in why
        ]

    def _signals(self, ref: EntityRef, lack: _Lack, now: float) -> Iterator[Signal]:
        place = "off the PCIe bus" if lack.off_bus else "not started by the driver"
        shows = f"{lack.visible:.0f} of {lack.expected:.0f} GPUs"
        for uuid in lack.named:
            gpu = EntityRef(EntityKind.GPU, uuid, ref.node_id)
            sentence = f"GPU {uuid} is gone: node {ref.key} shows {shows}, this one is {place}"
            yield self._signal(gpu, lack, now, sentence, Rung.EXCLUDE)
        sentence = f"node {ref.key} shows {shows}, the rest is {place}"
        rung = Rung.EXCLUDE if lack.unnamed > 0 else Rung.SUSPECT
        yield self._signal(ref, lack, now, sentence, rung)

    def _signal(
        self, ref: EntityRef, lack: _Lack, now: float, sentence: str, max_rung: Rung
    ) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.BUS if lack.off_bus else FaultClass.DRIVER,
            score=_SCORE_BOTH if lack.off_bus else _SCORE_DRIVER,
            severity=Severity.ERROR,
            sentence=sentence,
            numbers={VISIBLE: lack.visible, ON_PCI: lack.on_pci},
            thresholds={VISIBLE: lack.expected, ON_PCI: lack.expected},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.REBOOT_NODE,
            max_rung=max_rung,
        )


def answering_gpus(state: FleetReading, fleet: FleetContext) -> frozenset[str]:
    """GPUs that were read present twice in a row, latest at their node's latest reading."""
    view = state.view(EntityKind.GPU)
    answers = (view.last(PRESENT) == 1) & twice(view, PRESENT) & fresh(state, view, PRESENT, fleet)
    return frozenset(ref.key for _, ref in hits(view, answers & _up_to_date(state, view)))


def _lacks(state: FleetReading, fleet: FleetContext) -> Iterator[tuple[int, EntityRef, _Lack]]:
    """Nodes that lack GPUs in two readings; what is known to be gone for good is no lack."""
    view = state.view(EntityKind.NODE)
    expected, lost = _expected(state, view, fleet), _known_lost(state)
    on_pci = np.where(fresh(state, view, ON_PCI, fleet), view.last(ON_PCI), np.nan)
    with np.errstate(invalid="ignore"):
        short = (view.last(VISIBLE) < expected) & twice(view, VISIBLE)
    for row, ref in hits(view, short & fresh(state, view, VISIBLE, fleet)):
        visible = float(view.last(VISIBLE)[row])
        lack = _lack(visible, float(on_pci[row]), float(expected[row]), int(lost[row]), ref, fleet)
        if lack is not None:
            yield row, ref, lack


def _named(state: FleetReading, fleet: FleetContext) -> frozenset[str]:
    return frozenset(uuid for _, _, lack in _lacks(state, fleet) for uuid in lack.named)


def _lack(
    visible: float, on_pci: float, expected: float, lost: int, ref: EntityRef, fleet: FleetContext
) -> _Lack | None:
    known = fleet.shortfalls.get(ref.node_id, Shortfall())
    unexplained = max(0.0, expected - visible - lost)
    named = known.absent[: int(unexplained)]
    if len(named) > NAMED_SHARE * expected:
        named = ()
    unnamed = unexplained - len(named)
    if ref.node_id not in fleet.gpus_expected_set:
        off_bus = expected - (visible if np.isnan(on_pci) else on_pci)
        gone = min(unnamed, known.left, max(0.0, off_bus))
        unnamed, expected = unnamed - gone, expected - gone
    return _Lack(visible, on_pci, expected, named, unnamed) if visible < expected else None


def _unmissed(state: FleetReading, fleet: FleetContext) -> frozenset[str]:
    """GPUs in no inventory that their node, which is heard of, does not lack."""
    view = state.view(EntityKind.NODE)
    lacking = {ref.key: lack for _, ref, lack in _lacks(state, fleet)}
    counted = fresh(state, view, VISIBLE, fleet) & twice(view, VISIBLE)
    found: set[str] = set()
    for _, ref in hits(view, counted):
        known = fleet.shortfalls.get(ref.node_id, Shortfall())
        lack = lacking.get(ref.key)
        if lack is None:
            found |= {*known.absent, *known.released}
        elif lack.named:
            found |= {*known.absent, *known.released} - {*lack.named}
    return frozenset(found)


def _expected(state: FleetReading, view: KindView, fleet: FleetContext) -> AnyArray:
    """The most that the node and the server's record say, save where an operator set the number."""
    expected = np.where(fresh(state, view, EXPECTED, fleet), view.last(EXPECTED), np.nan)
    if not fleet.gpus_expected:
        return expected
    keys = list(fleet.gpus_expected)
    rows = state.rows_of(EntityKind.NODE, keys)
    known = rows >= 0
    told = np.full(len(view), np.nan)
    told[rows[known]] = np.array([fleet.gpus_expected[key] for key in keys])[known]
    is_set = of_nodes(state, view, fleet.gpus_expected_set)
    wanted = np.where(is_set & ~np.isnan(expected), expected, np.fmax(expected, told))
    return np.where(of_nodes(state, view, fleet.gpus_declared), told, wanted)


def _complete(state: FleetReading, view: KindView, fleet: FleetContext) -> Bool:
    complete = ~np.isnan(_expected(state, view, fleet)) & fresh(state, view, VISIBLE, fleet)
    with np.errstate(invalid="ignore"):
        once = (view.last(VISIBLE) < _expected(state, view, fleet)) & ~twice(view, VISIBLE)
    complete &= ~once
    complete[[row for row, _, _ in _lacks(state, fleet)]] = False
    return complete


def _known_lost(state: FleetReading) -> AnyArray:
    """GPUs of each node that are told lost now (gpu_present reads 0), shape (nodes,)."""
    gpus = state.view(EntityKind.GPU)
    lost = (gpus.last(PRESENT) == 0) & _up_to_date(state, gpus)
    return np.bincount(gpus.node_rows[lost], minlength=len(state.view(EntityKind.NODE)))


def _up_to_date(state: FleetReading, gpus: KindView) -> Bool:
    """GPUs read about when their node was, shape (N,); one in no inventory is read no more."""
    seen = state.view(EntityKind.NODE).last_seen_at()[gpus.node_rows]
    behind: Bool = seen - gpus.last_seen_at() > FRESH_S
    return ~behind
