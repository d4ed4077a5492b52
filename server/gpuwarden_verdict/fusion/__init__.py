"""The learnt score: decode a model, score, explain, join with rules, and say when it may act."""

from gpuwarden_verdict.fusion.artifact import (
    FusionModel,
    FusionModels,
    ModelError,
    decode_model,
    with_calibration,
)
from gpuwarden_verdict.fusion.fuse import fuse_risks, fuse_suspects
from gpuwarden_verdict.fusion.gate import Gate, TrialRun, score_gate

__all__ = [
    "FusionModel",
    "FusionModels",
    "Gate",
    "ModelError",
    "TrialRun",
    "decode_model",
    "fuse_risks",
    "fuse_suspects",
    "score_gate",
    "with_calibration",
]
