"""When and how a node was last heard of."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_verdict.engine.spools import SILENT_INTERVALS

MOST_PATIENCE_S = 900.0
"""Whatever cadence somebody claims, after so long without a batch a node is silent."""


@dataclass(frozen=True, slots=True)
class Presence:
    """When and how a node was last heard of.

    Attributes:
        node_id: The node.
        last_seen_at: Server's epoch seconds of its last accepted batch.
        silent_s: Seconds since, by the clock that never jumps.
        interval_s: Telemetry cadence, 0 unknown.
        boot_id: Boot of its last batch of the live spool.
        more_events: Further batches of events wait behind the last one: hold its decisions.
        live_spool: The spool that speaks for it, "" none yet.
        refused_spool: A second spool that was refused while this one is live, "" none.
    """

    node_id: str
    last_seen_at: float
    silent_s: float
    interval_s: float
    boot_id: str
    more_events: bool
    live_spool: str
    refused_spool: str

    def is_silent(self, after_s: float, quiet_s: float | None = None) -> bool:
        """Whether nothing came for so long, or for three intervals of a slower cadence.

        Args:
            after_s: Least patience.
            quiet_s: Seconds to judge by, None for `silent_s`.
        """
        slow_s = min(SILENT_INTERVALS * self.interval_s, MOST_PATIENCE_S)
        return (self.silent_s if quiet_s is None else quiet_s) >= max(after_s, slow_s)
