"""What a training job writes about itself as text metrics."""

from __future__ import annotations

from gpuwarden_exporters.gathering import ExporterKind, Gatherer
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Unavailable

TEXT = """\
gpuwarden_job_step{rank="0"} 1200
gpuwarden_job_step{rank="1"} 1199
gpuwarden_job_step_seconds{rank="0"} 1.9
gpuwarden_job_step_seconds{rank="1"} 2.5
gpuwarden_job_loss{rank="0"} NaN
gpuwarden_job_loss_not_finite{rank="0"} 1
gpuwarden_job_loss_not_finite{rank="1"} 0
gpuwarden_job_mood 3
"""


def test_the_slowest_rank_speaks_for_its_node() -> None:
    for kind in (ExporterKind.AUTO, ExporterKind.NODE):
        row = Gatherer(kind).take(TEXT, 0.0).rows[EntityKind.NODE][""]
        assert row["node_job_steps_total"] == 1200
        assert row["node_job_step_seconds"] == 2.5
        assert row["node_job_loss"] == Unavailable("not_finite")
        assert row["node_job_loss_not_finite"] == 1
        assert not any("mood" in name for name in row)
