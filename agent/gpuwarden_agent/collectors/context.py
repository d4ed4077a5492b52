"""What every collector may need when it is built."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_agent.collectors.contract import PositionStore
from gpuwarden_agent.config import AgentSettings


@dataclass(frozen=True, slots=True)
class CollectorContext:
    """Surroundings of a collector.

    Attributes:
        settings: The agent's settings.
        boot_id: Kernel's boot id; part of natural event ids.
        started_at: Epoch seconds of the agent's start: what is older is backlog.
        positions: Where followers keep how far they have read.
    """

    settings: AgentSettings
    boot_id: str
    started_at: float
    positions: PositionStore
