"""A node's GPUs over restarts and reboots: how many there must be, and what is still to be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gpuwarden_agent.collectors.nvml_gpus import PROBES_THAT_SPEAK, GpuMemory, Trouble
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_frames import GpuAnswer
from gpuwarden_agent.sources.nvml_ledger import KnownGpu, Ledger, LedgerFile

_NOTHING = KnownGpu(uuid="", pci_bus_id="")
_log = get_logger("nvml")


class NodeMemory:
    """Keeps the ledger in step with what the collector sees and tells.

    Args:
        file: Where the ledger is kept.
        boot_id: Present boot.
        told: Number of GPUs that the operator says are built in, None where it is learnt. It
            replaces what was learnt: that is how a removal is told.
    """

    def __init__(self, file: LedgerFile, boot_id: str, told: int | None) -> None:
        self._file = file
        self._boot_id = boot_id
        self._told = told
        self._written = file.read()
        self._former = {gpu.uuid: gpu for gpu in self._written.gpus}
        self._same_boot = self._written.boot_id == boot_id
        self._most = self._written.most if told is None else told
        self._recognised = False
        self._kept: dict[bool, tuple[object, ...]] = {}

    def recognise(self, answers: Iterable[GpuAnswer]) -> None:
        """Forget everything where the first GPUs to answer are all others than those remembered.

        So a node image that was copied with its spool does not expect the GPUs of its origin.
        """
        if self._recognised:
            return
        seen = {answer.uuid for answer in answers if answer.code == codes.SUCCESS}
        if not seen:
            return
        self._recognised = True
        if self._former and not seen & self._former.keys():
            _log.info("gpus_of_another_machine_forgotten", gpus=len(self._former), most=self._most)
            self._former.clear()
            self._kept.clear()
            self._most = self._told or 0

    def expected(self, present: int, elsewhere: int) -> int:
        """GPUs that this node should have now.

        Args:
            present: GPUs seen now, by whichever of driver and bus shows more.
            elsewhere: GPUs that are bound to another driver: there, but not this node's.
        """
        if self._told is None:
            self._most = max(self._most, present + elsewhere)
        return max(0, self._most - elsewhere)

    def of_this_boot(self, clock: float) -> Iterator[GpuMemory]:
        """GPUs that were there earlier in this boot: one that does not answer now is missing."""
        if self._same_boot:
            for known in self._former.values():
                yield _recalled(known, clock, known.missed_probes)

    def recall(self, answer: GpuAnswer, clock: float) -> GpuMemory:
        """What is remembered of a GPU that the driver shows; nothing but the answer where new."""
        known = self._former.get(answer.uuid)
        return GpuMemory(answer) if known is None else _recalled(known, clock, 0)

    @property
    def stuck_call(self) -> str:
        """Driver call that was told to hang and not to be over since; "" where none."""
        return self._written.stuck_call

    def keep(
        self, gpus: Iterable[GpuMemory], version: int, *, told: bool, stuck_call: str = ""
    ) -> None:
        """Write down how things stand, where that changed.

        Args:
            gpus: All GPUs that the collector follows.
            version: Another one wherever they may be other than before.
            told: All that was found has been handed over for good. While it has not, what ended
                stays owed and what goes on counts as told once only, so that an agent killed in
                between tells it after all.
            stuck_call: Driver call that hangs, or did and is not told to be over.
        """
        state = version, stuck_call, self._most
        if self._kept.get(told) == state:
            return  # as all the time
        present = {gpu.last.uuid: _known(gpu) for gpu in gpus}
        if not told:
            former = {gpu.uuid: gpu for gpu in self._written.gpus}
            present = {
                uuid: _owed(gpu, former.get(uuid, _NOTHING)) for uuid, gpu in present.items()
            }
            stuck_call = stuck_call or self._written.stuck_call
        slots = {gpu.pci_bus_id for gpu in present.values()}
        away = {u: g for u, g in self._former.items() if g.pci_bus_id not in slots}
        self._former = {**away, **present}
        ledger = Ledger(
            boot_id=self._boot_id,
            most=self._most,
            gpus=tuple(self._former.values()),
            stuck_call=stuck_call,
        )
        if ledger != self._written:
            self._file.write(ledger)
            self._written = ledger
            self._kept.clear()
        self._kept[told] = state


def _known(gpu: GpuMemory) -> KnownGpu:
    last = gpu.last
    return KnownGpu(
        uuid=last.uuid,
        pci_bus_id=last.pci_bus_id,
        index=last.index,
        serial=last.serial,
        model=last.model,
        vbios_version=last.vbios_version,
        trouble=tuple(sorted(gpu.trouble)),
        missed_probes=min(gpu.missed_probes or int(gpu.told_missing), PROBES_THAT_SPEAK),
    )


def _owed(gpu: KnownGpu, former: KnownGpu) -> KnownGpu:
    return msgspec.structs.replace(
        gpu,
        trouble=tuple(sorted({*gpu.trouble, *former.trouble})),
        missed_probes=former.missed_probes or min(gpu.missed_probes, 1),
    )


def _recalled(known: KnownGpu, clock: float, missed_probes: int) -> GpuMemory:
    answer = GpuAnswer(
        uuid=known.uuid,
        pci_bus_id=known.pci_bus_id,
        index=known.index,
        serial=known.serial,
        model=known.model,
        vbios_version=known.vbios_version,
        code=codes.GPU_NOT_FOUND,
    )
    names = set(Trouble)
    return GpuMemory(
        answer,
        missed_probes=missed_probes,
        missed_since=clock,
        told_missing=known.missed_probes > 0,
        trouble={Trouble(name) for name in known.trouble if name in names},
    )
