"""Plays a recording through the judge and takes rows of features, as serving would see them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.player import Player
from gpuwarden_models.backtest.running import acting
from gpuwarden_models.feature_cache import KindRows
from gpuwarden_models.frames import Frame, NodeEvent
from gpuwarden_models.recording import Recording
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FEATURE_SETS, feature_table
from gpuwarden_verdict.policy.evaluate import decision_target
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

KINDS_READ = (
    EntityKind.GPU,
    EntityKind.NODE,
    EntityKind.NIC,
    EntityKind.DISK,
    EntityKind.MOUNT,
)

RESTARTS_AFTER_S = (6 * 3600.0, 24 * 3600.0, 48 * 3600.0)
"""The windows start empty after these times in turn, as when a server is new to a fleet."""

YOUNG_S, YOUNG_STEP_S = 3600.0, 120.0
"""Rows of young windows are taken more often: few hours of a recording are young."""

SILENT_INTERVALS = 2.5
"""An entity whose latest reading is this many intervals old no longer answers."""

_SILENCE = "silence_seconds"
_AUTHOR = "recording"


@dataclass(slots=True)
class _Taken:
    """Rows of one kind so far."""

    index: dict[str, int] = field(default_factory=dict)
    refs: list[EntityRef] = field(default_factory=list)
    matrices: list[NDArray[np.float32]] = field(default_factory=list)
    entities: list[NDArray[np.int64]] = field(default_factory=list)
    times: list[NDArray[np.float64]] = field(default_factory=list)
    silent: list[NDArray[np.bool_]] = field(default_factory=list)


class Extractor:
    """Takes rows of all kinds from one recording."""

    def __init__(self, recording: Recording, step_s: float) -> None:
        """Prepare; `step_s` is the time between two rows of an entity, in seconds."""
        self.step_s = max(step_s, recording.interval_s)
        self._recording = recording
        self._taken = {kind: _Taken() for kind in FEATURE_SETS}
        self._introductions: dict[tuple[str, EventKind], NodeEvent] = {}
        self._repairs = deque(sorted(_repairs(recording), key=lambda row: row.end))
        self._spans = cycle(RESTARTS_AFTER_S)
        self._engine = FleetEngine(acting(parse_policy(""), keep_caps=False))
        # What rows need of a sweep changes slowly, and sweeps are most of the work.
        self._player = Player(self._engine, recording, self.step_s)
        self._began = self._restarts_at = self._next_row = -np.inf

    def play(self) -> dict[EntityKind, KindRows]:
        """All of the recording.

        Raises:
            RecordingError: A file of it broke off in the middle.
        """
        for frame in self._recording.frames():
            if frame.at >= self._restarts_at:
                self._restart(frame)
            self._repair_until(frame.at)
            self._player.play(frame)
            self._introduce_from(frame)
            if frame.at >= self._next_row:
                self._take(frame.at)
        return {kind: _rows_of(kind, taken) for kind, taken in self._taken.items()}

    def _restart(self, frame: Frame) -> None:
        """Empty windows and no incidents; what a server remembers over restarts stays."""
        if np.isfinite(self._began):
            memory, ledger = self._engine.memory, self._engine.ledger
            policy = acting(parse_policy(""), keep_caps=False)
            self._engine = FleetEngine(policy, memory=memory, ledger=ledger)
            self._player = Player(self._engine, self._recording, self.step_s)
            told = tuple(self._introductions.values())
            self._player.play(replace(frame, tables=(), events=told))
        self._began = frame.at
        self._restarts_at = frame.at + next(self._spans)

    def _introduce_from(self, frame: Frame) -> None:
        for one in frame.events:
            if one.event.kind in (EventKind.INVENTORY, EventKind.NODE_BOOT):
                self._introductions[one.node_id, one.event.kind] = one

    def _repair_until(self, at: float) -> None:
        """The end of a label is the repair; a recording has no other word for a passed check."""
        while self._repairs and self._repairs[0].end <= at:
            row = self._repairs.popleft()
            ref = self._named(row)
            if ref is not None:
                self._engine.begin_repair(decision_target(ref), _AUTHOR, "repaired", row.end)
                self._engine.tell(ref.node_id, _check_of(ref, row.end), row.end)

    def _named(self, row: LabelRow) -> EntityRef | None:
        taken = self._taken[EntityKind(row.entity_kind)]
        found = [p for key, p in taken.index.items() if _is_named(key, row.entity)]
        return taken.refs[found[0]] if found else None

    def _take(self, at: float) -> None:
        young = at - self._began < YOUNG_S
        step = min(self.step_s, YOUNG_STEP_S) if young else self.step_s
        self._next_row = at + 0.999 * step
        scene = self._engine.feature_scene()
        for kind, taken in self._taken.items():
            table = feature_table(kind, scene, at)
            seen_at = scene.state.view(kind).last_seen_at()
            quiet = at - seen_at[~np.isnan(seen_at)]
            silent = quiet > SILENT_INTERVALS * self._recording.interval_s
            names = FEATURE_SETS[kind].names
            if _SILENCE in names:
                silent |= table.matrix[:, names.index(_SILENCE)] > 0
            taken.matrices.append(table.matrix)
            taken.entities.append(np.array([_number(taken, ref) for ref in table.refs], np.int64))
            taken.times.append(np.full(len(table.refs), at))
            taken.silent.append(silent)


def _is_named(key: str, entity: str) -> bool:
    """Whether a label speaks of the entity of this key: its name, or a port's device."""
    return key == entity or key.startswith(f"{entity}/")


def _repairs(recording: Recording) -> list[LabelRow]:
    kinds = {kind.value for kind in FEATURE_SETS}
    ended = (row for row in recording.labels if row.action_needed and row.end < recording.end)
    return [row for row in ended if row.entity_kind in kinds]


def _check_of(ref: EntityRef, at: float) -> Event:
    return Event(
        id=f"check_passed:{ref.key}:{at:.3f}",
        kind=EventKind.CHECK_PASSED,
        observed_at=at,
        entity_kind=ref.kind,
        entity=_wire_name(ref),
        text="the label ends",
    )


def _wire_name(ref: EntityRef) -> str:
    """What an agent calls it: a NIC without its node, the node itself not at all."""
    match ref.kind:
        case EntityKind.GPU:
            return ref.key
        case EntityKind.NODE:
            return ""
        case _:
            return ref.key.removeprefix(f"{ref.node_id}/")


def _number(taken: _Taken, ref: EntityRef) -> int:
    number = taken.index.get(ref.key)
    if number is None:
        number = taken.index[ref.key] = len(taken.refs)
        taken.refs.append(ref)
    return number


def _rows_of(kind: EntityKind, taken: _Taken) -> KindRows:
    width = len(FEATURE_SETS[kind])
    matrix = np.concatenate([np.empty((0, width), np.float32), *taken.matrices])
    entity = np.concatenate([np.empty(0, np.int64), *taken.entities])
    at = np.concatenate([np.empty(0), *taken.times])
    silent = np.concatenate([np.empty(0, np.bool_), *taken.silent])
    order = np.lexsort((at, entity))
    refs = tuple(taken.refs)
    return KindRows(kind, refs, matrix[order], entity[order], at[order], silent[order])
