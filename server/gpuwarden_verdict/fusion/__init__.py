"""The learnt score: decode a model, score, explain, join with rules, and say when it may act."""

from gpuwarden_verdict.fusion.artifact import (
    FusionModel,
    FusionModels,
    ModelError,
    decode_model,
    with_calibration,
)
from gpuwarden_verdict.fusion.fuse import fuse_risks, fuse_suspects
from gpuwarden_verdict.fusion.gate import Gate, TrialRun, planes_gate, score_gate
from gpuwarden_verdict.fusion.telling import Explanation, explain_risk

__all__ = [
    "Explanation",
    "FusionModel",
    "FusionModels",
    "Gate",
    "ModelError",
    "TrialRun",
    "decode_model",
    "explain_risk",
    "fuse_risks",
    "fuse_suspects",
    "planes_gate",
    "score_gate",
    "with_calibration",
]
