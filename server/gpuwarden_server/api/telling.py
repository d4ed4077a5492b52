"""The forms in which an explained risk is told."""

from __future__ import annotations

import math
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict
from pydantic.config import JsonDict

from gpuwarden_verdict.fusion import Explanation

_EXAMPLE: JsonDict = {
    "probability": 0.9,
    "log_odds": 2.2,
    "lines": [
        {
            "name": "intercept",
            "log_odds": -6.1,
            "sentence": "what the model expects before it sees anything",
        },
        {
            "name": "calibration",
            "log_odds": -0.4,
            "sentence": "calibration's offset; its scale, 1.1, is in every other line",
        },
        {
            "name": "counters",
            "log_odds": 8.7,
            "sentence": "counters: mostly rows remapped within 24 h, 12",
        },
    ],
    "leading": [
        {
            "feature": "rows_remapped_24h",
            "plane": "counters",
            "value": 12.0,
            "log_odds": 6.9,
            "sentence": "rows remapped within 24 h: 12, raises the log-odds by 6.90",
            "said": "growth of gpu_rows_remapped_correctable_total in a day",
        }
    ],
    "without": [
        {
            "feature": "rows_remapped_24h",
            "healthy": 0.0,
            "probability": 0.12,
            "sentence": "with rows remapped within 24 h at the healthy 0: 0.12",
        }
    ],
}


class LineView(BaseModel):
    """One line of the sum: intercept, calibration, a plane, veto or rule_floor."""

    name: str
    log_odds: float
    sentence: str


class LeadingView(BaseModel):
    """A feature that moves the score much; part of its plane's line."""

    feature: str
    plane: str
    value: float | None
    log_odds: float
    sentence: str
    said: str


class WithoutView(BaseModel):
    """The score with one feature as on healthy entities; `healthy` null: with it left out."""

    feature: str
    healthy: float | None
    probability: float
    sentence: str


class ExplanationView(BaseModel):
    """The learnt score explained; `lines` sum to `log_odds`, those of `probability`."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    probability: float
    log_odds: float
    lines: list[LineView]
    leading: list[LeadingView]
    without: list[WithoutView]


def explanation_view(explanation: Explanation) -> ExplanationView:
    """The JSON form of an explanation; what is missing is null."""
    return ExplanationView(
        probability=explanation.probability,
        log_odds=explanation.log_odds,
        lines=[LineView(**asdict(line)) for line in explanation.lines],
        leading=[
            LeadingView(**{**asdict(one), "value": _finite(one.value)})
            for one in explanation.leading
        ],
        without=[
            WithoutView(**{**asdict(one), "healthy": _finite(one.healthy)})
            for one in explanation.without
        ],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
