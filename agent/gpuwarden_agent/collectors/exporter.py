"""Other exporters on the node, read instead of the devices or beside them: one collector each.

An exporter that is down, slow or wrong is own trouble and never says anything about hardware.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import (
    Collector,
    CollectorError,
    Conditions,
    Harvest,
)
from gpuwarden_agent.collectors.exporter_gpus import ExporterGpus
from gpuwarden_agent.collectors.exporter_names import exporter_names
from gpuwarden_agent.collectors.exporter_xids import ExporterXids
from gpuwarden_agent.config import AgentSettings, ConfigError
from gpuwarden_agent.sources.http_scrape import Endpoint, ScrapeFailed, Scraper
from gpuwarden_agent.transport.key import KeySource, KeyUnavailable
from gpuwarden_agent.transport.tls import TlsSource, TlsUnusable
from gpuwarden_exporters.gathering import ExporterKind, Gathered, Gatherer
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Rows

_ROOM_S = 1.0
"""Beyond the deadline of the exchange: for parsing, and for the host's name to be looked up."""


@dataclass(frozen=True, slots=True)
class ExporterParts:
    """What an exporter's collector works with.

    Attributes:
        scraper: Fetches the text.
        gatherer: Reads it.
        xids: Makes events of XIDs.
        gpus: Keeps the GPUs that exporters name.
        conditions: Where lines that cannot be read are told.
    """

    scraper: Scraper
    gatherer: Gatherer
    xids: ExporterXids
    gpus: ExporterGpus
    conditions: Conditions


class ExporterCollector:
    """Reads one exporter.

    Args:
        name: Stable name.
        url: The exporter's address, for messages.
        interval_s: Cadence; the exporter's own collection is what is read, none is forced on it
            more often than this.
        deadline_s: Seconds after which a call counts as stuck.
        parts: What it works with.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        url: str,
        interval_s: float,
        deadline_s: float,
        parts: ExporterParts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._url = url
        self._parts = parts
        self._clock = clock
        self._body: bytes | None = None
        self._gathered = Gathered()

    def collect(self, now: float) -> Harvest:
        """Readings of everything that the exporter tells and we know.

        Raises:
            CollectorError: No usable text came; the reason and the mend say which and why.
        """
        try:
            gathered = self._look()
        except (ScrapeFailed, CollectorError):
            self._parts.xids.note_gap()
            self._body = None
            raise
        self._tell_odd_lines(gathered)
        rows = dict(gathered.rows)
        inventory = None
        if gathered.gpus:
            node_row, inventory = self._parts.gpus.take(gathered.gpus)
            rows[EntityKind.NODE] = _with_node_row(rows.get(EntityKind.NODE, {}), node_row)
        if EntityKind.GPU in rows:
            rows[EntityKind.GPU] = self._parts.gatherer.without_frozen(
                rows[EntityKind.GPU], self._clock()
            )
        events = self._parts.xids.take(gathered, now)
        return Harvest(rows=rows, events=events, inventory=inventory)

    def close(self) -> None:
        """Close the connection."""
        self._parts.scraper.close()

    def _look(self) -> Gathered:
        body = self._parts.scraper.fetch()
        if body == self._body:  # it has not collected since: nothing to read anew
            return self._gathered
        text = body.decode("utf-8", errors="replace")
        gathered = self._parts.gatherer.take(text, self._clock())
        if not gathered.known and not gathered.rows:
            raise CollectorError(
                "no_known_series",
                f"{self._url} gives nothing that gpuwarden knows: is it a dcgm-exporter, "
                "nvidia_gpu_exporter, node_exporter or all-smi?",
            )
        if len(gathered.hosts) > 1:
            raise CollectorError(
                "several_nodes_in_one_answer",
                f"{self._url} tells of {', '.join(sorted(gathered.hosts)[:3])}: "
                "give the address of this node's own exporter.",
            )
        self._body, self._gathered = body, gathered
        return gathered

    def _tell_odd_lines(self, gathered: Gathered) -> None:
        source = f"{self.name}_lines"
        if gathered.broken:
            self._parts.conditions.trouble(
                source,
                "broken_lines",
                f"{gathered.broken} lines of {self._url} are no samples, the first of them "
                f"{gathered.first_broken!r}; the others are used.",
            )
        elif gathered.duplicates:
            self._parts.conditions.trouble(
                source,
                "duplicate_series",
                f"{gathered.duplicates} series of {self._url} come twice, the first of them "
                f"{gathered.first_duplicate!r}; the first of each is used.",
            )
        else:
            self._parts.conditions.fine(source)


def _with_node_row(rows: Rows, added: Mapping[str, Reading]) -> Rows:
    """The node's row with what was added; what the exporter itself tells goes before."""
    return {**rows, "": {**added, **rows.get("", {})}}


class _TroubledScraper(Scraper):
    """A scraper whose trouble is the collector's."""

    def fetch(self) -> bytes:
        """As the base; raises CollectorError."""
        try:
            return super().fetch()
        except ScrapeFailed as error:
            raise CollectorError(error.reason, error.mend) from error
        except KeyUnavailable as error:
            raise CollectorError("no_token", f"{error}.") from error


def build_exporters(context: CollectorContext) -> Sequence[Collector]:
    """One collector for each address in the settings.

    Raises:
        ConfigError: The TLS files cannot be used.
    """
    settings = context.settings
    names = exporter_names([one.url for one in settings.exporters])
    shared_gpus = ExporterGpus.of(context)
    return [
        ExporterCollector(
            name,
            address.url,
            settings.exporter_interval_s,
            settings.exporter_deadline_s + _ROOM_S,
            ExporterParts(
                _TroubledScraper(_endpoint(settings, address.url)),
                Gatherer(ExporterKind(address.kind)),
                ExporterXids(address.url, context),
                shared_gpus,
                context.conditions,
            ),
        )
        for name, address in zip(names, settings.exporters, strict=True)
    ]


def _endpoint(settings: AgentSettings, url: str) -> Endpoint:
    endpoint = Endpoint(url, settings.exporter_deadline_s)
    if settings.exporter_token_file is not None:
        endpoint = replace(endpoint, token=KeySource("", settings.exporter_token_file).current)
    if url.startswith("https:"):
        endpoint = replace(endpoint, tls=_certificates(settings))
    return endpoint


def _certificates(settings: AgentSettings) -> Callable[[], ssl.SSLContext]:
    try:
        source = TlsSource(
            settings.exporter_ca_file,
            settings.exporter_cert_file,
            settings.exporter_cert_key_file,
        )
    except TlsUnusable as error:
        raise ConfigError(str(error)) from error

    def present() -> ssl.SSLContext:
        source.refresh()
        return source.context

    return present
