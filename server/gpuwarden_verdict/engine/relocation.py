"""GPUs that were put into another node or slot: all that stands against them goes with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.domain import Findings, Outcome, Step, key_of
from gpuwarden_verdict.engine.fleet import GpuRecord
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_verdict.incidents.domain import IncidentMove
from gpuwarden_verdict.incidents.moves import GPUWARDEN
from gpuwarden_verdict.policy.document import DecisionMove
from gpuwarden_verdict.signals import Recovery, Signal
from gpuwarden_wire.metrics import EntityKind

T = TypeVar("T", Signal, Recovery)


@dataclass(frozen=True, slots=True)
class Departure:
    """A GPU that sits elsewhere than what is kept of it says.

    Attributes:
        former: Node that it was in; the same one where only its slot changed.
        outcome: What is kept of it, in its new place; to be committed.
    """

    former: str
    outcome: Outcome


class Relocation:
    """Compares where GPUs sit with where the book has them; used in the judge's thread."""

    def __init__(self, book: Book, directory: Directory) -> None:
        """Make it.

        Args:
            book: What is true now.
            directory: Where GPUs sit, as the nodes' inventories tell.
        """
        self._book = book
        self._directory = directory

    def moved_into(self, node_ids: Iterable[str], now: float) -> tuple[Departure, ...]:
        """GPUs in some nodes of which the book says that they sit in another one.

        Nothing is judged: a broken part is as broken in its new node, and no cap or mode of the
        pool there holds an exclusion back that is in force. Its load counts there from then on.
        """
        gpus = (gpu for node_id in node_ids for gpu in self._directory.gpus_of(node_id))
        moved = (self._departure(gpu, now) for gpu in gpus)
        return tuple(one for one in moved if one is not None)

    def moved(self, now: float) -> tuple[Departure, ...]:
        """As `moved_into`, in the whole fleet: asks about those GPUs only that the book knows."""
        known = (self._directory.gpu(ref.key) for ref in self._book.refs(EntityKind.GPU))
        moved = (self._departure(gpu, now) for gpu in known if gpu is not None)
        return tuple(sorted((one for one in moved if one is not None), key=_target_of))

    def told_wrongly(self, exclusions: Iterable[Exclusion]) -> tuple[Departure, ...]:
        """GPUs on the feed whose node is right, and whose slot or index is another one by now."""
        return tuple(
            Departure(gpu.node_id, Outcome(_ref(gpu), relocated=True))
            for one in exclusions
            if one.gpu_uuid is not None
            and (gpu := self._directory.gpu(one.gpu_uuid)) is not None
            and gpu.node_id == one.node_id
            and (gpu.pci_bus_id, gpu.gpu_index) != (one.pci_bus_id, one.gpu_index)
        )

    def in_place(self, findings: Findings) -> Findings:
        """Findings about a GPU, of the node in which it sits now.

        What its former node told before it left, and what was read there, is evidence of the part.
        """
        told = findings.target
        owner = self._directory.owner_of(told.key) if told.kind is EntityKind.GPU else None
        if owner is None or owner == told.node_id:
            return findings
        here = replace(told, node_id=owner)
        return Findings(
            here,
            [
                Step(
                    [_placed(r, told, here) for r in step.recoveries],
                    [_placed(s, told, here) for s in step.signals],
                )
                for step in findings.steps
            ],
            [_placed(signal, told, here) for signal in findings.history],
            findings.checked_at,
        )

    def _departure(self, gpu: GpuRecord, now: float) -> Departure | None:
        here = _ref(gpu)
        key = key_of(here)
        known = self._book.ref(key)
        if known is None or known.node_id == gpu.node_id:
            return None
        reason = f"the GPU was moved from node {known.node_id} to node {gpu.node_id}"
        outcome = Outcome(
            here,
            incident_moves=tuple(
                IncidentMove(
                    replace(incident, entity=here, updated_at=now),
                    incident.phase,
                    reason,
                    GPUWARDEN,
                    now,
                    evidence_only=True,
                )
                for incident in self._book.incidents_of(key)
            ),
            decision_moves=tuple(
                DecisionMove(replace(one, entity=here), one.phase, reason, GPUWARDEN, now)
                for one in self._book.decisions_of(key)
            ),
            acquittals=tuple(
                replace(one, entity=here) for one in self._book.acquittals_of(key, now)
            ),
            relocated=True,
        )
        return Departure(known.node_id, outcome)


def _target_of(departure: Departure) -> tuple[str, str]:
    target = departure.outcome.target
    return target.node_id, target.key


def _ref(gpu: GpuRecord) -> EntityRef:
    return EntityRef(EntityKind.GPU, gpu.gpu_uuid, gpu.node_id)


def _placed(said: T, told: EntityRef, here: EntityRef) -> T:
    return replace(said, entity=here) if said.entity == told else said
