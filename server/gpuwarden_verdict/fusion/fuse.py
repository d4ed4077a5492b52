"""From features and signals to risks: score, veto, rule floor, class, each visible as a line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.features import FeatureScene, FeatureTable, above_limits, feature_table
from gpuwarden_verdict.fusion.artifact import FusionModel, FusionModels
from gpuwarden_verdict.fusion.explain import contributions
from gpuwarden_verdict.fusion.predict import log_odds, logit, probability
from gpuwarden_verdict.signals import Contribution, Plane, Risk, Signal
from gpuwarden_wire.metrics import EntityKind

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

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

_HIGHEST_FLOOR = 0.99
_NAMED_PROBABILITY = 0.1
_NAMED_STRANGE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Suspects:
    """Those of a kind that the trees scored.

    Attributes:
        table: Their features, K rows.
        odds: Log-odds of each, shape (K,).
        novelty: How far each lies outside all that was learnt from, shape (K,).
    """

    table: FeatureTable
    odds: F64
    novelty: F64


def fuse_risks(
    models: FusionModels,
    scene: FeatureScene,
    refs: Collection[EntityRef],
    signals: Sequence[Signal],
    now: float,
) -> list[Risk]:
    """Risks of the entities named.

    Args:
        models: The models, by kind.
        scene: The fleet.
        refs: Who; one of a kind without model, or of which nothing was ever read, gets no risk.
        signals: Live signals of the fleet.
        now: Epoch seconds.

    Returns:
        One risk an entity, its contributions summing to the log-odds of its probability.
    """
    risks: list[Risk] = []
    for kind, model in models.items():
        wanted = {ref.key for ref in refs if ref.kind is kind}
        if not wanted:
            continue
        rows = _places_of(scene, kind, wanted)
        found = _scored(model, scene, rows, now)
        risks += _fuse(model, found, np.arange(rows.size), signals, now)
    return risks


def fuse_suspects(
    models: FusionModels,
    scene: FeatureScene,
    watched: Collection[EntityRef],
    signals: Sequence[Signal],
    now: float,
) -> list[Risk]:
    """Risks of the entities worth one.

    That is: scored at LOOK_PROBABILITY or more, unlike anything learnt from, with a signal, or
    watched.

    Args:
        models: The models, by kind.
        scene: The fleet.
        watched: Entities that get a risk however low it is: those that had one a moment ago.
        signals: Live signals of the fleet.
        now: Epoch seconds.
    """
    named = {*watched, *(signal.entity for signal in signals)}
    risks: list[Risk] = []
    for kind, model in models.items():
        wanted = {ref.key for ref in named if ref.kind is kind}
        found = score_suspects(model, scene, wanted, now)
        asked = np.array([ref.key in wanted for ref in found.table.refs], np.bool_)
        look = logit(min(LOOK_PROBABILITY, model.operating_point))
        worth = asked | (found.odds >= look) | (found.novelty >= 1.0)
        risks += _fuse(model, found, np.flatnonzero(worth), signals, now)
    return risks


def score_suspects(
    model: FusionModel, scene: FeatureScene, wanted: Collection[str], now: float
) -> Suspects:
    """Score those of a model's kind that its first stage lets through.

    Args:
        model: The model.
        scene: The fleet.
        wanted: Keys of entities that are scored whatever the first stage says.
        now: Epoch seconds.
    """
    passed = above_limits(model.kind, scene, now, model.first_stage.by_column())
    passed[_places_of(scene, model.kind, wanted)] = True
    return _scored(model, scene, np.flatnonzero(passed), now)


def _places_of(scene: FeatureScene, kind: EntityKind, keys: Collection[str]) -> I64:
    """Places of entities among those of a kind that ever reported, in order, int64."""
    rows = scene.state.rows_of(kind, sorted(keys))
    seen = ~np.isnan(scene.state.view(kind).last_seen_at())
    known = np.sort(rows[rows >= 0])
    places: I64 = np.cumsum(seen)[known[seen[known]]] - 1
    return places


def _scored(model: FusionModel, scene: FeatureScene, rows: I64, now: float) -> Suspects:
    table = feature_table(model.kind, scene, now, rows)
    novelty = np.zeros(rows.size)
    if model.novelty is not None:
        novelty = model.novelty.distances(table.matrix)
    return Suspects(table, log_odds(model, table.matrix), novelty)


def _fuse(
    model: FusionModel,
    found: Suspects,
    chosen: I64,
    signals: Sequence[Signal],
    now: float,
) -> list[Risk]:
    matrix = found.table.matrix[chosen]
    shares, intercept = contributions(model, matrix)
    live: dict[EntityRef, list[Signal]] = defaultdict(list)
    for signal in signals:
        if signal.expires_at > now and signal.detector != LEARNED_DETECTOR:
            live[signal.entity].append(signal)
    storms = _storms(live) if model.kind is EntityKind.GPU else frozenset[EntityRef]()
    risks = []
    for number, place in enumerate(chosen.tolist()):
        ref = found.table.refs[place]
        own = live.get(ref, [])
        lines = _lines(model, intercept, shares[number], matrix[number])
        lines += _veto(lines, in_storm=ref in storms)
        lines += _rule_floor(lines, own)
        novelty = float(found.novelty[place])
        strange = _strange(model, matrix[number]) if novelty >= 1.0 else ()
        risks.append(_risk(model, ref, lines, own, now, novelty, strange))
    return risks


def _risk(
    model: FusionModel,
    ref: EntityRef,
    lines: list[Contribution],
    signals: Sequence[Signal],
    now: float,
    novelty: float,
    strange: tuple[str, ...],
) -> Risk:
    chance = float(probability(np.asarray(_total(lines))))
    fits = chance >= model.operating_point or novelty < 1.0
    return Risk(
        entity=ref,
        probability=chance,
        fault_class=_fault_class(model, chance, lines, signals, fits=fits),
        contributions=tuple(lines),
        model_version=model.version,
        schema_hash=model.schema_hash,
        scored_at=now,
        operating_point=model.operating_point,
        novelty=novelty,
        strange=strange,
    )


def _lines(
    model: FusionModel, intercept: float, shares: F64, values: npt.NDArray[np.float32]
) -> list[Contribution]:
    return [
        Contribution(INTERCEPT, None, float("nan"), intercept),
        *(
            Contribution(feature.name, feature.plane, value, share)
            for feature, value, share in zip(
                model.features.features, values.tolist(), shares.tolist(), strict=True
            )
        ),
    ]


def _strange(model: FusionModel, values: npt.NDArray[np.float32]) -> tuple[str, ...]:
    """Features that lie furthest outside, the furthest first."""
    if model.novelty is None:
        return ()
    away = model.novelty.parts(values[None, :])[0]
    furthest = [place for place in np.argsort(-away).tolist() if away[place] > 1.0]
    return tuple(model.features.names[place] for place in furthest[:_NAMED_STRANGE])


def _total(lines: Sequence[Contribution]) -> float:
    return sum(line.log_odds for line in lines)


def _storms(live: Mapping[EntityRef, Sequence[Signal]]) -> frozenset[EntityRef]:
    """GPUs in a storm of program failures: at least STORM_GPUS of the node fail within STORM_S.

    A GPU with any signal that a program cannot cause is in no storm.
    """
    failures: dict[str, list[tuple[float, EntityRef]]] = defaultdict(list)
    for ref, signals in live.items():
        if ref.kind is not EntityKind.GPU:
            continue
        if all(signal.application_possible for signal in signals):
            for signal in signals:
                failures[ref.node_id].append((signal.observed_at, ref))
    return frozenset(
        ref
        for times in failures.values()
        for at, ref in times
        if len({other for when, other in times if abs(when - at) <= STORM_S}) >= STORM_GPUS
    )


def _veto(lines: Sequence[Contribution], *, in_storm: bool) -> list[Contribution]:
    """In a storm of program failures the events plane says nothing against a GPU."""
    if not in_storm:
        return []
    raised = sum(max(line.log_odds, 0.0) for line in lines if line.plane is Plane.EVENTS)
    return [Contribution(VETO, None, float("nan"), -raised)]


def _rule_floor(lines: Sequence[Contribution], signals: Sequence[Signal]) -> list[Contribution]:
    """A rule that acts alone is never scored lower than it is sure; a line where it lifts none too.

    So that what would be without a feature can be told from the risk alone.
    """
    sure = max((s.score for s in signals if s.acts_alone and not s.echo), default=0.0)
    if sure <= 0.0:
        return []
    floor = min(sure, _HIGHEST_FLOOR)
    lift = max(logit(floor) - _total(lines), 0.0)
    return [Contribution(RULE_FLOOR, None, floor, lift)]


def _fault_class(
    model: FusionModel,
    chance: float,
    lines: Sequence[Contribution],
    signals: Sequence[Signal],
    *,
    fits: bool,
) -> FaultClass:
    """Class of the strongest cause among the signals, else of the features that speak loudest.

    Unknown where nothing speaks, or where what speaks is unlike anything learnt from.
    """
    causes = [s for s in signals if not s.echo and s.fault_class is not FaultClass.UNKNOWN]
    if causes:
        return max(causes, key=lambda s: (s.acts_alone, s.score)).fault_class
    if chance < _NAMED_PROBABILITY or not fits:
        return FaultClass.UNKNOWN
    classes = {feature.name: feature.fault_class for feature in model.features.features}
    raised: dict[FaultClass, float] = defaultdict(float)
    for line in lines:
        if line.name in classes and line.log_odds > 0:
            raised[classes[line.name]] += line.log_odds
    return max(raised, key=lambda name: raised[name], default=FaultClass.UNKNOWN)
