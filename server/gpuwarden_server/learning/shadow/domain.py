"""Would-be exclusions of a score, and what a trial of it amounts to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gpuwarden_server.learning.labels.domain import Label, Truth
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.fusion.gate import TrialKind, TrialRun
from gpuwarden_wire.metrics import EntityKind

QUIET_S = 600.0
"""A would-be exclusion that says nothing for so long has ended; before, it is the same one."""
LONGEST_GAP_S = 600.0
"""Between two looks; what lies beyond counts for no healthy time: nobody looked."""
LEAD_S = 3600.0
"""An incident that began so long before a would-be exclusion is what it speaks of."""
_DAY_S = 86_400.0


class Role(StrEnum):
    """As what a model was scored."""

    PROMOTED = "promoted"
    CHALLENGER = "challenger"


class Outcome(StrEnum):
    """How a would-be exclusion turned out."""

    NEEDED = "needed"  # an incident of hardware came within the horizon
    FALSE = "false"  # nothing came, or people say that it was none
    PENDING = "pending"  # the horizon is not over
    HIDDEN = "hidden"  # an exclusion of ours hid what would have come


@dataclass(frozen=True, slots=True)
class Opinion:
    """A score would exclude an entity now.

    Attributes:
        entity: Which.
        probability: Of needing action within the horizon.
        fault_class: What it suspects.
        planes: Kinds of evidence that support it.
    """

    entity: EntityRef
    probability: float
    fault_class: str
    planes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WouldExclude:
    """An exclusion that a score would have made.

    Attributes:
        id: "shadow-" and 12 hex digits.
        version: Model.
        entity: Which.
        since: Epoch seconds.
        until: When it ended, None while it goes on; epoch seconds.
        probability: Highest.
        fault_class: At the highest.
        planes: At the highest.
    """

    id: str
    version: str
    entity: EntityRef
    since: float
    until: float | None
    probability: float
    fault_class: str
    planes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TriedModel:
    """A model that is scored in shadow, and from where on.

    Attributes:
        kind: What it judges.
        version: Its name.
        digest: SHA-256 of its MANIFEST.json.
        exclude_confidence: The highest of the limits by which its exclusions are counted now.
    """

    kind: EntityKind
    version: str
    digest: str
    exclude_confidence: float


@dataclass(frozen=True, slots=True)
class ShadowRun:
    """How long a model has been tried on this fleet.

    Attributes:
        kind: What it judges.
        version: Model.
        role: As what it was scored last.
        begun_at: Epoch seconds.
        seen_at: Of the latest look, epoch seconds.
        digest: SHA-256 of the model's MANIFEST.json.
        exclude_confidence: The highest of the limits by which its exclusions were counted.
        healthy_days: Entities x days that were healthy meanwhile.
    """

    kind: EntityKind
    version: str
    role: Role
    begun_at: float
    seen_at: float
    digest: str
    exclude_confidence: float
    healthy_days: float = 0.0

    def goes_on_with(self, tried: TriedModel) -> bool:
        """Whether it says anything of a model as it is tried now.

        It was the same file, and no lower limit asks for what nobody counted before.
        """
        same = self.digest == tried.digest
        return same and self.exclude_confidence <= tried.exclude_confidence


def new_run(tried: TriedModel, role: Role, now: float) -> ShadowRun:
    """A run that begins now, epoch seconds."""
    limit = tried.exclude_confidence
    return ShadowRun(tried.kind, tried.version, role, now, now, tried.digest, limit)


@dataclass(slots=True)
class _Held:
    """What a score says of an entity at present."""

    last: float
    told: WouldExclude


@dataclass(slots=True)
class ShadowWatch:
    """Turns what one model says at each look into would-be exclusions; one thread uses it.

    Attributes:
        run: How long it has been tried.
    """

    run: ShadowRun
    _held: dict[str, _Held] = field(default_factory=dict)
    _looked_as: Role | None = None

    def resume(self, going_on: Iterable[WouldExclude]) -> None:
        """Go on with would-be exclusions of before a restart."""
        for one in going_on:
            self._held[one.entity.key] = _Held(self.run.seen_at, one)

    def look(
        self,
        opinions: Collection[Opinion],
        healthy: int,
        role: Role,
        limit: float,
        new_id: Callable[[], str],
        now: float,
    ) -> list[WouldExclude]:
        """Take what the model says now.

        Healthy time is that between two looks of this process at the model in one role: before a
        start, and where it was a challenger a moment ago, nobody knows what it would have said.

        Args:
            opinions: Of whom it would exclude.
            healthy: How many entities are healthy.
            role: As what it is scored.
            limit: The highest of the limits by which it would exclude.
            new_id: Names what is new.
            now: Epoch seconds.

        Returns:
            Would-be exclusions that began, grew or ended.
        """
        gap = min(max(now - self.run.seen_at, 0.0), LONGEST_GAP_S)
        seen = gap if self._looked_as is role else 0.0
        self._looked_as = role
        days = self.run.healthy_days + healthy * seen / _DAY_S
        self.run = replace(
            self.run,
            role=role,
            seen_at=now,
            healthy_days=days,
            exclude_confidence=max(limit, self.run.exclude_confidence),
        )
        changed = [one for said in opinions if (one := self._take(said, new_id, now)) is not None]
        return changed + self._ended(now)

    def close(self) -> list[WouldExclude]:
        """The model is scored no more: what it says ends with its latest look."""
        told = [replace(held.told, until=held.last) for held in self._held.values()]
        self._held.clear()
        return told

    def _take(self, opinion: Opinion, new_id: Callable[[], str], now: float) -> WouldExclude | None:
        """The would-be exclusion that began or grew, None where all is as before."""
        key, held = opinion.entity.key, self._held.get(opinion.entity.key)
        if held is not None:
            held.last = now
            if opinion.probability <= held.told.probability:
                return None
        id_, since = (new_id(), now) if held is None else (held.told.id, held.told.since)
        told = WouldExclude(
            id_,
            self.run.version,
            opinion.entity,
            since,
            None,
            opinion.probability,
            opinion.fault_class,
            opinion.planes,
        )
        self._held[key] = _Held(now, told)
        return told

    def _ended(self, now: float) -> list[WouldExclude]:
        quiet = [key for key, held in self._held.items() if now - held.last >= QUIET_S]
        gone = [self._held.pop(key) for key in quiet]
        return [replace(held.told, until=held.last) for held in gone]


def outcome_of(
    one: WouldExclude, labels: Iterable[tuple[float, Label]], horizon_s: float, now: float
) -> Outcome:
    """How a would-be exclusion turned out.

    Args:
        one: It.
        labels: When each incident of the same entity opened, epoch seconds, and its label.
        horizon_s: Within which the model speaks of needing action.
        now: Epoch seconds.
    """
    last = one.since + horizon_s
    near = [label for at, label in labels if one.since - LEAD_S <= at <= last]
    if any(label.needed for label in near):
        return Outcome.NEEDED
    if any(label.needed is False for label in near):
        return Outcome.FALSE
    if any(label.truth is Truth.UNCERTAIN for label in near):
        return Outcome.HIDDEN
    return Outcome.PENDING if now < last else Outcome.FALSE


@dataclass(frozen=True, slots=True)
class Tally:
    """Would-be exclusions of one model by how they turned out.

    Attributes:
        needed: Rightly.
        false: Wrongly.
        unsettled: Pending or hidden.
    """

    needed: int = 0
    false: int = 0
    unsettled: int = 0


def tally_of(outcomes: Iterable[Outcome]) -> Tally:
    """How many turned out how."""
    found = list(outcomes)
    needed, false = found.count(Outcome.NEEDED), found.count(Outcome.FALSE)
    return Tally(needed, false, len(found) - needed - false)


def trial_of(run: ShadowRun, tally: Tally) -> TrialRun:
    """The trial that a shadow run amounts to; what is not settled counts as false."""
    false = tally.false + tally.unsettled
    return TrialRun(
        TrialKind.SHADOW,
        run.version,
        run.healthy_days,
        false,
        run.seen_at,
        run.digest,
        run.exclude_confidence,
    )


def gate_trials(trials: Mapping[TrialKind, TrialRun]) -> tuple[TrialRun, ...]:
    """The trials that the gate goes by, the one that bounds false exclusions lowest first.

    What a shadow run on the living fleet got wrong is held against a backtest too.
    """
    shadow, backtest = trials.get(TrialKind.SHADOW), trials.get(TrialKind.BACKTEST)
    if backtest is not None and shadow is not None:
        false = backtest.false_actions + shadow.false_actions
        backtest = replace(backtest, false_actions=false)
    known = [trial for trial in (shadow, backtest) if trial is not None]
    return tuple(sorted(known, key=lambda trial: trial.bound_per_gpu_day))
