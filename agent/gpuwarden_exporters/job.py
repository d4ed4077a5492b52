"""What a training job writes about itself as text metrics: `gpuwarden_job_…`.

Into a file that node_exporter's textfile collector reads, or on a page of its own. A label `rank`
tells processes of one node apart; the slowest, and the furthest, speaks for the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpuwarden_exporters.rules import NOTHING, Meaning, Rule, Target, worst
from gpuwarden_wire.metrics import EntityKind

JOB = "gpuwarden_job_"
JOB_SERIES: Mapping[str, Rule] = MappingProxyType(
    {
        "step": Rule("node_job_steps_total", split_by=("rank",), combine=worst),
        "step_seconds": Rule("node_job_step_seconds", split_by=("rank",), combine=worst),
        "loss": Rule("node_job_loss", split_by=("rank",), combine=worst),
        "loss_not_finite": Rule("node_job_loss_not_finite", split_by=("rank",), combine=worst),
    }
)
"""By the name after the prefix."""


def job_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a series of a job means to us."""
    rule = JOB_SERIES.get(name.removeprefix(JOB))
    if rule is None:
        return NOTHING
    part = "/".join(labels.get(label, "") for label in rule.split_by)
    return Meaning(targets=(Target(EntityKind.NODE, "", rule, part),))
