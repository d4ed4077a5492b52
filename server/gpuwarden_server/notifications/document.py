"""The notification file as values: endpoints, their routes, how they group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from gpuwarden_verdict.entities import SEVERITY_RANK, Severity


class SilenceUse(StrEnum):
    """What the silences of an Alertmanager are taken for."""

    IGNORE = "ignore"
    SILENCE = "silence"  # nobody is told of what they match
    MAINTENANCE = "maintenance"  # those that name nodes hold the judge too


class EndpointKind(StrEnum):
    """What speaks at the other end."""

    WEBHOOK = "webhook"  # Standard Webhooks: every fact
    ALERTMANAGER = "alertmanager"  # an alert an incident, posted again before it expires
    PAGERDUTY = "pagerduty"  # Events v2: one page a cause
    SLACK = "slack"  # one message that follows its cause
    TEAMS = "teams"  # a card in a channel, through a workflow: when a cause begins, worsens, ends
    APPRISE = "apprise"  # whatever apprise reaches: told when a cause begins, worsens and ends
    HEARTBEAT = "heartbeat"  # a URL that is called while the fleet is scored


UNEDITED_KINDS = frozenset({EndpointKind.TEAMS, EndpointKind.APPRISE})
"""Nothing can be edited over there: each message is one more."""

KINDS_OF_CASES = UNEDITED_KINDS | {EndpointKind.PAGERDUTY, EndpointKind.SLACK}
"""Where people read: what has one cause is one case there."""

LEVEL_KINDS = frozenset({EndpointKind.ALERTMANAGER, EndpointKind.HEARTBEAT})
"""Never disabled: what they are told next makes good for what they missed."""


@dataclass(frozen=True, slots=True)
class Route:
    """Which facts an endpoint is told; every condition must hold.

    Attributes:
        severity: Least severity of an incident. Decisions pass whatever the severity.
        pools: Shell-style patterns of pool names; empty: all.
        labels: Pattern by label: node, entity_kind, fault_class, rack, leaf and the node's own.
    """

    severity: Severity = Severity.WARNING
    pools: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a fact with these labels goes here."""
        severity = labels.get("severity")
        if severity and SEVERITY_RANK[Severity(severity)] < SEVERITY_RANK[self.severity]:
            return False
        pool = labels.get("pool", "")
        if self.pools and not any(fnmatchcase(pool, pattern) for pattern in self.pools):
            return False
        return all(
            fnmatchcase(labels.get(name, ""), pattern) for name, pattern in self.labels.items()
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One entry of the file.

    Attributes:
        name: Its own, as it stands in the log, metrics and routes.
        kind: What speaks there.
        urls: Where; of several (Alertmanager) each is told. May hold a token: never shown.
        secrets: Signing secrets, routing key, bot or bearer token, apprise URLs.
        route: What it is told.
        channel: Slack channel id.
        group_s: Incidents this near that share node, rack or leaf are one case; 0: never.
        cases_per_10min: New cases beyond so many are folded into one; 0: no limit.
        digest_s: Seconds between digests of what is not urgent, None for none.
        digest_severity: Up to this severity an incident waits for the digest.
        repeat_s: Seconds between posts of alerts, or between heartbeats.
        silences: What an Alertmanager's silences are taken for here.
        timeout_s: For one attempt.
        retry_scale: Shortens waits between attempts; 1 is the schedule.
    """

    name: str
    kind: EndpointKind
    urls: tuple[str, ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    route: Route = Route()
    channel: str = ""
    group_s: float = 60.0
    cases_per_10min: int = 10
    digest_s: float | None = None
    digest_severity: Severity = Severity.WARNING
    repeat_s: float = 60.0
    silences: SilenceUse = SilenceUse.IGNORE
    timeout_s: float = 15.0
    retry_scale: float = 1.0

    @property
    def lanes(self) -> tuple[str, ...]:
        """Names of its queues: one an address, so that no replica waits for another."""
        if len(self.urls) < 2:
            return (self.name,)
        return tuple(f"{self.name}#{number}" for number in range(1, len(self.urls) + 1))

    def digests(self, labels: Mapping[str, str]) -> bool:
        """Whether an incident with these labels waits for the digest."""
        severity = labels.get("severity")
        if self.digest_s is None or not severity:
            return False
        return SEVERITY_RANK[Severity(severity)] <= SEVERITY_RANK[self.digest_severity]


@dataclass(frozen=True, slots=True)
class NotifyDocument:
    """A validated file.

    Attributes:
        endpoints: In file order.
        console_url: Where people find the console, for links; "" for none.
    """

    endpoints: tuple[Endpoint, ...] = ()
    console_url: str = ""
