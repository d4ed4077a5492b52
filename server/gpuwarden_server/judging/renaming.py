"""A node that is called something else from now on: all that stands against it goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.decisions.ports import Author
from gpuwarden_server.judging.board import VerdictBoard
from gpuwarden_server.judging.remembering import MemoryKeeper
from gpuwarden_server.judging.troubles import TroubleBook
from gpuwarden_server.judging.worker import Concluded
from gpuwarden_server.store.renaming import rename_node
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.desk import EventDesk
from gpuwarden_verdict.engine.domain import Outcome, StateMove, key_of
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.entities import EntityRef, EntityState, renamed_ref
from gpuwarden_verdict.incidents.domain import IncidentMove
from gpuwarden_verdict.policy.document import DecisionMove
from gpuwarden_verdict.standby import BookChange
from gpuwarden_wire.metrics import EntityKind

Renamed = Callable[[str, str, float], None]
"""Given the old name, the new one and the time of the change, epoch seconds."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """Renames a node in the judge's thread, in which nothing is judged meanwhile.

    Attributes:
        book: What is true now.
        desk: Events in.
        facts: What is known of nodes.
        troubles: Agents' own trouble.
        board: What is published.
        pools: What is out.
        keeper: What sweeps remember.
        chronicle: What is on record of parts.
    """

    book: Book
    desk: EventDesk
    facts: FleetFacts
    troubles: TroubleBook
    board: VerdictBoard
    pools: PoolBook
    keeper: MemoryKeeper
    chronicle: Chronicle

    def rename(
        self, old: str, new: str, author: Author, elsewhere: Renamed, now: float
    ) -> Concluded:
        """What the change of a name amounts to.

        Nothing is judged anew. Readers of incidents, states and the feed are told of what is live,
        and so are receivers of notifications, whose keys stay what they were.

        Args:
            old: A node that is known.
            new: A name that no node has.
            author: Who wants it.
            elsewhere: Told after the commit, before it is published: gives the name to what others
                keep in memory.
            now: Epoch seconds.
        """
        keys = sorted(self.book.targets_on(old))
        refs = [ref for key in keys if (ref := self.book.ref(key)) is not None]
        why = f"node {old} is called {new} from now on: {author.reason}"
        outcomes = (self._outcome(ref, old, new, replace(author, reason=why), now) for ref in refs)
        entry = AuditEntry(
            *(now, author.name, author.key_id, "rename_node", f"node:{new}", author.reason),
            before={"node_id": old},
            after={"node_id": new},
        )

        def committed() -> None:
            elsewhere(old, new, now)
            for part in (self.book, self.desk, self.facts, self.troubles, self.board):
                part.rename(old, new)
            self.pools.rename(old)
            self.keeper.rename(old, new, now)
            self.chronicle.rename(old, new)

        return Concluded(
            outcomes=tuple(one for one in outcomes if not one.is_empty),
            audits=(entry,),
            answer=new,
            first=partial(rename_node, old=old, new=new, at=now),
            committed=committed,
            standby=BookChange(renames=((old, new),)),
        )

    def _outcome(self, ref: EntityRef, old: str, new: str, author: Author, now: float) -> Outcome:
        key, here = key_of(ref), renamed_ref(ref, old, new)
        record = self.book.record_of(key)
        told = ref.kind is EntityKind.NODE and record.state is not EntityState.HEALTHY
        return Outcome(
            here,
            incident_moves=tuple(
                IncidentMove(
                    replace(one, entity=renamed_ref(one.entity, old, new), updated_at=now),
                    *(one.phase, author.reason, author.name, now),
                    evidence_only=True,
                )
                for one in self.book.incidents_of(key)
            ),
            decision_moves=tuple(
                DecisionMove(replace(one, entity=here), one.phase, author.reason, author.name, now)
                for one in self.book.decisions_of(key)
            ),
            changed_pins=tuple(replace(one, entity=here) for one in self.book.pins_of(key)),
            state_move=StateMove(here, record, record, author.reason, author.name)
            if told
            else None,
        )
