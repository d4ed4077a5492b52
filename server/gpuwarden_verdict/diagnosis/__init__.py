"""Where a job or the fleet is slow: phases, culprits, evidence in words, scale. Pure."""

from gpuwarden_verdict.diagnosis.diagnose import diagnose
from gpuwarden_verdict.diagnosis.domain import Culprit, CulpritKind, Diagnosis, Evidence
from gpuwarden_verdict.diagnosis.window import JobSpan, Strip, Window

__all__ = [
    "Culprit",
    "CulpritKind",
    "Diagnosis",
    "Evidence",
    "JobSpan",
    "Strip",
    "Window",
    "diagnose",
]
