"""From features and signals to risks: score, veto, rule floor, class, each visible as a line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.features import (
    FEATURE_SETS,
    FeatureScene,
    FeatureTable,
    feature_table,
)
from gpuwarden_verdict.fusion.artifact import FusionModel
from gpuwarden_verdict.fusion.explain import contributions
from gpuwarden_verdict.fusion.predict import logit, probability, rows_from
from gpuwarden_verdict.signals import Contribution, Plane, Risk, Signal
from gpuwarden_wire.metrics import EntityKind

F64 = npt.NDArray[np.float64]

INTERCEPT, RULE_FLOOR, VETO = "intercept", "rule_floor", "veto"

LEARNED_DETECTOR = "learned_score"
"""Detector name of this score as a signal: it never feeds back into itself."""

STORM_GPUS = 3
"""GPUs of one node whose programs fail together: then the program is to blame, not a GPU.
Public counts (NCSA Delta) have several GPUs in 16 % of NVLink errors only; a bug in a job hits all
its GPUs."""

STORM_S = 60.0
"""How far apart the failures of one storm lie: the ranks of a job follow each other in seconds."""

LOOK_PROBABILITY = 0.1
"""From here an entity without any signal is worth a risk of its own."""

_FEATURES = FEATURE_SETS[EntityKind.GPU].features
_HIGHEST_FLOOR = 0.99
_NAMED_PROBABILITY = 0.1


def fuse_risks(
    model: FusionModel,
    scene: FeatureScene,
    refs: Collection[EntityRef],
    signals: Sequence[Signal],
    now: float,
) -> list[Risk]:
    """Risks of the GPUs named.

    Args:
        model: The model.
        scene: The fleet; what a GPU's peers do is one of its features.
        refs: Who; one that is no GPU, or of which nothing was ever read, gets no risk.
        signals: Live signals of the fleet.
        now: Epoch seconds.

    Returns:
        One risk a GPU, its contributions summing to the log-odds of its probability.
    """
    fleet = feature_table(EntityKind.GPU, scene, now)
    wanted = {ref.key for ref in refs if ref.kind is EntityKind.GPU}
    chosen = [place for place, ref in enumerate(fleet.refs) if ref.key in wanted]
    return _fuse(model, fleet, chosen, signals, now)


def fuse_suspects(
    model: FusionModel,
    scene: FeatureScene,
    watched: Collection[EntityRef],
    signals: Sequence[Signal],
    now: float,
) -> list[Risk]:
    """Risks of the GPUs worth one: scored at LOOK_PROBABILITY or more, with a signal, or watched.

    Args:
        model: The model.
        scene: The fleet; what a GPU's peers do is one of its features.
        watched: GPUs that get a risk however low it is: those that had one a moment ago.
        signals: Live signals of the fleet.
        now: Epoch seconds.
    """
    fleet = feature_table(EntityKind.GPU, scene, now)
    wanted = {ref.key for ref in watched} | {signal.entity.key for signal in signals}
    high = rows_from(model, fleet.matrix, logit(LOOK_PROBABILITY))
    chosen = [p for p, ref in enumerate(fleet.refs) if high[p] or ref.key in wanted]
    return _fuse(model, fleet, chosen, signals, now)


def _fuse(
    model: FusionModel,
    fleet: FeatureTable,
    chosen: Sequence[int],
    signals: Sequence[Signal],
    now: float,
) -> list[Risk]:
    places = np.array(chosen, dtype=np.int64)
    shares, intercept = contributions(model, fleet.matrix[places])
    live: dict[str, list[Signal]] = defaultdict(list)
    for signal in signals:
        if signal.expires_at > now and signal.detector != LEARNED_DETECTOR:
            live[signal.entity.key].append(signal)
    storms = _storms(live)
    risks = []
    for number, place in enumerate(chosen):
        ref = fleet.refs[place]
        own = live.get(ref.key, [])
        lines = _lines(intercept, shares[number], fleet.matrix[place])
        lines += _veto(lines, in_storm=ref.key in storms)
        lines += _rule_floor(lines, own)
        risks.append(_risk(model, ref, lines, own, now))
    return risks


def _risk(
    model: FusionModel,
    ref: EntityRef,
    lines: list[Contribution],
    signals: Sequence[Signal],
    now: float,
) -> Risk:
    chance = float(probability(np.asarray(_total(lines))))
    return Risk(
        entity=ref,
        probability=chance,
        fault_class=_fault_class(chance, lines, signals),
        contributions=tuple(lines),
        model_version=model.version,
        schema_hash=model.schema_hash,
        scored_at=now,
    )


def _lines(intercept: float, shares: F64, values: npt.NDArray[np.float32]) -> list[Contribution]:
    return [
        Contribution(INTERCEPT, None, float("nan"), intercept),
        *(
            Contribution(feature.name, feature.plane, float(value), float(share))
            for feature, value, share in zip(_FEATURES, values, shares, strict=True)
        ),
    ]


def _total(lines: Sequence[Contribution]) -> float:
    return sum(line.log_odds for line in lines)


def _storms(live: dict[str, list[Signal]]) -> frozenset[str]:
    """GPUs in a storm of program failures: at least STORM_GPUS of the node fail within STORM_S.

    A GPU with any signal that a program cannot cause is in no storm.
    """
    failures: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for key, signals in live.items():
        gpu_only = all(signal.entity.kind is EntityKind.GPU for signal in signals)
        if gpu_only and all(signal.application_possible for signal in signals):
            for signal in signals:
                failures[signal.entity.node_id].append((signal.observed_at, key))
    return frozenset(
        key
        for times in failures.values()
        for at, key in times
        if len({other for when, other in times if abs(when - at) <= STORM_S}) >= STORM_GPUS
    )


def _veto(lines: Sequence[Contribution], *, in_storm: bool) -> list[Contribution]:
    """In a storm of program failures the events plane says nothing against a GPU."""
    if not in_storm:
        return []
    raised = sum(max(line.log_odds, 0.0) for line in lines if line.plane is Plane.EVENTS)
    return [Contribution(VETO, None, float("nan"), -raised)]


def _rule_floor(lines: Sequence[Contribution], signals: Sequence[Signal]) -> list[Contribution]:
    """A rule that acts alone is never scored lower than it is sure."""
    sure = max((s.score for s in signals if s.acts_alone and not s.echo), default=0.0)
    if sure <= 0.0:
        return []
    floor = min(sure, _HIGHEST_FLOOR)
    lift = logit(floor) - _total(lines)
    return [Contribution(RULE_FLOOR, None, floor, lift)] if lift > 0 else []


def _fault_class(
    chance: float, lines: Sequence[Contribution], signals: Sequence[Signal]
) -> FaultClass:
    """Class of the strongest cause among the signals, else of the features that speak loudest."""
    causes = [s for s in signals if not s.echo and s.fault_class is not FaultClass.UNKNOWN]
    if causes:
        return max(causes, key=lambda s: (s.acts_alone, s.score)).fault_class
    if chance < _NAMED_PROBABILITY:
        return FaultClass.UNKNOWN
    classes = {feature.name: feature.fault_class for feature in _FEATURES}
    raised: dict[FaultClass, float] = defaultdict(float)
    for line in lines:
        if line.name in classes and line.log_odds > 0:
            raised[classes[line.name]] += line.log_odds
    return max(raised, key=lambda name: raised[name], default=FaultClass.UNKNOWN)
