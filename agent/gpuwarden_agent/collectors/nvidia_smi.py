"""GPUs through nvidia-smi, for nodes where the agent cannot load NVML itself.

Slow and poor beside NVML: a process each time, no XIDs, no age of a call that hangs.
"""

from __future__ import annotations

import shlex
import time

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.exporter_gpus import ExporterGpus
from gpuwarden_agent.collectors.exporter_names import NVIDIA_SMI
from gpuwarden_agent.sources.smi_process import SmiFailed, SmiRunner
from gpuwarden_agent.sources.smi_query import SmiGpu, parse_fields, parse_query
from gpuwarden_exporters.identity import gpu_facts, gpu_uuid_of
from gpuwarden_exporters.memory import SeriesMemory
from gpuwarden_exporters.rules import GpuFacts
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading

_RUN_DEADLINE_S = 20.0
_RUNS = 2  # the first call asks for the fields too
_ROOM_S = 1.0


class NvidiaSmiCollector:
    """Asks nvidia-smi for every field that it knows and we use.

    Args:
        runner: Runs it.
        gpus: Keeps the GPUs that it names.
        interval_s: Cadence.
        deadline_s: Seconds after which a call counts as stuck.
    """

    name = NVIDIA_SMI

    def __init__(
        self, runner: SmiRunner, gpus: ExporterGpus, interval_s: float, deadline_s: float
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._runner = runner
        self._gpus = gpus
        self._fields: tuple[str, ...] = ()
        self._memory = SeriesMemory()

    def collect(self, now: float) -> Harvest:
        """Readings of every GPU that it lists; `now` is epoch seconds.

        Raises:
            CollectorError: It cannot be run, hangs, or gives no GPU: own trouble.
        """
        try:
            answer = self._ask()
        except SmiFailed as error:
            self._fields = ()  # after an update it may know others
            raise CollectorError(error.reason, error.mend) from error
        rows: dict[str, dict[str, Reading]] = {}
        facts: dict[str, GpuFacts] = {}
        for one in answer:
            gpu = _facts_of(one)
            if gpu is not None:
                rows[gpu.gpu_uuid] = dict(one.row)
                facts[gpu.gpu_uuid] = gpu
        if not facts:
            raise CollectorError("nvidia_smi_no_gpus", "It lists no GPU that has a UUID.")
        node_row, inventory = self._gpus.take(facts)
        visible: Reading = float(len(facts))
        done = self._memory.complete({EntityKind.GPU: rows}, frozenset(), time.monotonic())
        done[EntityKind.NODE] = {"": {**node_row, "node_gpus_visible": visible}}
        return Harvest(rows=done, inventory=inventory)

    def close(self) -> None:
        """Nothing is held; what hangs is left alone."""

    def _ask(self) -> list[SmiGpu]:
        if not self._fields:
            self._fields = parse_fields(self._runner.run("--help-query-gpu"))
        if "uuid" not in self._fields:
            raise SmiFailed("nvidia_smi_unreadable", "Its help names no field that we know.")
        query = f"--query-gpu={','.join(self._fields)}"
        return parse_query(self._runner.run(query, "--format=csv"))


def _facts_of(gpu: SmiGpu) -> GpuFacts | None:
    facts = gpu.facts
    uuid = gpu_uuid_of(facts["uuid"])
    if not uuid:
        return None
    return gpu_facts(
        uuid,
        pci_bus_id=facts["pci.bus_id"],
        index=facts["index"],
        model=facts["name"],
        serial=facts["serial"],
        driver_version=facts["driver_version"],
        vbios_version=facts["vbios_version"],
    )


def build(context: CollectorContext) -> Collector | None:
    """The collector as the settings want it; None where they name no command."""
    settings = context.settings
    if not settings.nvidia_smi:
        return None
    runner = SmiRunner(shlex.split(settings.nvidia_smi), _RUN_DEADLINE_S)
    return NvidiaSmiCollector(
        runner,
        ExporterGpus.of(context),
        settings.nvidia_smi_interval_s,
        _RUNS * _RUN_DEADLINE_S + _ROOM_S,
    )
