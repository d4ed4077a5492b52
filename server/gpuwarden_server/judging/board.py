"""What the judge publishes: standings, verdicts and the feed, read by any thread without a lock.

Values are immutable and replaced whole, so a reader sees either what was or what is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.decisions.ports import PublishedFeed
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.ports import VerdictReply
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.domain import Key, key_of
from gpuwarden_verdict.engine.fleet import GpuRecord
from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.policy.document import Pin
from gpuwarden_verdict.signals import Risk
from gpuwarden_verdict.verdicts import FeedPosition, Standing, node_verdict
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class _Kept:
    """A verdict with what it was made for, and its JSON: of all its GPUs, of the notable ones."""

    made_for: tuple[int, Contact]
    verdict: NodeVerdict
    lines: list[bytes | None]


class VerdictBoard:
    """The projection that verdicts are answered from; written by the judge's thread alone."""

    def __init__(
        self,
        directory: FleetDirectory,
        contact_of: Callable[[str], Contact],
        clock: Clock,
    ) -> None:
        """Make an empty board; `fill` and `publish` make it speak.

        Args:
            directory: Nodes and GPUs.
            contact_of: Whether a node is heard of.
            clock: Time.
        """
        self._directory = directory
        self._contact_of = contact_of
        self._clock = clock
        self._standings: dict[Key, Standing] = {}
        self._pins: dict[Key, tuple[Pin, ...]] = {}
        self._risks: dict[Key, Risk] = {}
        self._marks: dict[str, int] = {}
        # Verdicts as they were made last: most never change.
        self._kept: dict[str, _Kept] = {}
        self._feed: PublishedFeed | None = None

    def fill(self, book: Book) -> None:
        """Show everything that is live, at the start."""
        self.show(book, book.live_targets())

    def show(self, book: Book, keys: Iterable[Key]) -> None:
        """Show what became of some targets."""
        for key in keys:
            ref = book.ref(key)
            if ref is None:
                continue
            record = book.record_of(key)
            self._standings[key] = Standing(
                entity=ref,
                state=record.state,
                since=record.since or None,
                decisions=book.decisions_of(key),
                incidents=book.incidents_of(key),
            )
            self._show_pins(key, book.pins_of(key))
            self.mark(ref.node_id)

    def _show_pins(self, key: Key, pins: tuple[Pin, ...]) -> None:
        if pins:
            self._pins[key] = pins
        else:
            self._pins.pop(key, None)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on; `show` tells next how its parts stand."""
        key = (EntityKind.NODE.value, old)
        self._standings.pop(key, None)
        self._pins.pop(key, None)
        self._kept.pop(old, None)
        self._marks[new] = self._marks.pop(old, 0)
        self.mark(new)

    def show_risks(self, risks: dict[Key, Risk]) -> None:
        """Show the latest risks."""
        self._risks = risks

    def mark(self, node_id: str) -> None:
        """Note that the verdict of a node may have changed."""
        self._marks[node_id] = self._marks.get(node_id, 0) + 1

    def publish(self, feed: PublishedFeed) -> None:
        """Replace the feed."""
        self._feed = feed

    def published(self) -> PublishedFeed:
        """The feed as it is now.

        Raises:
            RuntimeError: The judge has not started.
        """
        if self._feed is None:
            raise RuntimeError("the judge has not published yet")
        return self._feed

    @property
    def feed_id(self) -> str:
        """Random id of the database."""
        return self.published().head.feed_id

    @property
    def epoch(self) -> int:
        """Present epoch of the feed."""
        return self.published().head.epoch

    def verdict_if_changed(self, node_id: str, marker: int | None) -> VerdictReply | None:
        """The node's verdict where it may differ from what `marker` stands for."""
        mark = self._marks.get(node_id, 0)
        if marker == mark:
            return None
        return VerdictReply(mark, self.node_verdict(node_id, Contact.LIVE))

    def node_verdict(self, node_id: str, contact: Contact | None = None) -> NodeVerdict:
        """The verdict about a node and its GPUs; `contact` where the caller knows it."""
        head = self.published().head
        kept = self._verdict_of(node_id, contact)
        return msgspec.structs.replace(
            kept.verdict, feed_id=head.feed_id, epoch=head.epoch, issued_at=self._clock.now()
        )

    def stamp(self, node_id: str) -> tuple[int, Contact]:
        """What the node's verdict rests on: while it is the same, so is all but epoch and time."""
        return self._marks.get(node_id, 0), self._contact_of(node_id)

    def verdict_line(self, node_id: str, contact: Contact, notable: bool) -> bytes:
        """The node's verdict as the begin of a JSON object, up to `feed_id`, which is not in it.

        Args:
            node_id: The node.
            contact: Of its stamp.
            notable: With those GPUs only of which there is something to say.
        """
        kept = self._verdict_of(node_id, contact)
        place = int(notable)
        line = kept.lines[place]
        if line is None:
            line = kept.lines[place] = _line_of(kept.verdict, notable)
        return line

    def _verdict_of(self, node_id: str, contact: Contact | None) -> _Kept:
        heard = contact if contact is not None else self._contact_of(node_id)
        made_for = (self._marks.get(node_id, 0), heard)
        kept = self._kept.get(node_id)
        if kept is None or kept.made_for != made_for:
            head = self.published().head
            verdict = self._made_verdict(node_id, heard, FeedPosition(head.feed_id, head.epoch))
            kept = _Kept(made_for, verdict, [None, None])
            if heard is not Contact.NEVER:  # anybody may ask about names that are none
                self._kept[node_id] = kept
        return kept

    def _made_verdict(self, node_id: str, contact: Contact, feed: FeedPosition) -> NodeVerdict:
        return node_verdict(
            self.standing(EntityRef(EntityKind.NODE, node_id, node_id)),
            [self.gpu_standing(gpu) for gpu in self.gpus_of(node_id)],
            contact,
            feed,
            self._clock.now(),
        )

    def gpus_of(self, node_id: str) -> Sequence[GpuRecord]:
        """GPUs of a node that are there, or that left it while something is open against them."""
        held = self._directory.gpus_of(node_id)
        shown = [gpu for gpu in held if gpu.present or self._is_open(gpu)]
        return sorted(shown, key=lambda gpu: (gpu.pci_bus_id, gpu.gpu_uuid))

    def gpu_standing(self, gpu: GpuRecord) -> Standing:
        """Where a GPU stands."""
        ref = EntityRef(EntityKind.GPU, gpu.gpu_uuid, gpu.node_id)
        return replace(self.standing(ref), pci_bus_id=gpu.pci_bus_id, index=gpu.gpu_index)

    def standing(self, ref: EntityRef) -> Standing:
        """Where a node or GPU stands; one that was never judged is healthy if its node is known."""
        shown = self._standings.get(key_of(ref))
        if shown is not None:
            return shown
        known = self._directory.node(ref.node_id) is not None
        return Standing(entity=ref, state=EntityState.HEALTHY if known else None)

    def pins_of(self, ref: EntityRef) -> tuple[Pin, ...]:
        """Pins on an entity that hold or will."""
        return self._pins.get(key_of(ref), ())

    def pins(self) -> list[Pin]:
        """All pins that hold or will, the newest first."""
        every = [pin for pins in list(self._pins.values()) for pin in pins]
        return sorted(every, key=lambda pin: (-pin.set_at, pin.id))

    def states(self, kind: EntityKind) -> Counter[EntityState]:
        """How many entities of a kind are in each state other than healthy."""
        shown = [one for (name, _), one in list(self._standings.items()) if name == kind.value]
        states = Counter(one.state for one in shown if one.state is not None)
        del states[EntityState.HEALTHY]
        return states

    def open_incidents(self) -> int:
        """Incidents that are not resolved."""
        return sum(len(standing.incidents) for standing in list(self._standings.values()))

    def nodes_with_incidents(self) -> frozenset[str]:
        """Nodes with an incident that is not resolved, of their own or of a part."""
        standings = list(self._standings.values())
        nodes = (one.entity.node_id for one in standings if one.incidents)
        return frozenset(node_id for node_id in nodes if node_id)  # a place sits in none

    def entities_with_incidents(self) -> frozenset[Key]:
        """Kind and key of whatever has an incident that is not resolved."""
        standings = list(self._standings.values())
        return frozenset(key_of(i.entity) for one in standings for i in one.incidents)

    def risk(self, ref: EntityRef) -> Risk | None:
        """Latest risk of an entity, None where it is no suspect."""
        return self._risks.get(key_of(ref))

    def _is_open(self, gpu: GpuRecord) -> bool:
        standing = self._standings.get((EntityKind.GPU.value, gpu.gpu_uuid))
        return standing is not None and bool(standing.incidents or standing.decisions)


_TAIL = b',"feed_id":'
"""Where the fields begin that are the same for all verdicts of one answer."""


def _line_of(verdict: NodeVerdict, notable: bool) -> bytes:
    if notable:
        gpus = tuple(gpu for gpu in verdict.gpus if _is_notable(gpu))
        verdict = msgspec.structs.replace(verdict, gpus=gpus)
    body = msgspec.json.encode(verdict)
    return body[: body.rindex(_TAIL)]


def _is_notable(gpu: EntityVerdict) -> bool:
    is_well = gpu.usable is Usable.YES and gpu.state == EntityState.HEALTHY.value
    return not is_well or bool(gpu.why or gpu.would)
