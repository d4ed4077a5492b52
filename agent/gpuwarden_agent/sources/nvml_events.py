"""The child's second thread: waits for events of the driver.

Each XID is sent as it comes. Events of other types say less than the readings that they are about:
they only make the agent poll at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from ctypes import c_void_p, cast
from threading import Condition
from typing import Any

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError, Gpu
from gpuwarden_agent.sources.nvml_frames import Hurry, Report, Watch, Xid

XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError, nvml.h

MIG_CHANGE_EVENT = 0x100  # nvmlEventMigConfigChange

ANNOUNCING_EVENTS = (
    MIG_CHANGE_EVENT
    | 0x2  # nvmlEventTypeDoubleBitEccError
    | 0x200  # nvmlEventTypeSingleBitEccErrorStorm
    | 0x400  # nvmlEventTypeDramRetirementEvent
    | 0x800  # nvmlEventTypeDramRetirementFailure
    | 0x1000  # nvmlEventTypeNonFatalPoisonError
    | 0x2000  # nvmlEventTypeFatalPoisonError
    | 0x4000  # nvmlEventTypeGpuUnavailableError
    | 0x8000  # nvmlEventTypeGpuRecoveryAction
)
"""Of those that the driver has: what they are about, a poll reads."""

_ANNOUNCE_EVERY_S = 1.0
"""A storm of them is worth no more polls than that."""

WAIT_MS = 10_000
"""Another set of GPUs is watched from the next wait on; a lost GPU ends a wait at once."""

_PAUSE_S = 1.0
_NO_INSTANCE = 0xFFFFFFFF  # "not a MIG instance", nvmlEventData_t


class XidWatch:
    """One event set over the GPUs that answer; set up anew when that set of GPUs changes.

    A GPU that is lost makes the wait return at once, each time, so it is left out of the set.

    Args:
        caller: Makes the calls, with a slot of its own in shared memory.
        send: Hands a report to the agent.
    """

    def __init__(self, caller: Caller, send: Callable[[Report], None]) -> None:
        self._caller = caller
        self._send = send
        self._changed = Condition()
        self._wanted: tuple[Gpu, ...] = ()
        self._version = 0
        self._last_counter = 0
        self._gpus: dict[int, Gpu] = {}
        self._announced_at: dict[str, float] = {}

    def want(self, version: int, gpus: tuple[Gpu, ...]) -> None:
        """Watch these GPUs from now on; called by the poll thread after each change."""
        with self._changed:
            self._version, self._wanted = version, gpus
            self._changed.notify()

    def run(self) -> None:
        """Watch for as long as the process lives."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                version, gpus = self._version, self._wanted
            try:
                self._watch(version, gpus)
            except CallError as error:
                self._send(Watch(0, error.code))
                time.sleep(_PAUSE_S)

    def _watch(self, version: int, gpus: tuple[Gpu, ...]) -> None:
        event_set = self._caller.call("nvmlEventSetCreate")
        try:
            self._register(event_set, gpus)
            while version == self._version:
                self._wait(event_set)
        finally:
            self._caller.gpu_uuid = ""
            self._caller.call("nvmlEventSetFree", event_set)

    def _register(self, event_set: Any, gpus: tuple[Gpu, ...]) -> None:
        self._gpus = {}
        refused = codes.SUCCESS
        for gpu in gpus:
            self._caller.gpu_uuid = gpu.uuid
            try:
                handle = self._caller.call("nvmlDeviceGetHandleByPciBusId", gpu.pci_bus_id)
                self._register_types(handle, event_set)
            except CallError as error:
                refused = refused or error.code
                continue
            self._gpus[_address(handle)] = gpu
        self._caller.gpu_uuid = ""
        self._send(Watch(len(self._gpus), refused))
        if not self._gpus:
            time.sleep(_PAUSE_S)

    def _register_types(self, handle: Any, event_set: Any) -> None:
        """XIDs, and what else announces a fault where the driver has it."""
        call, register = self._caller.call, "nvmlDeviceRegisterEvents"
        try:
            supported: int = call("nvmlDeviceGetSupportedEventTypes", handle)
            call(register, handle, XID_EVENT | supported & ANNOUNCING_EVENTS, event_set)
        except CallError as error:
            if error.code in codes.LOST:
                raise
            call(register, handle, XID_EVENT, event_set)

    def _wait(self, event_set: Any) -> None:
        try:
            event = self._caller.call(
                "nvmlEventSetWait_v2", event_set, WAIT_MS, patience_s=WAIT_MS / 1000
            )
        except CallError as error:
            if error.code == codes.TIMEOUT:
                return
            if error.code in codes.LOST:
                # Until the poll thread has seen it too and asks for a set without this GPU.
                time.sleep(_PAUSE_S)
                return
            raise
        if event.eventType & XID_EVENT:
            self._send(self._xid(event))
        elif event.eventType & ANNOUNCING_EVENTS:
            gpu = self._gpus.get(_address(event.device))
            if gpu is not None and event.eventType & MIG_CHANGE_EVENT:
                gpu.is_recut = True
            self._announce(gpu)

    def _announce(self, gpu: Gpu | None) -> None:
        now = time.monotonic()
        uuid = gpu.uuid if gpu else ""
        if now - self._announced_at.get(uuid, -math.inf) >= _ANNOUNCE_EVERY_S:
            self._announced_at[uuid] = now
            self._send(Hurry((uuid,)))

    def _xid(self, event: Any) -> Xid:
        gpu = self._gpus.get(_address(event.device))
        micros = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        self._last_counter = max(self._last_counter + 1, micros)
        return Xid(
            uuid=gpu.uuid if gpu else "",
            pci_bus_id=gpu.pci_bus_id if gpu else "",
            code=event.eventData,
            counter=self._last_counter,
            observed_at=time.time(),
            gpu_instance=_instance(event.gpuInstanceId),
            compute_instance=_instance(event.computeInstanceId),
        )


def _address(handle: Any) -> int:
    return cast(handle, c_void_p).value or 0


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
