"""Labels of an incident as an alert: its identity at the user's Alertmanager. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuwarden_server.notifications.planning.cases import labels_of

ALERT_NAME = "GpuwardenIncident"
SERVICE = "gpuwarden"
_WORD = re.compile(r"[^a-zA-Z0-9_]")
FORMER_KEPT = 4


def alert_labels(body: Mapping[str, Any]) -> dict[str, str]:
    """Labels: the same for the same fault each time; an empty value is no label."""
    labels = {_WORD.sub("_", name): value for name, value in labels_of(body).items()}
    if labels.get("entity_kind") == "gpu":
        labels["gpu_uuid"] = labels.get("entity", "")
    own = {"alertname": ALERT_NAME, "service": SERVICE}
    named = {name: value for name, value in labels.items() if not name[:1].isdigit()}
    return {name: value for name, value in (named | own).items() if value}


def with_former(before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The body with the labels that it had, where they changed: that alert must be resolved."""
    former = list(before.get("former", []))
    was = alert_labels(before)
    if was != alert_labels(after):
        former = [one for one in (*former, was) if one != alert_labels(after)]
    return after | {"former": former[-FORMER_KEPT:]}
