"""What every collector may need when it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwarden_agent.collectors.contract import Conditions, PositionStore
from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.sources.nvml import NvmlProbe, NvmlSettings
from gpuwarden_wire.acknowledgement import NodeVerdict
from gpuwarden_wire.events import GpuIdentity

KnownXids = Callable[[], Mapping[tuple[str, int, str], tuple[int, float]]]
"""XIDs told so far: (gpu_uuid or "pci:ADDRESS", code, source) to count and epoch seconds."""


class Unheard:
    """Conditions that nobody asks for."""

    def trouble(self, source: str, reason: str, mend: str = "", *, renew: bool = False) -> None:
        """Nothing."""

    def fine(self, source: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class CollectorContext:
    """Surroundings of a collector.

    Attributes:
        settings: The agent's settings.
        boot_id: Kernel's boot id; part of natural event ids.
        started_at: Epoch seconds of the agent's start.
        positions: Where followers keep how far they have read.
        nvml_probe: Shared by the NVML collector and follower; None where NVML is off.
        keeps_state: False where nothing may be remembered, as in a single look.
        gpus: The node's GPUs as known now, whichever collector found them.
        conditions: Where a collector tells own trouble of its parts.
        verdict: What the server said last about this node, None before it said anything.
        known_xids: XIDs that the agent has told since it started.
    """

    settings: AgentSettings
    boot_id: str
    started_at: float
    positions: PositionStore
    nvml_probe: NvmlProbe | None
    keeps_state: bool = True
    gpus: Callable[[], Sequence[GpuIdentity]] = tuple
    conditions: Conditions = field(default_factory=Unheard)
    verdict: Callable[[], NodeVerdict | None] = lambda: None
    known_xids: KnownXids = dict

    @property
    def nvml_settings(self) -> NvmlSettings:
        """Settings of everything that reads NVML."""
        return nvml_settings(self.settings, self.boot_id, keeps_state=self.keeps_state)


def nvml_settings(
    settings: AgentSettings, boot_id: str, *, keeps_state: bool = True
) -> NvmlSettings:
    """The NVML part of the agent's settings."""
    return NvmlSettings(
        boot_id=boot_id,
        library_path=Path(settings.nvml_library) if settings.nvml_library else None,
        sys_root=settings.sys_root,
        state_folder=settings.spool_folder,
        keeps_state=keeps_state,
        gpus_expected=settings.gpus_expected,
        interval_s=settings.interval_s,
        fast_interval_s=settings.fast_interval_s,
        gpm_interval_s=settings.gpm_interval_s,
    )
