"""What a backtest plays: frames of a fleet, and what is known beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from gpuwarden_models.frames import Frame
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.context import NodePlace
from gpuwarden_wire.metrics import EntityKind


class RanJob(Protocol):
    """A job that ran."""

    @property
    def job_id(self) -> str:
        """As its scheduler numbers it."""
        ...

    @property
    def key(self) -> str:
        """As the judge names it, "slurm:ID"."""
        ...

    @property
    def user(self) -> str:
        """Owner."""
        ...

    @property
    def end(self) -> float:
        """Epoch seconds; infinite while it runs."""
        ...

    @property
    def state(self) -> str:
        """How it ended, in Slurm's words."""
        ...

    @property
    def exit_code(self) -> str:
        """As written, "" where it does not say."""
        ...

    @property
    def nodes(self) -> Sequence[str]:
        """Where it ran."""
        ...


class History(Protocol):
    """A recording, or what else gives frames in order of time."""

    @property
    def start(self) -> float:
        """Epoch seconds of the first reading."""
        ...

    @property
    def end(self) -> float:
        """Epoch seconds of the last reading."""
        ...

    @property
    def interval_s(self) -> float:
        """Time between frames."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, sorted."""
        ...

    @property
    def metrics(self) -> Mapping[EntityKind, tuple[str, ...]]:
        """Metrics that any series gives, by kind."""
        ...

    @property
    def jobs(self) -> Sequence[RanJob]:
        """What ran where."""
        ...

    @property
    def labels(self) -> Sequence[LabelRow]:
        """What was wrong, and what was not."""
        ...

    @property
    def places(self) -> Mapping[str, NodePlace]:
        """Where nodes stand."""
        ...

    @property
    def gpus_expected(self) -> Mapping[str, int]:
        """GPUs that nodes should have, by node."""
        ...

    @property
    def kernel_logs(self) -> int:
        """How many nodes' kernel logs there are."""
        ...

    def frames(self) -> Iterator[Frame]:
        """All readings, one frame an interval, with what happened since the frame before."""
        ...
