"""Judges stored decisions again: one of them, or all since a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions import repository as decision_rows
from gpuwarden_server.decisions.policy import make_policy
from gpuwarden_server.policies import repository
from gpuwarden_server.policies.repository import PolicyText, StoredSnapshot
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.document import LIVE_PHASES, Decision, Mode, PolicyDocument
from gpuwarden_verdict.policy.parse import PolicyError
from gpuwarden_verdict.policy.replay import Replayed, replay
from gpuwarden_verdict.policy.snapshots import DecisionSnapshot, SnapshotError, decode_snapshot
from gpuwarden_verdict.policy.tally import Spell, strongest

MOST_SNAPSHOTS = 5_000
"""Judged again for one question, the oldest first."""
_A_READ = 500


@dataclass(frozen=True, slots=True)
class _Again:
    """A decision at one of its moves, judged again."""

    decision: Decision
    snapshot: DecisionSnapshot
    replayed: Replayed

    @property
    def is_live(self) -> bool:
        """Whether it still lived after that move."""
        return self.decision.phase in LIVE_PHASES


@dataclass(frozen=True, slots=True)
class Rejudged:
    """What a policy would have made of stored decisions.

    Attributes:
        before: As they were.
        after: As they would have been.
        unread: Snapshots that could not be read, by why.
        is_cut: There are more than MOST_SNAPSHOTS.
        notes: What judging again cannot know, each once.
    """

    before: tuple[Spell, ...]
    after: tuple[Spell, ...]
    unread: Mapping[str, int]
    is_cut: bool
    notes: tuple[str, ...]


class DecisionHistory:
    """Stored decisions, and the policies that made them."""

    def __init__(
        self, state: Database, in_force: PolicyDocument, gpus_in: Callable[[EntityRef], int]
    ) -> None:
        """Make one.

        Args:
            state: state.db.
            in_force: The policy that decides now.
            gpus_in: GPUs that an entity stands for.
        """
        self._state = state
        self._in_force = in_force
        self._gpus_in = gpus_in

    def policy(self, version: str) -> PolicyDocument:
        """A policy by its version.

        Raises:
            ProblemError: 404 where its text is not kept; 409 where this version cannot read it.
        """
        if version == self._in_force.version:
            return self._in_force
        kept = self.text(version)
        try:
            return _document(kept)
        except PolicyError as error:
            raise ProblemError(
                409,
                "policy_unreadable",
                f"policy {version} cannot be read by this version of gpuwarden: {error}",
                "Judge by a policy of yours.",
            ) from error

    def text(self, version: str) -> PolicyText:
        """What a policy was read from.

        Raises:
            ProblemError: 404 where it is not kept.
        """
        with self._state.read() as connection:
            kept = repository.read_text(connection, version)
        if kept is None:
            raise ProblemError(
                404,
                "policy_unknown",
                f"the text of policy {version!r} is not kept",
                "See GET /v1/policy/versions, or judge by a policy of yours.",
            )
        return kept

    def replay(self, decision_id: str, other: PolicyDocument | None) -> list[Replayed]:
        """Judge a decision again, each time that it was judged and moved.

        Args:
            decision_id: Of the decision.
            other: Policy to judge by, None for those that decided.

        Raises:
            ProblemError: 404 where there is no such decision, or nothing is kept of what it rested
                on; 409 where what is kept cannot be read; see `policy` too.
        """
        with self._state.read() as connection:
            decision = _require(connection, decision_id)
            stored = repository.read_snapshots(connection, decision_id)
            oldest = repository.oldest_snapshot(connection)
        if not stored:
            raise _no_snapshot(decision, oldest)
        try:
            frozen = [decode_snapshot(one.form, one.body) for one in stored]
        except SnapshotError as error:
            raise ProblemError(
                409,
                "snapshot_unreadable",
                f"what decision {decision_id} rested on cannot be judged again: {error}",
                f"Its evidence stands in GET /v1/decisions/{decision_id}.",
            ) from error
        return [replay(one, other or self.policy(one.policy_version)) for one in frozen]

    def rejudge(self, document: PolicyDocument, since: float, now: float) -> Rejudged:
        """Judge again what was decided since a time, each decision by itself.

        Args:
            document: Policy to judge by.
            since: Epoch seconds.
            now: Epoch seconds.
        """
        unread: Counter[str] = Counter()
        told: dict[str, list[_Again]] = {}
        count = 0
        for stored in self._stored(since):
            count += 1
            try:
                snapshot = decode_snapshot(stored.form, stored.body)
            except SnapshotError as error:
                unread[str(error)] += 1
                continue
            moved = {move.decision.id: move.decision for move in snapshot.moves}
            again = _Again(moved[stored.decision_id], snapshot, replay(snapshot, document))
            told.setdefault(stored.decision_id, []).append(again)
        pairs = [self._spells(mine, now) for mine in told.values()]
        notes = (note for mine in told.values() for one in mine for note in one.replayed.notes)
        return Rejudged(
            before=tuple(before for before, _ in pairs),
            after=tuple(after for _, after in pairs),
            unread=unread,
            is_cut=count >= MOST_SNAPSHOTS,
            notes=tuple(dict.fromkeys(notes)),
        )

    def _spells(self, told: Sequence[_Again], now: float) -> tuple[Spell, Spell]:
        """One decision as it was and as it would have been, for as long as it lived."""
        first, last = told[0], told[-1]
        end = now if last.is_live else last.snapshot.at
        lasted_h = max(0.0, end - first.snapshot.at) / 3600.0
        hours = self._gpus_in(last.decision.entity) * lasted_h
        then = strongest(one.replayed.then for one in told if one.is_live)
        again = strongest(one.replayed.now for one in told if one.is_live)
        spell = Spell(
            entity=last.decision.entity,
            pool=last.snapshot.pool,
            fault_class=last.decision.fault_class,
            at=first.snapshot.at,
            stand=then,
            gpu_hours={then.effect: hours},
            reason=last.decision.reasons[0] if last.decision.reasons else "",
        )
        other = replace(
            spell, pool=last.replayed.pool, stand=again, gpu_hours={again.effect: hours}
        )
        return spell, other

    def _stored(self, since: float) -> Iterator[StoredSnapshot]:
        after = given = 0
        while given < MOST_SNAPSHOTS:
            with self._state.read() as connection:
                found = repository.read_since(connection, since, after, _A_READ)
            yield from found
            given += len(found)
            if len(found) < _A_READ:
                return
            after = found[-1].row


def _document(kept: PolicyText) -> PolicyDocument:
    """The policy under the version that its decisions carry."""
    mode = Mode(kept.mode) if kept.mode else None
    return replace(make_policy(kept.text, mode), version=kept.version)


def _require(connection: Connection, decision_id: str) -> Decision:
    found = decision_rows.read_one(connection, decision_id)
    if found is None:
        raise ProblemError(
            404, "not_found", f"no decision {decision_id!r}", "See GET /v1/decisions."
        )
    return found[0]


def _no_snapshot(decision: Decision, oldest: float | None) -> ProblemError:
    kept = "none is kept yet" if oldest is None else "it is older than the oldest that is kept"
    return ProblemError(
        404,
        "no_snapshot",
        f"what decision {decision.id} rested on is not kept: {kept}",
        "GPUWARDEN_RETENTION_SNAPSHOTS_DAYS says for how long it is; the evidence stands in "
        f"GET /v1/decisions/{decision.id}.",
    )
