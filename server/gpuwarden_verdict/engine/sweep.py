"""The sweep: all entities looked at together, on a snapshot of the columnar state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import (
    detect_clears,
    detect_model_gone,
    detect_risk,
    detect_risk_clear,
    detect_sweep,
    scoped_rules,
)
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.domain import Findings, Key, Step, key_of, merge_findings
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.engine.failures import SWEEP_STAGE, Failure, raise_failure
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.ports import Windows
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import Gate
from gpuwarden_verdict.fusion.fuse import LOOK_PROBABILITY
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.kin import Kin, KinFinder
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.policy.evaluate import decision_target
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR, gated
from gpuwarden_verdict.signals import Recovery, Risk, Signal
from gpuwarden_verdict.tuning.limits import ScopedRule, Threshold, thresholds
from gpuwarden_verdict.windows import Columns, FleetSnapshot
from gpuwarden_wire.metrics import EntityKind

KIN_FINDER = "kin_finder"
"""What the search for common causes is called where it fails."""


class RiskSource(Protocol):
    """Scores suspects; `learning` provides it."""

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        """Risks of the entities worth one; none where no model is loaded.

        Args:
            scene: The windows, and what is known of the fleet besides.
            watched: Entities that get a risk however low it is.
            signals: What the sweep's detectors said.
            now: Epoch seconds.
        """
        ...

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        """Whether the score may exclude by itself, and what is missing."""
        ...

    def model_of(self, kind: EntityKind) -> str:
        """Version of the model in use for a kind, "" where rules judge it alone."""
        ...

    def may_exclude(self, kind: EntityKind, version: str, pool: PoolPolicy) -> bool:
        """Whether what a model said of an entity may still exclude.

        It is the one in use, and neither policy nor trial closes the gate. Planes are asked of a
        risk when it is told; later they fade with it, and the dwell holds.

        Args:
            kind: Of the entity.
            version: Of the model that said it.
            pool: Rules of the entity's pool.
        """
        ...


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What one sweep saw.

    Attributes:
        findings: By target.
        risks: Latest risk of every entity scored.
    """

    findings: dict[Key, Findings]
    risks: dict[Key, Risk]


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Tells of each detector that raised, once a sweep whatever it was asked for.

    Attributes:
        failed: Told of it.
        told: Names.
    """

    failed: Callable[[Failure], None]
    told: set[str] = field(default_factory=set)

    def tell(self, name: str, error: Exception) -> None:
        if name not in self.told:
            self.told.add(name)
            self.failed(Failure(SWEEP_STAGE, name, "", error))


class Sweeper:
    """Looks over the fleet; used in the judge's thread."""

    def __init__(
        self,
        windows: Windows,
        facts: FleetFacts,
        book: Book,
        pools: PoolBook,
        risks: RiskSource,
        memory: SweepMemory,
        chronicle: Chronicle,
    ) -> None:
        self._windows = windows
        self._memory = memory
        self._chronicle = chronicle
        self._facts = facts
        self._book = book
        self._pools = pools
        self._risks = risks
        self._columns: Columns = {}
        self._rules: list[ScopedRule] = []
        self._kin = KinFinder()

    def look(self, now: float, failed: Callable[[Failure], None] = raise_failure) -> SweepResult:
        """Detect, score and clear.

        Args:
            now: Epoch seconds.
            failed: Told once of each detector or part that raised; the sweep goes on without it
                where that returns.
        """
        trouble = _Trouble(failed)
        seen = self._windows.snapshot(self._columns)
        scene = self._scene_of(seen)
        context = scene.fleet
        opened = tuple(self._book.incidents())
        signals = [self._in_job(one) for one in detect_sweep(seen, context, now, trouble.tell)]
        recoveries = detect_clears(seen, context, opened, now, trouble.tell)
        self._rules = scoped_rules(seen, context, now, trouble.tell)
        risks = self._score(scene, signals, recoveries, now, trouble)
        self._columns = seen.columns_read()
        self._memory.end_sweep()
        kin = self._find_kin(opened, context, now, trouble)
        recoveries += kin.recoveries
        signals += kin.signals
        found = [Findings(decision_target(r.entity), [Step([r])]) for r in recoveries]
        found += [Findings(decision_target(s.entity), [Step([], [s])]) for s in signals]
        return SweepResult(merge_findings(found), risks)

    def scene(self) -> FeatureScene:
        """The fleet as it is now: what detectors, features and scores are made of."""
        return self._scene_of(self._windows.snapshot(self._columns))

    def _scene_of(self, seen: FleetSnapshot) -> FeatureScene:
        names = self._pools.pool_names(self._facts.node_ids())
        context = replace(
            self._facts.fleet_context(names),
            memory=self._memory,
            tuning=self._pools.policy.tuning,
        )
        return FeatureScene(seen, context, self._chronicle.reading())

    def _find_kin(
        self, opened: Sequence[Incident], fleet: FleetContext, now: float, trouble: _Trouble
    ) -> Kin:
        """Common causes; where they cannot be looked for, the former ones stay."""
        try:
            kin = self._kin.find([self._as_judged(one) for one in opened], fleet, now)
        except Exception as error:
            trouble.tell(KIN_FINDER, error)
            return Kin()
        self._book.kin = kin
        return kin

    def _as_judged(self, incident: Incident) -> Incident:
        """A score counts for as much as its gate allows now, whatever it said before."""
        kind, pool = incident.entity.kind, self._pools.pool(incident.entity.node_id)
        return gated(incident, lambda version: self._risks.may_exclude(kind, version, pool))

    def _in_job(self, signal: Signal) -> Signal:
        job = self._facts.job_of(signal.entity, signal.observed_at)
        return replace(signal, job=job) if job else signal

    def thresholds(self) -> list[Threshold]:
        """Limits in force, of what was seen at the latest sweep; callable from any thread."""
        tuning = self._pools.policy.tuning
        return [one for rule in self._rules for one in thresholds(self._memory, tuning, rule)]

    def _watched(self) -> list[EntityRef]:
        """Who had a risk worth a look a moment ago, or is under suspicion by the score."""
        scored = {incident.entity for incident in self._book.incidents() if _by_score(incident)}
        risks = self._book.risks.values()
        return [*scored, *(r.entity for r in risks if r.probability >= LOOK_PROBABILITY)]

    def _score(
        self,
        scene: FeatureScene,
        signals: list[Signal],
        recoveries: list[Recovery],
        now: float,
        trouble: _Trouble,
    ) -> dict[Key, Risk]:
        """Latest risks, and what they say; where none can be made, the former ones say nothing."""
        said, over = list[Signal](), list[Recovery]()
        try:
            risks = self._risks.score(scene, self._watched(), signals, now)
            for risk in risks:
                self._judge_risk(risk, now, said, over)
            over += self._of_former_models({signal.entity for signal in said}, now)
        except Exception as error:
            trouble.tell(LEARNED_DETECTOR, error)
            return dict(self._book.risks)
        signals += said
        recoveries += over
        return {key_of(risk.entity): risk for risk in risks}

    def _of_former_models(self, spoken: Collection[EntityRef], now: float) -> list[Recovery]:
        """Takes back what models said that judge no more, where those in use do not say it too."""
        return [
            detect_model_gone(incident.entity, now)
            for incident in self._book.incidents()
            if incident.entity not in spoken
            and any(
                item.cleared_at is None and item.model != self._risks.model_of(incident.entity.kind)
                for item in incident.evidence
                if item.detector == LEARNED_DETECTOR
            )
        ]

    def _judge_risk(
        self, risk: Risk, now: float, signals: list[Signal], recoveries: list[Recovery]
    ) -> None:
        gate = self._risks.gate(risk, self._pools.pool(risk.entity.node_id))
        signal = detect_risk(risk, now, may_exclude=gate.open)
        if signal is not None:
            signals.append(signal)
            return
        recovery = detect_risk_clear(risk, now)
        if recovery is not None:
            recoveries.append(recovery)


def _by_score(incident: Incident) -> bool:
    return any(item.detector == LEARNED_DETECTOR for item in incident.evidence)
