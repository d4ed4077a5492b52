"""GPUs through NVML: readings, identities, GPUs lost and back, a driver that is stuck, XIDs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from threading import Event as StopFlag

from gpuwarden_agent.collectors.contract import FIRST_ROUND, CollectorError, Emit, Harvest, Notice
from gpuwarden_agent.collectors.nvml_events import RepeatMerger, gpu_event, xid_event
from gpuwarden_agent.collectors.nvml_gpus import Finding, GpuMemory, GpuRoll
from gpuwarden_agent.collectors.nvml_memory import NodeMemory
from gpuwarden_agent.collectors.nvml_pcie import PcieErrors
from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml import NvmlProbe, NvmlSettings, Poll, ProbeCondition, ProbeState
from gpuwarden_agent.sources.nvml_frames import Answer, GpuAnswer, Xid
from gpuwarden_agent.sources.nvml_ledger import LedgerFile
from gpuwarden_agent.sources.nvml_pci import PciBus
from gpuwarden_agent.sources.pci_rails import PciRails
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable

_RENEW_AT_MOST_EVERY_S = 3600.0
_WAIT_S = 60.0
_PENDING_WAIT_S = 1.0

_LOOK_AT_BUS_EVERY_S = 15.0
"""And at each poll that is not like the one before, or while a GPU is missing."""


def boot_micros() -> int:
    """Microseconds since boot, suspend included: rises over restarts of the agent."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class NvmlCollector:
    """Reads every GPU once a call.

    Args:
        probe: Where readings come from.
        settings: Settings.
        clock: Monotonic seconds, for ages.
        counter: Rising number that makes event ids unique within a boot.
    """

    def __init__(
        self,
        probe: NvmlProbe,
        settings: NvmlSettings,
        clock: Callable[[], float] = time.monotonic,
        counter: Callable[[], int] = boot_micros,
    ) -> None:
        self._probe = probe
        self._settings = settings
        self._clock = clock
        self._counter = counter
        ledger = LedgerFile(settings.state_folder, writable=settings.keeps_state)
        self._memory = NodeMemory(ledger, settings.boot_id, settings.gpus_expected)
        self._roll = GpuRoll(self._memory.recall)
        self._pci = PciBus(settings.sys_root)
        self._rails = PciRails(settings.sys_root)
        self._on_pci: Reading = Unavailable(FIRST_ROUND)
        self._on_pci_until = -math.inf
        self._answered_like: tuple[object, ...] | None = None
        self._pcie_errors = PcieErrors(self._pci, clock)
        self._first_answer = True
        self._visible: int | None = None
        self._visible_at = 0.0
        self._answered_at: float | None = None
        self._driver_version = ""
        self._bus_looks = 0
        self._inventory_state: tuple[object, ...] | None = None
        self._inventory_facts: tuple[object, ...] | None = None
        self._stuck: ProbeCondition | None = None
        self._stuck_call = self._memory.stuck_call
        self._renew_at_s = settings.renew_after_s

    @property
    def name(self) -> str:
        """Stable name."""
        return "nvml"

    @property
    def interval_s(self) -> float:
        """Cadence in seconds."""
        return self._settings.interval_s

    @property
    def deadline_s(self) -> float:
        """A poll returns within its own deadline; the rest is room for sysfs and start-up."""
        return self._settings.call_deadline_s + 5.0

    def collect(self, now: float) -> Harvest:
        """Read all GPUs; `now` is epoch seconds.

        Raises:
            CollectorError: There is no NVML (reason "nvml_…"), or our own child is stopped or ended
                ("nvml_child_stopped", "nvml_child_silent", "nvml_child_exited"): own trouble, says
                nothing about a GPU. A node without any GPU on its bus is no trouble.
        """
        self._keep(told=True)
        began = self._clock()
        poll = self._probe.poll()
        poll_s = self._clock() - began
        on_pci = self._count_on_pci(poll.answer)
        self._raise_own_trouble(poll, on_pci)
        events = self._driver_events(poll, now)
        if poll.answer is not None:
            events += self._take(poll.answer, now)
        expected = self._expected(on_pci)
        node_row: dict[str, Reading] = {
            "node_gpus_visible": self._visible_reading(poll),
            "node_gpus_on_pci": on_pci,
            "node_gpus_expected": Unavailable("none_seen_yet") if expected is None else expected,
            "node_nvml_call_age_seconds": poll.condition.call_age_s,
            "node_nvml_poll_seconds": poll_s,
            "node_nvml_poll_gap_seconds": self._gap(poll, began),
        }
        self._keep(told=False)
        return Harvest(
            rows={EntityKind.GPU: self._gpu_rows(poll), EntityKind.NODE: {"": node_row}},
            events=tuple(events),
            inventory=self._changed_inventory(expected) if poll.answer is not None else None,
            notices={
                f"GPU {pci}": _elsewhere(driver) for pci, driver in self._pci.elsewhere.items()
            },
        )

    def _count_on_pci(self, answer: Answer | None) -> Reading:
        """GPUs on the bus: counted anew now and then, and at once where the driver has news."""
        clock = self._clock()
        like: tuple[object, ...] | None = None
        if answer is not None and not self._roll.misses_any:
            like = answer.count, answer.unreachable, [gpu.code for gpu in answer.gpus]
        if like is None or like != self._answered_like or clock >= self._on_pci_until:
            self._on_pci = self._pci.count_gpus()
            self._bus_looks += 1
            self._on_pci_until = clock + _LOOK_AT_BUS_EVERY_S
            self._answered_like = like
        return self._on_pci

    def _gap(self, poll: Poll, began: float) -> Reading:
        before = self._answered_at
        if poll.answer is not None:
            self._answered_at = began
        return Unavailable(FIRST_ROUND) if before is None else began - before

    def close(self) -> None:
        """Write down what was told and ask the child to end."""
        self._keep(told=True)
        self._probe.close()
        self._pci.close()

    def held(self) -> str:
        """The child that has not ended yet, in words; "" where there is none."""
        return self._probe.held()

    def _keep(self, *, told: bool) -> None:
        self._memory.keep(
            self._roll.gpus.values(), self._roll.version, told=told, stuck_call=self._stuck_call
        )

    def _raise_own_trouble(self, poll: Poll, on_pci: Reading) -> None:
        condition = poll.condition
        match condition.state:
            case ProbeState.UNAVAILABLE:
                if on_pci != 0 or self._memory.expected(0, self._pci.handed_over):
                    raise CollectorError(condition.reason, condition.mend)
            case ProbeState.STOPPED | ProbeState.EXITED:
                if poll.answer is None:
                    raise CollectorError(condition.reason, condition.mend)
            case ProbeState.CLOSED:
                raise CollectorError("nvml_child_closed")
            case _:
                return

    def _take(self, answer: Answer, now: float) -> list[Event]:
        clock = self._clock()
        # A GPU that this process may not open (cgroup) is there; any other without a handle is not.
        closed = sum([code != codes.NO_PERMISSION for code in answer.unreachable])
        lost = sum([gpu.code in codes.LOST for gpu in answer.gpus])
        self._visible, self._visible_at = max(0, answer.count - max(closed, lost)), clock
        if answer.driver_version != self._driver_version:
            self._driver_version = answer.driver_version
            self._roll.forget_support()
        self._memory.recognise(answer.gpus)
        if self._first_answer:
            self._first_answer = False
            self._roll.recall(self._memory.of_this_boot(clock))
        found = self._roll.note(answer.gpus, clock, self._pci.elsewhere)
        self._renew_where_due(clock)
        return [self._gpu_event(gpu, finding, now) for gpu, finding in found]

    def _gpu_rows(self, poll: Poll) -> dict[str, Mapping[str, Reading]]:
        gpus = self._roll.gpus.items()
        rows: dict[str, Mapping[str, Reading]]
        if poll.answer is not None:
            rows = {uuid: gpu.row for uuid, gpu in gpus}
        else:
            clock, reason = self._clock(), _silence(poll.condition.state)
            rows = {uuid: gpu.stale_row(clock, reason) for uuid, gpu in gpus}
        return self._pcie_errors.add_to(rows, {uuid: gpu.last.pci_bus_id for uuid, gpu in gpus})

    def _visible_reading(self, poll: Poll) -> Reading:
        if self._visible is None:
            bare = poll.condition.state is ProbeState.UNAVAILABLE
            return NotSupported() if bare else Unavailable(_silence(poll.condition.state))
        if poll.answer is None:
            return Stale(self._clock() - self._visible_at)
        return float(self._visible)

    def _gpu_event(self, gpu: GpuMemory, finding: Finding, now: float) -> Event:
        return gpu_event(gpu, finding, now, self._settings.boot_id, self._counter())

    def _renew_where_due(self, clock: float) -> None:
        missed_s = self._roll.missed_for_s(clock)
        if missed_s == 0.0:
            self._renew_at_s = self._settings.renew_after_s
        elif missed_s >= self._renew_at_s:
            pause_s = min(max(self._renew_at_s, 1.0), _RENEW_AT_MOST_EVERY_S)
            self._renew_at_s = missed_s + pause_s
            self._probe.renew()

    def _driver_events(self, poll: Poll, now: float) -> list[Event]:
        if poll.condition.state is ProbeState.STUCK:
            if self._stuck is not None:
                return []
            self._stuck, self._stuck_call = poll.condition, poll.condition.call
            return [self._driver_event(EventKind.DRIVER_STUCK, poll.condition, now)]
        if not self._stuck_call or poll.answer is None:
            return []
        # An earlier run of the agent may have told it: then only the call is known.
        stuck = self._stuck or ProbeCondition(ProbeState.STUCK, call=self._stuck_call)
        self._stuck, self._stuck_call = None, ""
        return [self._driver_event(EventKind.DRIVER_RESPONDS, stuck, now)]

    def _driver_event(self, kind: EventKind, condition: ProbeCondition, now: float) -> Event:
        gpu = self._roll.gpus.get(condition.gpu_uuid)
        about = f" about {condition.gpu_uuid}" if condition.gpu_uuid else ""
        stuck = kind is EventKind.DRIVER_STUCK
        verb = f"in flight for {condition.call_age_s:.0f} s" if stuck else "over, driver answers"
        return Event(
            id=f"{kind}:{self._settings.boot_id}:{self._counter()}",
            kind=kind,
            observed_at=now,
            severity="error" if stuck else "info",
            text=f"NVML call {condition.call}{about}: {verb}",
            attributes={
                "call": condition.call,
                "gpu_uuid": condition.gpu_uuid,
                "pci_bus_id": gpu.last.pci_bus_id if gpu is not None else "",
                "age_s": round(condition.call_age_s, 1),
            },
        )

    def _expected(self, on_pci: Reading) -> int | None:
        counts = [int(n) for n in (self._visible, on_pci) if isinstance(n, float | int)]
        expected = self._memory.expected(max(counts, default=0), self._pci.handed_over)
        return expected if expected or counts else None

    def _changed_inventory(self, expected: int | None) -> Inventory | None:
        """All GPUs of this boot: a lost one stays the node's until another sits in its slot.

        Looked for where a GPU has news, and as often as at the bus.
        """
        state = self._roll.version, self._bus_looks, expected, self._driver_version
        if state == self._inventory_state:
            return None
        self._inventory_state = state
        answers = sorted((gpu.last for gpu in self._roll.gpus.values()), key=_slot)
        away = self._pci.away
        rails = self._rails.nearest(gpu.pci_bus_id for gpu in answers)
        facts = (expected, away, self._driver_version, tuple(map(_facts, answers)), rails)
        if facts == self._inventory_facts:
            return None
        self._inventory_facts = facts
        return Inventory(
            gpus=tuple(self._identity(gpu, rails[gpu.pci_bus_id]) for gpu in answers),
            gpus_expected=expected,
            gpus_expected_set=self._settings.gpus_expected is not None,
            gpus_elsewhere=away,
        )

    def _identity(self, gpu: GpuAnswer, nics: tuple[str, ...]) -> GpuIdentity:
        return GpuIdentity(
            gpu_uuid=gpu.uuid,
            pci_bus_id=gpu.pci_bus_id,
            serial=gpu.serial,
            index=gpu.index,
            model=gpu.model,
            driver_version=self._driver_version,
            vbios_version=gpu.vbios_version,
            nics=nics,
        )


def _elsewhere(driver: str) -> Notice:
    return Notice(
        f"bound to {driver}",
        "It is not lost, and not this node's either: no reading, no verdict. "
        "Bind it to nvidia to have it back.",
    )


def _slot(gpu: GpuAnswer) -> str:
    return gpu.pci_bus_id


def _facts(gpu: GpuAnswer) -> tuple[object, ...]:
    return (gpu.uuid, gpu.pci_bus_id, gpu.index, gpu.serial, gpu.model, gpu.vbios_version)


def _silence(state: ProbeState) -> str:
    return "driver_stuck" if state is ProbeState.STUCK else "nvml_call_slow"


class NvmlXidFollower:
    """Hands XID events over as NVML delivers them.

    The child is started by the collector's polls; here we only wait.

    Args:
        probe: Where events come from.
        settings: Settings.
        clock: Monotonic seconds, for merging repeats.
    """

    def __init__(
        self,
        probe: NvmlProbe,
        settings: NvmlSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._settings = settings
        self._clock = clock

    @property
    def name(self) -> str:
        """Stable name."""
        return "nvml_xid"

    def wake(self) -> None:
        """End the wait for an XID."""
        self._probe.wake()

    def follow(self, emit: Emit, stop: StopFlag) -> None:
        """Run until `stop` is set.

        Raises:
            CollectorError: NVML refuses to deliver events; a GPU that has none is no trouble.
        """
        merger = RepeatMerger()
        try:
            while not stop.is_set():
                xid = self._probe.next_xid(_PENDING_WAIT_S if merger.waits else _WAIT_S)
                now = self._clock()
                self._emit(emit, merger.due(now) if xid is None else merger.take(xid, now))
                self._raise_where_refused()
        finally:
            self._emit(emit, merger.rest())

    def _emit(self, emit: Emit, xids: list[tuple[Xid, int]]) -> None:
        if xids:
            emit([xid_event(xid, count, self._settings.boot_id) for xid, count in xids])

    def _raise_where_refused(self) -> None:
        watch = self._probe.watch()
        if watch is None or watch.code == codes.SUCCESS or watch.code in codes.ABSENT:
            return
        if watch.code not in codes.LOST | codes.GONE:
            reason = codes.reason_of(watch.code)
            raise CollectorError(f"nvml_events_{reason}", codes.mend_of(watch.code))
