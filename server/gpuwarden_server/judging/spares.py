"""How spares do now, from what the judge published: for the judge itself, and for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.judging.board import VerdictBoard
from gpuwarden_server.standby.book import StandbyBook
from gpuwarden_server.standby.ports import Proposal, SeenSpare
from gpuwarden_server.standby.repository import Proof, read_proofs
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.exclusions import Exclusion, covers
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.lemons import lemon_list
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.standby import Choice, Look, Obstacle, Shelf, Spare, choose, obstacles_of
from gpuwarden_verdict.verdicts import Standing
from gpuwarden_wire.metrics import EntityKind

_WELL = (None, EntityState.HEALTHY)


@dataclass(frozen=True, slots=True)
class SpareSight:
    """Looks at spares; any thread.

    Attributes:
        book: The book.
        board: What the judge published.
        facts: Who is heard of.
        placements: Where nodes are, and the policy.
        state: state.db.
        ledger: What is on record of parts.
        clock: Time.
    """

    book: StandbyBook
    board: VerdictBoard
    facts: FleetFacts
    placements: Placements
    state: Database
    ledger: Callable[[], LedgerReading]
    clock: Clock

    def shelf(self) -> Shelf:
        """See `StandbySource`."""
        return self.book.shelf

    def seen(self) -> list[SeenSpare]:
        """See `StandbySource`."""
        now = self.clock.now()
        spares = sorted(self.book.shelf.spares.values(), key=lambda spare: spare.node_id)
        with self.state.read() as connection:
            looks = self.looks(connection, spares, now)
        return [SeenSpare(look, self.obstacles(look, now)) for look in looks]

    def proposals(self, seen: Sequence[SeenSpare]) -> list[Proposal]:
        """See `StandbySource`; a spare is proposed once."""
        feed, now = self.board.published(), self.clock.now()
        free = {one.look.spare.node_id: one.look for one in seen if not one.obstacles}
        found: list[Proposal] = []
        told = [(one, False) for one in feed.exclusions] + [(o, True) for o in feed.would_exclude]
        for exclusion, waiting in told:
            if not self._lacks(exclusion, found):
                continue
            choice = self.best(exclusion.node_id, free.values(), now)
            if choice is not None:
                del free[choice.look.spare.node_id]
            found.append(self._proposal(exclusion, choice, waiting=waiting))
        return found

    def members(self) -> dict[str, list[str]]:
        """See `StandbySource`."""
        found: dict[str, list[str]] = {}
        for node_id in self.facts.census().gpu_nodes:
            if not self.book.shelf.stands_by(node_id):
                found.setdefault(self.placements.pool(node_id).name, []).append(node_id)
        return found

    def looks(self, connection: Connection, spares: Iterable[Spare], now: float) -> list[Look]:
        """What is known of spares.

        Args:
            connection: Of state.db, for passed checks.
            spares: Whose.
            now: Epoch seconds.
        """
        wanted = list(spares)
        if not wanted:
            return []
        parts = {one.node_id: self._parts(one.node_id) for one in wanted}
        pools = {pool.name for pool in self.placements.policy.pools}
        gpus = {node_id: [p.entity.key for p in of[1:]] for node_id, of in parts.items()}
        proofs = read_proofs(connection, gpus)
        lemons = self._lemons([part.entity for of in parts.values() for part in of], now)
        looks = [
            self._look(one, parts[one.node_id], proofs[one.node_id], lemons.get(one.node_id, 0.0))
            for one in wanted
        ]
        return [replace(look, has_pool=look.spare.pool in pools) for look in looks]

    def obstacles(self, look: Look, now: float) -> tuple[Obstacle, ...]:
        """Why a spare may not be taken for a node of its pool."""
        return obstacles_of(look, self.rules_of(look.spare.pool).standby.proof_s, now)

    def best(self, leaver: str, looks: Iterable[Look], now: float) -> Choice | None:
        """The spare for a node, of those of its pool."""
        pool, place = self.placements.pool(leaver), self.placements.placement(leaver).entry
        own = [one for one in looks if one.spare.pool == pool.name and one.spare.node_id != leaver]
        return choose(place.rack, place.leaf, own, pool.standby.proof_s, now)

    def rules_of(self, pool: str) -> PoolPolicy:
        """A pool of the policy by name, the last one where it has none of this name."""
        pools = self.placements.policy.pools
        return next((one for one in pools if one.name == pool), pools[-1])

    def _parts(self, node_id: str) -> list[Standing]:
        node = self.board.standing(EntityRef(EntityKind.NODE, node_id, node_id))
        return [node, *(self.board.gpu_standing(gpu) for gpu in self.board.gpus_of(node_id))]

    def _look(self, spare: Spare, parts: Sequence[Standing], proof: Proof, lemon: float) -> Look:
        entry = self.placements.placement(spare.node_id).entry
        proofs = [at for at in (proof.passed_at, spare.proven_at) if at is not None]
        return Look(
            spare=spare,
            contact=self.facts.contact_of(spare.node_id),
            excluded=any(covers(decision) for part in parts for decision in part.decisions),
            incidents=sum(len(part.incidents) for part in parts),
            healthy=all(part.state in _WELL for part in parts),
            maintenance=self.facts.maintenance_of(spare.node_id),
            proof_at=max(proofs, default=None),
            rack=entry.rack,
            leaf=entry.leaf,
            lemon=lemon,
            leased=spare.node_id in self.book.shelf.leases,
            proof_from=proof.counts_from,
            has_gpus=len(parts) > 1,
        )

    def _lemons(self, parts: Iterable[EntityRef], now: float) -> Mapping[str, float]:
        """The heaviest entry of each node in the list of lemons."""
        heaviest: dict[str, float] = {}
        for lemon in lemon_list(self.ledger(), parts, now).lemons:
            node_id = lemon.entity.node_id
            heaviest[node_id] = max(heaviest.get(node_id, 0.0), lemon.weight)
        return heaviest

    def _lacks(self, exclusion: Exclusion, found: Sequence[Proposal]) -> bool:
        shelf, node_id = self.book.shelf, exclusion.node_id
        told = any(one.leaver == node_id for one in found)
        return not (told or shelf.stands_by(node_id) or shelf.lease_for(node_id))

    def _proposal(self, exclusion: Exclusion, choice: Choice | None, *, waiting: bool) -> Proposal:
        pool = self.placements.pool(exclusion.node_id)
        return Proposal(
            leaver=exclusion.node_id,
            pool=pool.name,
            decision_id=exclusion.decision_id,
            waiting=waiting,
            automatic=waiting and pool.standby.promote,
            joiner=None if choice is None else choice.look.spare.node_id,
            why=f"no spare of pool {pool.name} may be taken" if choice is None else choice.why,
        )
