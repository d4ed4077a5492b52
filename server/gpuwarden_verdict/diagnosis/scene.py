"""One job in its window, as all planes look at it; what a plane gives back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.domain import Acquittal, Culprit
from gpuwarden_verdict.diagnosis.phases import JobPhases, Phase, job_phases
from gpuwarden_verdict.diagnosis.robust import Run, longest_run
from gpuwarden_verdict.diagnosis.window import Flags, Ints, JobSpan, Window
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A job and its window.

    Attributes:
        window: All readings.
        job: Whose.
        phases: What it did.
        slow: Steps over which it was slower than its own best, None where it was not.
    """

    window: Window
    job: JobSpan
    phases: JobPhases
    slow: Run | None

    @property
    def first(self) -> int:
        """First step that is asked about."""
        return self.window.first

    @property
    def at_work(self) -> Flags:
        """Steps in which it computes, shape (steps,)."""
        return self.phases.at(Phase.COMPUTE)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of its nodes."""
        return tuple(self.window.nodes[row] for row in self.job.nodes.tolist())

    def rows(self, kind: EntityKind) -> Ints:
        """Rows of a kind's entities that the job has."""
        return self.window.rows_of(kind, self.job)

    def run(self, holds: Flags, read: Flags) -> Run | None:
        """Where something holds within what is asked about, from its true begin on.

        Args:
            holds: Shape (steps,).
            read: The same.
        """
        asked = read & (np.arange(read.size) >= self.first)
        found = longest_run(holds, asked)
        if found is None or found.first > self.first + 1:
            return found
        upto = read & (np.arange(read.size) <= found.last)
        whole = longest_run(holds, upto)
        return whole if whole is not None and whole.last == found.last else found


@dataclass(frozen=True, slots=True)
class Finding:
    """What one plane has to say.

    Attributes:
        culprits: Candidates.
        acquittal: What speaks for the rest of the plane.
    """

    culprits: tuple[Culprit, ...]
    acquittal: Acquittal


def make_scene(window: Window, job: JobSpan) -> Scene:
    """Look at a job."""
    phases = job_phases(window, job)
    return Scene(window, job, phases, phases.slow_run(window.first))
