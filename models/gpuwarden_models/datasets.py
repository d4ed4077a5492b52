"""Rows to learn from: a recording replayed through the windows, with the truth beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame
from gpuwarden_models.recording import Recording
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_models.replay import Replay
from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FEATURE_SETS, FeatureScene, feature_table
from gpuwarden_wire.metrics import EntityKind

RESTART_EVERY_S = 6 * 3600.0
"""The windows start empty this often, as they do when a server is new to a fleet."""

_FEATURES = FEATURE_SETS[EntityKind.GPU]
_SILENCE = _FEATURES.names.index("silence_seconds")


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One row a GPU and moment.

    Attributes:
        matrix: Features, float32, shape (N, F).
        needed: Whether the GPU needs action within the horizon, bool, shape (N,).
        usable: False for rows that teach nothing: a precursor further off than the horizon, and a
            GPU that no longer answers. Of that one most features are missing, and the model would
            learn that a missing reading is a fault, which it is not where a GPU lacks it.
        gpu: Index into `gpus`, shape (N,).
        at: Epoch seconds, shape (N,).
        gpus: All GPUs, with their nodes.
        labels: Labels of GPUs that need action.
        interval_s: Time between two rows of a GPU.
    """

    matrix: NDArray[np.float32]
    needed: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    gpu: NDArray[np.int64]
    at: NDArray[np.float64]
    gpus: tuple[EntityRef, ...]
    labels: tuple[LabelRow, ...]
    interval_s: float

    @property
    def node(self) -> NDArray[np.str_]:
        """Node of each row."""
        names = np.array([ref.node_id for ref in self.gpus], dtype=np.str_)
        rows: NDArray[np.str_] = names[self.gpu]
        return rows


def build_dataset(recording: Recording, horizon_s: float, sample_every_s: float) -> Dataset:
    """Replay a recording and take a row of every GPU each `sample_every_s`.

    Args:
        recording: Opened with GPUs and nodes.
        horizon_s: A row is positive where action is needed at its moment or within this time.
        sample_every_s: Time between rows of a GPU; at least the recording's interval.

    Raises:
        RecordingError: A file of the recording is broken.
    """
    sampler = _Sampler(recording, sample_every_s)
    for frame in recording.frames():
        sampler.take(frame)
    labels = tuple(
        row for row in recording.labels if row.entity_kind == EntityKind.GPU and row.action_needed
    )
    matrix, gpu, at = sampler.rows()
    needed, usable = _truth(sampler.gpus, gpu, at, labels, horizon_s)
    usable &= ~(matrix[:, _SILENCE] > 0)
    return Dataset(matrix, needed, usable, gpu, at, sampler.gpus, labels, sampler.step_s)


class _Sampler:
    """Replays frames; starts the windows anew now and then; takes a row of each GPU."""

    def __init__(self, recording: Recording, sample_every_s: float) -> None:
        self.step_s = max(sample_every_s, recording.interval_s)
        self._replay = Replay()
        self._next_sample = self._next_restart = -np.inf
        self._repairs = sorted(
            (row.end, row.entity)
            for row in recording.labels
            if row.entity_kind == EntityKind.GPU and row.action_needed
        )
        self._index: dict[str, int] = {}
        self._refs: list[EntityRef] = []
        self._parts: list[tuple[NDArray[np.float32], NDArray[np.int64], float]] = []

    @property
    def gpus(self) -> tuple[EntityRef, ...]:
        """GPUs seen so far."""
        return tuple(self._refs)

    def take(self, frame: Frame) -> None:
        """Feed one frame and take rows where they are due."""
        if frame.at >= self._next_restart:
            self._replay = Replay()
            self._next_restart = frame.at + RESTART_EVERY_S
        self._note_repairs(frame.at)
        self._replay.feed(frame)
        if frame.at >= self._next_sample:
            self._next_sample = frame.at + self.step_s * 0.999
            self._sample(frame.at)

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]]:
        """All rows so far: features, GPU, time."""
        matrix = np.concatenate(
            [np.empty((0, len(_FEATURES)), np.float32), *(part[0] for part in self._parts)]
        )
        gpu = np.concatenate([np.empty(0, np.int64), *(part[1] for part in self._parts)])
        at = np.concatenate([np.empty(0), *(np.full(p[1].size, p[2]) for p in self._parts)])
        return matrix, gpu, at

    def _note_repairs(self, at: float) -> None:
        """The end of a label is the repair; a recording has no other word for a passed check."""
        while self._repairs and self._repairs[0][0] <= at:
            _, gpu = self._repairs.pop(0)
            if gpu in self._index:
                self._replay.state.note_repair(self._refs[self._index[gpu]])

    def _sample(self, at: float) -> None:
        scene = FeatureScene(self._replay.state, FleetContext())
        table = feature_table(EntityKind.GPU, scene, at)
        gpu = np.array([self._number(ref) for ref in table.refs], dtype=np.int64)
        self._parts.append((table.matrix, gpu, at))

    def _number(self, ref: EntityRef) -> int:
        number = self._index.get(ref.key)
        if number is None:
            number = self._index[ref.key] = len(self._refs)
            self._refs.append(ref)
        return number


def _truth(
    gpus: Sequence[EntityRef],
    gpu: NDArray[np.int64],
    at: NDArray[np.float64],
    labels: Sequence[LabelRow],
    horizon_s: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    number = {ref.key: index for index, ref in enumerate(gpus)}
    needed = np.zeros(gpu.size, dtype=np.bool_)
    usable = np.ones(gpu.size, dtype=np.bool_)
    for label in labels:
        if label.entity not in number:
            continue
        own = gpu == number[label.entity]
        positive = own & (at >= label.start - horizon_s) & (at < label.end)
        needed |= positive
        usable &= ~(own & (at >= label.precursor_start) & (at < label.start - horizon_s))
    return needed, usable | needed
