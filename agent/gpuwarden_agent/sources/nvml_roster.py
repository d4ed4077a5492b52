"""The GPUs that the child knows, found by PCI bus id and named by UUID.

An index is never an identity: when a GPU is lost, the indices behind it may shift. Enumeration by
index happens at start, when the driver's count differs from what is known or an index
gave no handle, and once a minute; between these each GPU is looked up by its PCI bus id.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_answers import LayoutTable
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Columns, Gpu, Joined
from gpuwarden_agent.sources.nvml_fast import note_poll
from gpuwarden_agent.sources.nvml_frames import AnswerFrame, GpuFacts, GpuFrame, Layout
from gpuwarden_agent.sources.nvml_gpm import GpmSampler
from gpuwarden_agent.sources.nvml_lanes import read_lanes

ENUMERATE_EVERY_S = 60.0


def pci_address(info: Any) -> str:
    """Canonical address dddd:bb:dd.f of an nvmlPciInfo_t; NVML speaks of function 0 only."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


@dataclass(slots=True)
class Roster:
    """Every GPU that this child has seen, lost and gone ones included.

    Attributes:
        caller: Makes the calls.
        clock: Monotonic seconds.
        fast: GPUs are looked at between polls too.
        gpm_s: Seconds between two GPM samples of a GPU, infinite for none.
        gpus: By UUID.
        unreachable: Codes of the indices without a handle at the last enumeration.
        version: Rises when the set of answering GPUs changes.
    """

    caller: Caller
    clock: Callable[[], float] = monotonic
    fast: bool = False
    gpm_s: float = math.inf
    gpus: dict[str, Gpu] = field(default_factory=dict)
    unreachable: tuple[int, ...] = ()
    version: int = 0
    _enumerated_at: float | None = None
    _answering: frozenset[str] = frozenset()
    _layouts: LayoutTable = field(default_factory=LayoutTable)
    _sent_facts: dict[int, GpuFacts] = field(default_factory=dict)

    def read(self, number: int, driver_version: str) -> AnswerFrame:
        """Read every GPU once.

        Raises:
            CallError: The driver does not even give a count.
        """
        self.caller.gpu_uuid = ""
        count = self.caller.call("nvmlDeviceGetCount")
        self._enumerate_where_due(count)
        gpus = list(self.gpus.values())
        answers = tuple(self._read_gpu(place, gpu) for place, gpu in enumerate(gpus))
        answering = frozenset(gpus[one.gpu].uuid for one in answers if one.code == codes.SUCCESS)
        if answering != self._answering:
            self._answering = answering
            self.version += 1
        return AnswerFrame(
            number=number,
            driver_version=driver_version,
            count=count,
            unreachable=self.unreachable,
            facts=self._new_facts(gpus),
            layouts=self._layouts.take_unsent(),
            gpus=answers,
        )

    def _new_facts(self, gpus: list[Gpu]) -> dict[int, GpuFacts]:
        facts = {
            place: GpuFacts(
                gpu.uuid, gpu.pci_bus_id, gpu.index, gpu.serial, gpu.model, gpu.vbios_version
            )
            for place, gpu in enumerate(gpus)
        }
        new = {place: one for place, one in facts.items() if self._sent_facts.get(place) != one}
        self._sent_facts = facts
        return new

    def answering(self) -> tuple[Gpu, ...]:
        """GPUs that answered at the last poll."""
        return tuple(self.gpus[uuid] for uuid in sorted(self._answering))

    def _enumerate_where_due(self, count: int) -> None:
        now = self.clock()
        if (
            self._enumerated_at is None
            or count != len(self.gpus)
            or self.unreachable
            or now - self._enumerated_at >= ENUMERATE_EVERY_S
        ):
            self._enumerated_at = now
            self._enumerate(count)

    def _enumerate(self, count: int) -> None:
        unreachable: list[int] = []
        for index in range(count):
            self.caller.gpu_uuid = ""
            try:
                self._meet(index)
            except CallError as error:
                unreachable.append(error.code)
        self.unreachable = tuple(unreachable)

    def _meet(self, index: int) -> None:
        handle = self.caller.call("nvmlDeviceGetHandleByIndex", index)
        uuid = self.caller.call("nvmlDeviceGetUUID", handle)
        self.caller.gpu_uuid = uuid
        pci = self.caller.call("nvmlDeviceGetPciInfo", handle)
        address = pci_address(pci)
        known = self.gpus.get(uuid)
        if known is not None and known.pci_bus_id == address:
            known.index = index
            return
        gpu = Gpu(uuid, address, index, handle, GpmSampler(self.gpm_s))
        gpu.forget_support(self.clock())
        gpu.serial = self._text("nvmlDeviceGetSerial", handle)
        gpu.model = self._text("nvmlDeviceGetName", handle)
        gpu.vbios_version = self._text("nvmlDeviceGetVbiosVersion", handle)
        self.gpus[uuid] = gpu

    def _text(self, call: str, handle: Any) -> str:
        try:
            text: str = self.caller.call(call, handle)
        except CallError as error:
            if error.code in codes.LOST:
                raise
            return ""
        return text

    def _read_gpu(self, place: int, gpu: Gpu) -> GpuFrame:
        started = self.clock()
        self.caller.gpu_uuid = gpu.uuid
        try:
            if gpu.uuid not in self._answering:  # new, or back from a reset: counts restarted
                gpu.forget_support(started)
                gpu.gpm.forget()
                gpu.link_counts.clear()
                gpu.link_errors = ()
            elif gpu.is_recut or started >= gpu.forget_at:
                gpu.is_recut = False
                gpu.forget_support(started)
            polled = gpu.plan.read(self.caller, gpu) if gpu.plan is not None else None
            if polled is None:  # a plan asks for the UUID itself
                self._look_up(gpu)
            readings = read_lanes(self.caller, gpu, started, polled)
            if self.fast:
                note_poll(self.caller, gpu, readings[0], started)
            layout, numbers = self._together(gpu, *readings)
        except CallError as error:
            gpu.plan = gpu.fast = None
            layout = self._layouts.place(Layout())
            return GpuFrame(place, error.code, self.clock() - started, layout)
        probe_s = self.clock() - started
        return GpuFrame(place, codes.SUCCESS, probe_s, layout, numbers, gpu.pids)

    def _together(self, gpu: Gpu, polled: Columns, rest: Columns) -> tuple[int, bytes]:
        """Place of the layout, and the numbers."""
        known = gpu.joined
        if known is None or not (
            known.names is polled.names
            and known.missing is polled.missing
            and known.rest is rest
            and known.evictions == self._layouts.evictions
        ):
            layout = Layout((*polled.names, *rest.names), {**polled.missing, **rest.missing})
            place = self._layouts.place(layout)
            evictions = self._layouts.evictions
            known = gpu.joined = Joined(polled.names, polled.missing, rest, place, evictions)
        return known.layout, polled.numbers.tobytes() + rest.numbers.tobytes()

    def _look_up(self, gpu: Gpu) -> None:
        gpu.handle = self.caller.call("nvmlDeviceGetHandleByPciBusId", gpu.pci_bus_id)
        if self.caller.call("nvmlDeviceGetUUID", gpu.handle) != gpu.uuid:
            self._enumerated_at = None  # another board in this slot
            raise CallError("nvmlDeviceGetUUID", codes.GPU_NOT_FOUND)
