"""What the agent remembers of each GPU: its last readings, and whether it is or was in trouble."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_frames import GpuAnswer
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.number_rows import NumberRow, RowLayout
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable
from gpuwarden_wire.registry import metrics_of

NVML_METRICS = tuple(
    metric.name
    for metric in metrics_of(EntityKind.GPU)
    if metric.source.startswith(("nvml", "FI "))
)
"""What NVML gives of a GPU, as the registry's sources say."""

_VITAL = (
    "gpu_temperature_celsius",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_memory_used_bytes",
    "gpu_ecc_uncorrected_volatile_total",
    "gpu_row_remap_pending",
    "gpu_row_remap_failure",
    "gpu_recovery_action",
    "gpu_pcie_link_width",
    "gpu_nvlinks_active",
)
"""Readings that must not be unavailable where a GPU is to count as sound: of the others some driver
always lacks one."""

_OWN = ("gpu_present", "gpu_probe_seconds", "gpu_readings", "gpu_readings_lost")
"""What we say of a GPU beside what NVML says."""

_MODES = ("gpu_mig_mode", "gpu_mig_devices", "gpu_ecc_mode")
"""What a GPU answers depends on these: after a change fewer readings are no loss."""

_WANTED = ("gpu_row_remap_pending", "gpu_row_remap_failure", "gpu_recovery_action")
_QUIET = (0, NotSupported())
_TELLING = (*_MODES, *_WANTED)
"""Where these are as before, and so is what a GPU answers at all, a probe has no news."""

CLEAN_PROBES_FOR_CHECK = 2
"""Probes in a row that must read clean before a GPU that was in trouble counts as checked."""

PROBES_THAT_SPEAK = 2
"""A missing GPU is reported at its first and second probe: one probe may be a reset under way."""


class Trouble(StrEnum):
    """Trouble whose end can be read from the GPU itself."""

    LOST = "gpu_lost"
    REMAP_PENDING = "row_remap_pending"
    RECOVERY_ACTION = "recovery_action"


class Finding(StrEnum):
    """What a probe says about a GPU, compared with the probes before it."""

    MISSING = "missing"  # lost or gone, at one of the probes that speak
    BACK = "back"  # was told missing, answers again
    HANDED_OVER = "handed_over"  # was told missing, is bound to another driver
    CHECKED = "checked"  # was in trouble, read clean often enough


@dataclass(slots=True)
class GpuMemory:
    """One GPU over time.

    Attributes:
        last: Its latest answer from when it answered.
        row: Readings at the latest probe.
        read_at: Monotonic seconds of the latest probe that was answered.
        missed_probes: Probes in a row at which it was lost or gone.
        missed_since: Monotonic seconds of the first of them.
        missed_reason: NVML's reason at the latest of them.
        told_missing: A loss was told and has not been taken back, be it by an earlier run.
        trouble: Trouble that has not been followed by a passed check.
        cleared: Trouble that the latest passed check ended.
        clean_probes: Clean probes in a row since the trouble ended.
        known: Readings that were numbers under the present driver and modes.
    """

    last: GpuAnswer
    row: Mapping[str, Reading] = field(default_factory=dict)
    read_at: float = 0.0
    missed_probes: int = 0
    missed_since: float = 0.0
    missed_reason: str = ""
    told_missing: bool = False
    trouble: set[Trouble] = field(default_factory=set)
    cleared: tuple[Trouble, ...] = ()
    clean_probes: int = 0
    known: set[str] = field(default_factory=set)
    _answered: tuple[RowLayout, Mapping[str, int]] | None = None
    _layout: RowLayout | None = None
    _reads_vital: bool = False
    _telling_at: tuple[int, ...] = ()
    _told_last: list[float] = field(default_factory=list)

    def has_news(self, answer: GpuAnswer) -> bool:
        """Whether a probe says anything that the one before it did not, plain numbers aside."""
        values, answered, last = answer.values, self._answered, self.last
        return (
            answer.code != codes.SUCCESS
            or answered is None
            or type(values) is not NumberRow
            or answered[0] is not values.layout
            or answered[1] is not answer.missing
            or bool(self.trouble)
            or self.told_missing
            or self.missed_probes > 0
            or answer.pci_bus_id is not last.pci_bus_id  # else its facts were not sent again
            or len(self.known) < len(values.numbers)
            or self._told_last != list(map(values.numbers.__getitem__, self._telling_at))
        )

    def go_on(self, answer: GpuAnswer, clock: float) -> None:
        """Take one probe that has no news."""
        self.last, self.read_at = answer, clock
        self.clean_probes = self.clean_probes + 1 if self.clean_probes else 0
        if self._layout is not None and isinstance(answer.values, NumberRow):
            self._note_row(self._layout, answer.values, answer.probe_s)

    def note(self, answer: GpuAnswer, clock: float) -> list[Finding]:
        """Take one probe.

        Args:
            answer: The probe.
            clock: Monotonic seconds.

        Returns:
            What is worth an event. A code that is neither "lost" nor "gone" (no permission, a
            timeout) says nothing about the GPU: no finding, and readings are unavailable.
        """
        if answer.code in codes.LOST | codes.GONE:
            return self._note_missing(answer.code, clock)
        if answer.code != codes.SUCCESS:
            self.row = self._unavailable(codes.reason_of(answer.code))
            self.clean_probes = 0
            return []
        findings = [Finding.BACK] if self.told_missing else []
        self.last, self.read_at, self.missed_probes = answer, clock, 0
        self.told_missing = False
        self._note_numbers(answer)
        return findings + self._note_trouble()

    def stale_row(self, clock: float, reason: str) -> dict[str, Reading]:
        """Readings while the driver does not answer: numbers are stale, the rest says why."""
        age_s = clock - self.read_at
        row: dict[str, Reading] = {}
        for metric, reading in self.row.items():
            match reading:
                case NotSupported() | Unavailable():
                    row[metric] = reading
                case _:
                    row[metric] = Stale(age_s)
        return row or dict.fromkeys(NVML_METRICS, Unavailable(reason))

    def _note_numbers(self, answer: GpuAnswer) -> None:
        """A payload that shrinks has announced lost GPUs."""
        values = answer.values
        if not isinstance(values, NumberRow):
            values = NumberRow.of(values)
        layout = self._layout_of(values.layout, answer.missing)
        if self._changed_mode(values):
            self.known.clear()
        count = len(values.layout.names)
        if len(self.known) < count or self._layout is not layout:
            self.known.update(values.layout.names)
        self._layout = layout
        places = values.layout.places
        self._telling_at = tuple(places[name] for name in _TELLING if name in places)
        self._told_last = [values.numbers[place] for place in self._telling_at]
        self._note_row(layout, values, answer.probe_s)

    def _note_row(self, layout: RowLayout, values: NumberRow, probe_s: float) -> None:
        count = len(values.numbers)
        own = (1.0, probe_s, float(count), float(len(self.known) - count))
        self.row = NumberRow(layout, values.numbers + array("d", own))

    def _layout_of(self, numbers: RowLayout, missing: Mapping[str, int]) -> RowLayout:
        """Of a whole row; of the same names and reasons it is the same one, for all GPUs."""
        answered = self._answered
        if (
            self._layout is not None
            and answered is not None
            and answered[0] is numbers
            and answered[1] is missing
        ):
            return self._layout
        self._answered = numbers, missing
        reasons = {metric: codes.missing_reading(code) for metric, code in missing.items()}
        self._reads_vital = not any(isinstance(reasons.get(one), Unavailable) for one in _VITAL)
        return numbers.extended(_OWN, reasons)

    def _changed_mode(self, values: NumberRow) -> bool:
        pairs = [(self.row.get(metric), values.get(metric)) for metric in _MODES]
        return any(_is_number(was) and _is_number(now) and was != now for was, now in pairs)

    def _note_missing(self, code: int, clock: float) -> list[Finding]:
        if self.missed_probes == 0:
            self.missed_since = clock
        self.missed_probes += 1
        self.missed_reason = codes.reason_of(code)
        self.trouble.add(Trouble.LOST)
        self.clean_probes = 0
        self.read_at = clock
        self.row = {**self._unavailable(self.missed_reason), "gpu_present": 0.0}
        if self.missed_probes > PROBES_THAT_SPEAK:
            return []
        self.told_missing = True
        return [Finding.MISSING]

    def _unavailable(self, reason: str) -> dict[str, Reading]:
        unsupported = {name for name, value in self.row.items() if isinstance(value, NotSupported)}
        return {
            metric: NotSupported() if metric in unsupported else Unavailable(reason)
            for metric in NVML_METRICS
        }

    def _note_trouble(self) -> list[Finding]:
        if self.row.get("gpu_row_remap_pending") == 1:
            self.trouble.add(Trouble.REMAP_PENDING)
        action = self.row.get("gpu_recovery_action")
        if isinstance(action, float | int) and action > 0:
            self.trouble.add(Trouble.RECOVERY_ACTION)
        clean = self._reads_vital and _reads_clean(self.row)
        self.clean_probes = self.clean_probes + 1 if clean else 0
        if not self.trouble or self.clean_probes < CLEAN_PROBES_FOR_CHECK:
            return []
        self.cleared = tuple(sorted(self.trouble))
        self.trouble.clear()
        return [Finding.CHECKED]


def _reads_clean(row: Mapping[str, Reading]) -> bool:
    """No pending repair, no failed one, nothing that the driver asks for."""
    return all(row.get(metric, 0) in _QUIET for metric in _WANTED)


def _is_number(reading: Reading | None) -> bool:
    return isinstance(reading, float | int)


Meet = Callable[[GpuAnswer, float], GpuMemory]
"""What is known of a GPU at its first answer (monotonic seconds)."""


class GpuRoll:
    """Every GPU that is this node's, by UUID.

    Args:
        meet: Makes the memory of a GPU that answers for the first time.
    """

    def __init__(self, meet: Meet = lambda answer, _: GpuMemory(answer)) -> None:
        self.gpus: dict[str, GpuMemory] = {}
        self._meet = meet
        self.version = 0
        """Rises with each poll that has news of any GPU."""

    @property
    def misses_any(self) -> bool:
        """A GPU is lost or gone."""
        return any(gpu.missed_probes for gpu in self.gpus.values())

    def recall(self, gpus: Iterable[GpuMemory]) -> None:
        """Begin with the GPUs that an earlier run of this boot knew."""
        self.gpus = {gpu.last.uuid: gpu for gpu in gpus}
        self.version += 1

    def note(
        self, answers: Iterable[GpuAnswer], clock: float, elsewhere: Container[str] = ()
    ) -> list[tuple[GpuMemory, Finding]]:
        """Take one poll; a known GPU that the poll does not mention is gone.

        Args:
            answers: GPUs of the poll.
            clock: Monotonic seconds.
            elsewhere: PCI addresses bound to another driver: not answering is no loss there.
        """
        answers = tuple(answers)
        if self._goes_on(answers, clock):
            return []
        self.version += 1
        by_uuid = {
            answer.uuid: answer
            for answer in answers
            if answer.code == codes.SUCCESS or answer.pci_bus_id not in elsewhere
        }
        for uuid, answer in by_uuid.items():
            if uuid not in self.gpus:
                self.gpus[uuid] = self._meet(answer, clock)
        self._forget_replaced(by_uuid)
        found = self._let_go(by_uuid, elsewhere)
        for uuid, gpu in self.gpus.items():
            answer = by_uuid.get(uuid) or GpuAnswer(
                uuid=uuid,
                pci_bus_id=gpu.last.pci_bus_id,
                index=gpu.last.index,
                code=codes.GPU_NOT_FOUND,
            )
            found += [(gpu, finding) for finding in gpu.note(answer, clock)]
        return found

    def _goes_on(self, answers: Sequence[GpuAnswer], clock: float) -> bool:
        """Take a poll that has no news, as nearly all are; False where it has any."""
        if len(answers) != len(self.gpus):
            return False
        pairs = [(self.gpus.get(answer.uuid), answer) for answer in answers]
        for gpu, answer in pairs:
            if gpu is None or gpu.has_news(answer):
                return False
        for gpu, answer in pairs:
            if gpu is not None:
                gpu.go_on(answer, clock)
        return True

    def _let_go(
        self, by_uuid: Container[str], elsewhere: Container[str]
    ) -> list[tuple[GpuMemory, Finding]]:
        gone = [
            gpu
            for uuid, gpu in self.gpus.items()
            if uuid not in by_uuid and gpu.last.pci_bus_id in elsewhere
        ]
        for gpu in gone:
            del self.gpus[gpu.last.uuid]
        return [(gpu, Finding.HANDED_OVER) for gpu in gone if gpu.told_missing]

    def _forget_replaced(self, by_uuid: Mapping[str, GpuAnswer]) -> None:
        """A GPU in whose slot another one answers was taken out, not lost."""
        taken = {a.pci_bus_id: a.uuid for a in by_uuid.values() if a.code == codes.SUCCESS}
        for uuid in list(self.gpus):
            slot = self.gpus[uuid].last.pci_bus_id
            if taken.get(slot, uuid) != uuid:
                del self.gpus[uuid]

    def forget_support(self) -> None:
        """Another driver: what it does not give is no loss."""
        for gpu in self.gpus.values():
            gpu.known.clear()

    def missed_for_s(self, clock: float) -> float:
        """Seconds for which the longest-missing GPU has been missing, 0 where none is."""
        missed = [clock - gpu.missed_since for gpu in self.gpus.values() if gpu.missed_probes]
        return max(missed, default=0.0)
