"""History as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from prometheus_client import CollectorRegistry

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.health import HealthBoard
from gpuwarden_server.history.buffer import OpenMinutes
from gpuwarden_server.history.domain import Level
from gpuwarden_server.history.lookback import HORIZON_S, Lookback
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_server.history.reading import HistoryReader
from gpuwarden_server.history.sealing import Sealer
from gpuwarden_server.history.worker import HistoryWorker, Keeping
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.windows import JoinedTables


class HistorySettings(Protocol):
    """What the operator set; config.Settings has it."""

    @property
    def history_readings(self) -> Literal["incidents", "all"]:
        """Whose readings are kept."""
        ...

    @property
    def history_readings_hours(self) -> float:
        """How long readings are kept."""
        ...

    @property
    def history_minute_days(self) -> float:
        """How long roll-ups by the minute are kept."""
        ...

    @property
    def history_quarter_weeks(self) -> float:
        """How long roll-ups by the quarter of an hour are kept."""
        ...

    @property
    def history_lookback_mib(self) -> int:
        """Memory for readings of the latest hour, MiB."""
        ...


class History:
    """Takes telemetry, keeps it, answers for it.

    Attributes:
        keeping: How long what is kept.
        reader: Answers.
    """

    def __init__(
        self,
        keeping: Keeping,
        lookback_bytes: int,
        history: Database,
        names: FormerNames,
        clock: Clock,
        meters: HistoryMeters,
    ) -> None:
        self._names = names
        self._clock = clock
        self.keeping = keeping
        self._buffer = OpenMinutes(clock.monotonic, meters)
        self._sealer = sealer = Sealer()
        self._lookback = lookback = Lookback(lookback_bytes, clock.monotonic, meters)
        self._watched: Callable[[], frozenset[str]] = frozenset
        self._worker = HistoryWorker(
            history,
            self._buffer,
            sealer,
            lookback,
            keeping,
            self._recorded,
            clock,
            meters,
        )
        self.reader = HistoryReader(history, self._buffer, sealer, lookback, names, meters)

    def watch(self, watched: Callable[[], frozenset[str]]) -> None:
        """Say who knows the nodes whose readings are worth keeping."""
        self._watched = watched

    async def start(self) -> None:
        """Begin to seal; what the checkpoint held is back already."""
        await asyncio.to_thread(self._worker.start)

    async def stop(self) -> None:
        """End; the last checkpoint takes what is open."""
        await asyncio.to_thread(self._worker.stop)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on; what is written has the name of its time."""
        self._buffer.rename(old, new)
        self._sealer.rename(old, new)

    def _recorded(self) -> frozenset[str]:
        """Nodes whose readings are kept, under names of the latest hour too: it is kept as well."""
        watched, since = self._watched(), self._clock.now() - HORIZON_S
        former = (one for node_id in watched for one in self._names.of(node_id))
        return watched | {one.name for one in former if one.until > since}

    def sizes(self) -> Mapping[str, float]:
        """Bytes in memory by part."""
        return {"open_minutes": self._buffer.size, "lookback": self._lookback.size}

    def probe(self) -> str | None:
        """Why history is not written, None where it is."""
        return self._worker.probe()

    def note(self, node_id: str, batch: JoinedTables) -> None:
        """See `ingest.ports.TelemetryKeeper`."""
        self._buffer.note(node_id, batch)

    def snapshot(self, node_ids: Sequence[str]) -> Callable[[], bytes]:
        """See `ingest.ports.TelemetryKeeper`."""
        return self._buffer.snapshot(node_ids)

    def restore(self, body: bytes, present: Callable[[str], str]) -> None:
        """See `ingest.ports.TelemetryKeeper`."""
        self._buffer.restore(body, present)


def make_history(
    settings: HistorySettings,
    history: Database,
    names: FormerNames,
    clock: Clock,
    board: HealthBoard,
    registry: CollectorRegistry,
) -> History:
    """History of the settings, with its probe on the board."""
    keeping = Keeping(
        settings.history_readings == "all",
        {
            Level.RAW: settings.history_readings_hours * 3600.0,
            Level.MINUTE: settings.history_minute_days * 86400.0,
            Level.QUARTER: settings.history_quarter_weeks * 604800.0,
        },
    )
    budget = 0 if keeping.all_readings else settings.history_lookback_mib << 20
    made = History(keeping, budget, history, names, clock, HistoryMeters(registry))
    board.add_probe("history", made.probe)
    return made
