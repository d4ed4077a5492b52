"""What a decision was made from, so that it can be replayed and explained later."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_verdict.signals import Risk


def risk_form(risk: Risk) -> dict[str, Any]:
    """The JSON form of a risk; a missing feature value is null."""
    return {
        "probability": risk.probability,
        "fault_class": risk.fault_class.value,
        "model_version": risk.model_version,
        "schema_hash": risk.schema_hash,
        "scored_at": risk.scored_at,
        "contributions": [
            {
                "name": one.name,
                "plane": one.plane.value if one.plane is not None else None,
                "value": one.value if math.isfinite(one.value) else None,
                "log_odds": one.log_odds,
            }
            for one in risk.contributions
        ],
    }


def snapshot_of(decision: Decision, incidents: Sequence[Incident], risk: Risk | None) -> str:
    """JSON of the evidence, the features and the versions behind a decision."""
    form = {
        "policy_version": decision.policy_version,
        "model_version": decision.model_version,
        "incidents": [
            {
                "id": incident.id,
                "entity": incident.entity.key,
                "fault_class": incident.fault_class.value,
                "severity": incident.severity.value,
                "confidence": incident.confidence,
                "evidence": [
                    {
                        "detector": item.detector,
                        "sentence": item.sentence,
                        "score": item.score,
                        "count": item.count,
                        "event_ids": item.event_ids,
                    }
                    for item in incident.evidence
                ],
            }
            for incident in incidents
        ],
        "risk": None if risk is None else risk_form(risk),
    }
    return msgspec.json.encode(form).decode()
