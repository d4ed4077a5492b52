"""A risk told: lines that sum to its log-odds, words with numbers, what it were without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_verdict.feature_words import amount_of, said_of
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import FusionModel, explain_risk
from gpuwarden_verdict.fusion.explain import contributions
from gpuwarden_verdict.fusion.predict import log_odds, logit, probability
from gpuwarden_verdict.signals import Contribution, Plane, Risk
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import shipped_model

ROWS = 40


def random_rows(model: FusionModel) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rng = np.random.default_rng(11)
    matrix = rng.gamma(0.4, 8.0, (ROWS, len(model.features))).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.25] = np.nan
    return matrix


def risk_of(model: FusionModel, row: np.ndarray, *special: Contribution) -> Risk:
    shares, intercept = contributions(model, row[None, :])
    terms = [
        Contribution("intercept", None, np.nan, intercept),
        *(
            Contribution(feature.name, feature.plane, float(value), float(share))
            for feature, value, share in zip(model.features.features, row, shares[0], strict=True)
        ),
        *special,
    ]
    odds = sum(term.log_odds for term in terms)
    return Risk(
        entity=EntityRef(model.kind, "it", "node"),
        probability=float(probability(np.asarray(odds))),
        fault_class=FaultClass.UNKNOWN,
        contributions=tuple(terms),
        model_version=model.version,
        schema_hash=model.schema_hash,
        scored_at=0.0,
    )


@pytest.mark.parametrize("kind", list(FEATURE_SETS))
def test_the_lines_sum_to_the_log_odds_that_the_model_gives(kind: EntityKind) -> None:
    model = shipped_model(kind)
    matrix = random_rows(model)
    for row, expected in zip(matrix, log_odds(model, matrix).tolist(), strict=True):
        told = explain_risk(model, risk_of(model, row))
        assert sum(line.log_odds for line in told.lines) == pytest.approx(expected, abs=1e-6)
        assert told.log_odds == pytest.approx(expected, abs=1e-6)
        planes = {feature.plane.value for feature in model.features.features}
        assert {line.name for line in told.lines} == {"intercept", "calibration", *planes}


@pytest.mark.parametrize("kind", list(FEATURE_SETS))
def test_what_it_were_without_a_feature_is_what_the_model_says_then(kind: EntityKind) -> None:
    model = shipped_model(kind)
    told_any = 0
    for row in random_rows(model):
        told = explain_risk(model, risk_of(model, row))
        for one in told.without:
            changed = row.copy()
            changed[model.features.names.index(one.feature)] = one.healthy
            (odds,) = log_odds(model, changed[None, :])
            assert one.probability == pytest.approx(float(probability(odds)), abs=1e-9)
            assert float(one.sentence.split()[-1]) == pytest.approx(
                one.probability, rel=0.35, abs=1e-9
            )
            told_any += 1
    assert told_any > ROWS / 2


def test_floor_and_veto_are_lines_and_hold_without_the_feature_too() -> None:
    model = shipped_model()
    row = random_rows(model)[0]
    plain = risk_of(model, row)
    raised = sum(max(one.log_odds, 0.0) for one in plain.contributions if one.plane is Plane.EVENTS)
    veto = Contribution("veto", None, np.nan, -raised)
    low = sum(one.log_odds for one in plain.contributions) - raised
    floor = Contribution("rule_floor", None, 0.97, max(logit(0.97) - low, 0.0))
    told = explain_risk(model, risk_of(model, row, veto, floor))
    lines = {line.name: line for line in told.lines}
    assert lines["veto"].log_odds == -raised
    assert "97%" in lines["rule_floor"].sentence
    assert sum(line.log_odds for line in told.lines) == pytest.approx(logit(told.probability))
    assert all(one.probability >= 0.97 - 1e-9 for one in told.without)
    held = [one for one in told.without if one.probability <= 0.97 + 1e-9]
    said = [one for one in told.without if one.sentence.endswith("a rule that acts alone holds it")]
    assert held and said == held, "why it stays is said"


def test_a_risk_of_another_model_is_not_explained_by_this_one() -> None:
    model = shipped_model()
    risk = replace(risk_of(model, random_rows(model)[0]), model_version="other")
    with pytest.raises(ValueError, match="other"):
        explain_risk(model, risk)


@pytest.mark.parametrize(
    ("name", "value", "said", "amount"),
    [
        ("temperature_excess_celsius", 12.34, "temperature excess", "12.3 C"),
        ("rows_remapped_24h", 12.0, "rows remapped within 24 h", "12"),
        (
            "thermal_slowdown_excess_seconds_1h",
            4.25,
            "thermal slowdown excess within 1 h",
            "4.25 s",
        ),
        ("clock_deficit_ratio", 0.3, "clock deficit", "30 %"),
        ("probe_to_usual_ratio", 2.5, "probe to usual", "2.5"),
        ("ledger_severe_decayed_30d", float("nan"), "ledger severe decayed within 30 d", "missing"),
        ("row_remap_state", 1e12, "row remap state", "1e+12"),
    ],
)
def test_features_in_words(name: str, value: float, said: str, amount: str) -> None:
    assert (said_of(name), amount_of(name, value)) == (said, amount)
