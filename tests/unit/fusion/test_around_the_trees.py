"""First stage, novelty, operating point: what stands around the trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_verdict.detectors.learned import detect_risk, detect_risk_clear
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.fusion import with_calibration
from gpuwarden_verdict.fusion.first_stage import EVERYONE, FirstStage
from gpuwarden_verdict.fusion.novelty import FURTHEST, Novelty
from gpuwarden_verdict.fusion.predict import log_odds
from gpuwarden_verdict.signals import Contribution, Plane, Risk
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import shipped_model

NAN = float("nan")


def stage(*pairs: tuple[int, float]) -> FirstStage:
    columns, limits = zip(*pairs, strict=True)
    return FirstStage(np.array(columns), np.array(limits))


def risk(probability: float, novelty: float = 0.0, kind: EntityKind = EntityKind.GPU) -> Risk:
    odds = float(np.log(probability) - np.log1p(-probability))
    return Risk(
        entity=EntityRef(kind, "one", "n1"),
        probability=probability,
        fault_class=FaultClass.MEMORY,
        contributions=(Contribution("moon_phase", Plane.COUNTERS, 12.5, odds),),
        model_version="gpu-1",
        schema_hash="0",
        scored_at=1.0,
        operating_point=0.3,
        novelty=novelty,
        strange=("moon_phase",) if novelty >= 1.0 else (),
    )


def test_the_first_stage_lets_through_who_is_above_any_limit() -> None:
    matrix = np.array([[0.0, 1.0, NAN], [0.1, NAN, NAN], [0.0, 1.1, NAN], [NAN, NAN, NAN]])
    found = stage((0, 0.0), (1, 1.0), (2, 0.0)).suspects(matrix)
    assert found.tolist() == [False, True, True, False], "what is missing is no suspicion"
    assert EVERYONE.suspects(matrix).all()


def test_novelty_counts_spreads_on_the_side_that_is_strange() -> None:
    cloud = Novelty(np.zeros(3), np.array([1.0, 2.0, 1.0]), np.array([1.0, -1.0, 0.0]), 5.0)
    parts = cloud.parts(np.array([[3.0, -4.0, -2.0], [-3.0, 4.0, 2.0], [NAN, NAN, 1e9]]))
    assert parts.tolist() == [[3.0, 2.0, 2.0], [0.0, 0.0, 2.0], [0.0, 0.0, FURTHEST]]
    far = cloud.distances(np.array([[3.0, -8.0, 0.0], [0.5, 0.0, 0.0]]))
    assert far == pytest.approx([1.0, 0.1])


def test_the_score_is_suspect_from_its_models_operating_point_on() -> None:
    assert detect_risk(risk(0.29), 1.0, may_exclude=False) is None
    signal = detect_risk(risk(0.31), 1.0, may_exclude=False)
    assert signal is not None and signal.max_rung is Rung.SUSPECT
    assert signal.thresholds == {"probability": 0.3}
    allowed = detect_risk(risk(0.31), 1.0, may_exclude=True)
    assert allowed is not None and allowed.max_rung is Rung.EXCLUDE
    assert detect_risk_clear(risk(0.17), 1.0) is not None
    assert detect_risk_clear(risk(0.19), 1.0) is None


@pytest.mark.parametrize("kind", [EntityKind.NODE, EntityKind.NIC])
def test_nodes_and_ports_speak_alike(kind: EntityKind) -> None:
    signal = detect_risk(risk(0.6, kind=kind), 1.0, may_exclude=False)
    assert signal is not None and signal.entity.kind is kind
    assert signal.max_rung is Rung.SUSPECT


def test_where_nothing_fits_it_is_an_unknown_fault_and_suspect_at_most() -> None:
    signal = detect_risk(risk(0.1, novelty=1.2), 1.0, may_exclude=True)
    assert signal is not None and signal.fault_class is FaultClass.UNKNOWN
    assert (signal.max_rung, signal.severity) == (Rung.SUSPECT, Severity.WARNING)
    assert "unknown fault" in signal.sentence and "moon phase 12.5" in signal.sentence
    assert detect_risk_clear(risk(0.1, novelty=0.9), 1.0) is None
    assert detect_risk_clear(risk(0.1, novelty=0.7), 1.0) is not None
    likely = detect_risk(risk(0.6, novelty=1.2), 1.0, may_exclude=False)
    assert likely is not None and likely.fault_class is FaultClass.MEMORY, "what fits goes first"
    assert detect_risk(replace(risk(0.1), probability=NAN), 1.0, may_exclude=False) is None


def test_another_calibration_keeps_the_trees() -> None:
    model = shipped_model()
    other = with_calibration(model, 2.0 * model.slope, model.offset - 1.0, 0.7)
    rows = np.random.default_rng(3).gamma(0.4, 8.0, (20, len(model.features)))
    expected = 2.0 * (log_odds(model, rows) - model.offset) + model.offset - 1.0
    assert log_odds(other, rows) == pytest.approx(expected)
    assert other.operating_point == 0.7 and other.trees is model.trees
