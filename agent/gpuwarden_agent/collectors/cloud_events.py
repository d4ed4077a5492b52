"""What the cloud says that it will do to this node: maintenance, reboots, the end of a spot lease.

All that is announced now goes into one event, told at start, when it changes, and each hour while
there is any: the server makes planned leaves of it, and ends those that are announced no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, assert_never

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import CollectorError, Harvest, Notice
from gpuwarden_agent.setting_values import Cloud
from gpuwarden_agent.sources.cloud_answers import (
    MOST_EVENTS,
    Announced,
    Answer,
    parse_azure,
    parse_rebalance,
    parse_scheduled,
    parse_spot,
)
from gpuwarden_agent.sources.cloud_service import MOST_BODY_BYTES, CloudService, CloudUnanswered
from gpuwarden_agent.transport.http_exchange import HttpAnswer
from gpuwarden_wire.events import Event, EventKind

RETELL_S = 3600.0
"""What is announced is told again so often: a server that lost sight of it catches up."""
LOOK_DEADLINE_S = 5.0
_ROOM_S = 2.0

_TOKEN_LASTS_S = 21_600
_TOKEN_RENEW_S = 10_800.0
_AZURE_HEADERS = {"Metadata": "true"}
_AZURE_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_AZURE_NAME = "/metadata/instance/compute/name?api-version=2020-06-01&format=text"
_AWS_PATHS: tuple[tuple[str, Callable[[bytes], Answer]], ...] = (
    ("events/maintenance/scheduled", parse_scheduled),
    ("spot/instance-action", parse_spot),
    ("events/recommendations/rebalance", parse_rebalance),
)


class _Cloud(Protocol):
    def look(self) -> tuple[tuple[Announced, ...], dict[str, str]]:
        """What is announced, and by path what was not understood.

        Raises:
            CloudUnanswered: Nothing can be learnt.
        """
        ...


class AwsCloud:
    """Instance metadata of AWS, version 2: a token first. Version 1 is not spoken to."""

    def __init__(self, service: CloudService, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._token = ""
        self._token_at = 0.0

    def look(self) -> tuple[tuple[Announced, ...], dict[str, str]]:
        """As `_Cloud` says; a path that is not there has nothing to say."""
        self._service.begin()
        if not self._token or self._clock() - self._token_at >= _TOKEN_RENEW_S:
            self._renew_token()
        events: list[Announced] = []
        faults: dict[str, str] = {}
        for path, parse in _AWS_PATHS:
            answer = self._get(f"/latest/meta-data/{path}")
            if answer.status_code == 404:
                continue
            found = Answer(faults=(fault,)) if (fault := _fault(answer)) else parse(answer.body)
            events += found.events
            if found.faults:
                faults[path] = "; ".join(found.faults)
        return tuple(events), faults

    def _get(self, target: str) -> HttpAnswer:
        for _ in range(2):
            headers = {"X-aws-ec2-metadata-token": self._token}
            answer = self._service.ask("GET", target, headers)
            if answer.status_code != 401:
                break
            self._renew_token()
        return answer

    def _renew_token(self) -> None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LASTS_S)}
        answer = self._service.ask("PUT", "/latest/api/token", headers)
        token = answer.body.decode("ascii", "replace").strip()
        if answer.status_code != 200 or not token.isprintable() or not 0 < len(token) <= 1024:
            raise CloudUnanswered(
                "cloud_gives_no_token",
                f"{self._service.url}/latest/api/token answers {answer.status_code}: this is no "
                "AWS metadata service, or its version 2 is off.",
            )
        self._token, self._token_at = token, self._clock()


class AzureCloud:
    """Scheduled Events of Azure."""

    def __init__(self, service: CloudService) -> None:
        self._service = service
        self._name = ""

    def look(self) -> tuple[tuple[Announced, ...], dict[str, str]]:
        """As `_Cloud` says."""
        self._service.begin()
        if not self._name:
            self._name = self._own_name()
        found = parse_azure(self._get(_AZURE_EVENTS).body, self._name)
        faults = {"scheduledevents": "; ".join(found.faults)} if found.faults else {}
        return found.events, faults

    def _own_name(self) -> str:
        name = self._get(_AZURE_NAME).body.decode("utf-8", "replace").strip()
        if not name.isprintable() or not 0 < len(name) <= 255:
            raise CloudUnanswered(
                "cloud_gives_no_name", f"{self._service.url} names this machine {name[:40]!r}."
            )
        return name

    def _get(self, target: str) -> HttpAnswer:
        answer = self._service.ask("GET", target, _AZURE_HEADERS)
        if fault := _fault(answer):
            raise CloudUnanswered(
                "cloud_refuses", f"{self._service.url}{target.partition('?')[0]}: {fault}."
            )
        return answer


class CloudEventCollector:
    """Looks at what is announced; where that is not all understood, nothing is taken back.

    Args:
        provider: aws or azure.
        cloud: Asks it.
        interval_s: Cadence, seconds.
        boot_id: Present boot; part of event ids.
        clock: Monotonic seconds.
    """

    name = "cloud_events"
    deadline_s = LOOK_DEADLINE_S + _ROOM_S

    def __init__(
        self,
        provider: Cloud,
        cloud: _Cloud,
        interval_s: float,
        boot_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self._provider = provider
        self._cloud = cloud
        self._boot_id = boot_id
        self._clock = clock
        self._told: tuple[tuple[Announced, ...], bool] | None = None
        self._missed: frozenset[str] = frozenset()
        self._told_at = 0.0

    def collect(self, now: float) -> Harvest:
        """Look once; `now` is epoch seconds."""
        try:
            events, faults = self._cloud.look()
        except CloudUnanswered as error:
            raise CollectorError(error.reason, error.mend) from error
        events += self._kept(events, whole=not faults)
        seen = tuple(sorted(events, key=lambda one: one.id)[:MOST_EVENTS]), not faults
        told = self._event(*seen, now) if self._is_news(seen) else None
        return Harvest(
            events=() if told is None else (told,),
            notices={f"cloud_events:{path}": _notice(said) for path, said in faults.items()},
        )

    def close(self) -> None:
        """Nothing is held."""

    def _kept(self, events: tuple[Announced, ...], *, whole: bool) -> tuple[Announced, ...]:
        """What was told and is not listed now: over only when a second whole look lacks it too."""
        ids = {one.id for one in events}
        told = () if self._told is None else self._told[0]
        gone = tuple(one for one in told if one.id not in ids)
        over = self._missed if whole else frozenset()
        self._missed = frozenset(one.id for one in gone) if whole else frozenset()
        return tuple(one for one in gone if one.id not in over)

    def _is_news(self, seen: tuple[tuple[Announced, ...], bool]) -> bool:
        again = bool(seen[0]) and self._clock() - self._told_at >= RETELL_S
        if seen == self._told and not again:
            return False
        self._told, self._told_at = seen, self._clock()
        return True

    def _event(self, events: tuple[Announced, ...], complete: bool, now: float) -> Event:
        since_boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        words = "; ".join(f"{one.code} ({one.id}) {_when(one)}" for one in events)
        return Event(
            id=f"{EventKind.CLOUD_EVENTS}:{self._boot_id}:{self._provider}:{since_boot}",
            kind=EventKind.CLOUD_EVENTS,
            observed_at=now,
            severity="warning" if events else "info",
            text=f"{self._provider} announces {words or 'nothing'}"[:1000],
            attributes={
                "provider": self._provider.value,
                "complete": complete,
                "ids": [one.id for one in events],
                "codes": [one.code for one in events],
                "not_before": [one.not_before for one in events],
                "texts": [one.text for one in events],
            },
        )


def build(context: CollectorContext) -> CloudEventCollector | None:
    """The collector as the settings want it; None where they name no cloud."""
    settings = context.settings
    if settings.cloud_events is None:
        return None
    service = CloudService(settings.cloud_events_url, LOOK_DEADLINE_S)
    match settings.cloud_events:
        case Cloud.AWS:
            cloud: _Cloud = AwsCloud(service)
        case Cloud.AZURE:
            cloud = AzureCloud(service)
        case other:
            assert_never(other)
    return CloudEventCollector(
        settings.cloud_events, cloud, settings.cloud_events_interval_s, context.boot_id
    )


def _fault(answer: HttpAnswer) -> str:
    if answer.status_code != 200:
        return f"answers {answer.status_code}"
    return f"more than {MOST_BODY_BYTES} bytes" if len(answer.body) > MOST_BODY_BYTES else ""


def _notice(said: str) -> Notice:
    return Notice(
        "cloud_answer_not_understood",
        f"{said[:300]}. What is understood is told; nothing that was told is taken back meanwhile.",
    )


def _when(one: Announced) -> str:
    if one.not_before is None:
        return "now"
    return "from " + time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.not_before))
