"""Answers of the child as frames: names are sent once, then numbers only."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from gpuwarden_agent.sources.nvml_frames import (
    Answer,
    AnswerFrame,
    FrameError,
    GpuAnswer,
    GpuFacts,
    GpuFrame,
    Layout,
)
from gpuwarden_wire.number_rows import NumberRow, RowLayout

_LAYOUTS_AT_MOST = 256
"""GPUs of a node share one or two; each reading that comes and goes makes another one."""


class LayoutTable:
    """The child's layouts and where each was sent. Not thread-safe."""

    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], int] = {}
        self._keys: dict[int, tuple[object, ...]] = {}
        self._next = 0
        self._unsent: dict[int, Layout] = {}
        self.evictions = 0
        """Rises when a layout was replaced by another one."""

    def place(self, layout: Layout) -> int:
        """Place of a layout; a new one replaces the one that came first."""
        key = (layout.names, tuple(layout.missing.items()))
        place = self._places.get(key)
        if place is None:
            place, self._next = self._next, (self._next + 1) % _LAYOUTS_AT_MOST
            if (former := self._keys.pop(place, None)) is not None:
                del self._places[former]
                self.evictions += 1
            self._places[key], self._keys[place] = place, key
            self._unsent[place] = layout
        return place

    def take_unsent(self) -> dict[int, Layout]:
        """Layouts that the agent does not know yet."""
        unsent, self._unsent = self._unsent, {}
        return unsent


class AnswerReader:
    """The agent's side: puts answers of one child together again."""

    def __init__(self) -> None:
        self._facts: dict[int, GpuFacts] = {}
        self._layouts: dict[int, tuple[RowLayout, Mapping[str, int]]] = {}

    def read(self, frame: AnswerFrame) -> Answer:
        """The answer in a frame.

        Raises:
            FrameError: It names what was never sent.
        """
        self._facts.update(frame.facts)
        for place, one in frame.layouts.items():
            self._layouts[place] = RowLayout(one.names), one.missing
        try:
            gpus = tuple(map(self._gpu, frame.gpus))
        except (KeyError, ValueError) as error:
            raise FrameError(f"an answer about something unknown: {error!r}") from error
        return Answer(
            number=frame.number,
            driver_version=frame.driver_version,
            count=frame.count,
            unreachable=frame.unreachable,
            gpus=gpus,
        )

    def _gpu(self, frame: GpuFrame) -> GpuAnswer:
        facts, (layout, missing) = self._facts[frame.gpu], self._layouts[frame.layout]
        return GpuAnswer(
            uuid=facts.uuid,
            pci_bus_id=facts.pci_bus_id,
            index=facts.index,
            serial=facts.serial,
            model=facts.model,
            vbios_version=facts.vbios_version,
            code=frame.code,
            values=NumberRow(layout, array("d", frame.numbers)),
            missing=missing,
            probe_s=frame.probe_s,
            pids=frame.pids,
        )
