"""POST /v1/alerts/alertmanager and POST /v1/events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.principals import Principal, Role
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.doors.job_ends import JobEndDoor
from gpuwarden_server.doors.meters import DoorMeters
from gpuwarden_server.doors.naming import gpu_of, node_of, slot_of
from gpuwarden_server.doors.outside import (
    RENEW_S,
    About,
    Condition,
    Saying,
    condition_of,
    derived_id,
    find,
)
from gpuwarden_server.doors.schemas import (
    AlertBody,
    AlertsBody,
    EventBody,
    EventsBody,
    ItemsView,
    ItemView,
    JobEndBody,
)
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.entities import Contact

_MAY_END_REPAIRS = frozenset({Role.OPERATOR, Role.ADMIN})


_Said = Saying | JobEndBody | ProblemError


@dataclass(frozen=True, slots=True)
class OutsideParts:
    """What the JSON doors work with.

    Attributes:
        service: Stores events.
        directory: Nodes and GPUs.
        facts: Who is retired.
        clock: Time.
        meters: Figures.
        node_labels: Labels that name a node, in this order.
        future_tolerance_s: How far times may be ahead of the server's clock.
        job_ends: Takes ends of jobs.
    """

    service: IngestService
    directory: FleetDirectory
    facts: FleetFacts
    clock: Clock
    meters: DoorMeters
    node_labels: tuple[str, ...]
    future_tolerance_s: float
    job_ends: JobEndDoor


def outside_router(parts: OutsideParts) -> APIRouter:
    """Routes of alerts and events from outside."""
    router = APIRouter(prefix="/v1", tags=["doors"])

    @router.post("/alerts/alertmanager", summary="Take alerts of Alertmanager's webhook")
    async def take_alerts(body: AlertsBody, caller: Caller) -> ItemsView:
        now = parts.clock.now()
        sayings = [_said_by_alert(alert, parts.node_labels, now) for alert in body.alerts]
        return await _take("alertmanager", parts, sayings, caller)

    @router.post("/events", summary="Take events: what checks and others have seen, ends of jobs")
    async def take_events(body: EventsBody, caller: Caller) -> ItemsView:
        now = parts.clock.now()
        said = [*(_said_by_event(one, now) for one in body.events), *body.job_ends]
        return await _take("events", parts, said, caller)

    return router


async def _take(
    door: str, parts: OutsideParts, said: Iterable[_Said], caller: Principal
) -> ItemsView:
    items = []
    for index, one in enumerate(said):
        item = await _take_one(index, one, parts, caller)
        parts.meters.items.labels(door, item.outcome).inc()
        items.append(item)
    return ItemsView.of(items)


async def _take_one(index: int, saying: _Said, parts: OutsideParts, caller: Principal) -> ItemView:
    try:
        if isinstance(saying, ProblemError):
            raise saying
        if isinstance(saying, JobEndBody):
            return await parts.job_ends.take(index, saying, caller)
        named = parts.service.present_name(saying.about.node_id)
        about = find(replace(saying.about, node_id=named), parts.directory)
        _check(saying, about, parts, caller)
        event = saying.event(about)
        is_news = await parts.service.tell(about.node_id, event)
    except ProblemError as error:
        if error.retryable:
            raise
        return ItemView(
            index=index, outcome="refused", code=error.code, detail=error.detail, mend=error.mend
        )
    return ItemView(
        index=index,
        outcome="stored" if is_news else "duplicate",
        event_id=event.id,
        node_id=about.node_id,
    )


def _check(saying: Saying, about: About, parts: OutsideParts, caller: Principal) -> None:
    caller.require_nodes([about.node_id])
    if saying.at > parts.clock.now() + parts.future_tolerance_s:
        raise ProblemError(
            422,
            "in_future",
            f"observed_at {saying.at:.0f} is ahead of the server's clock",
            "Send epoch seconds (not milliseconds) of a clock that is kept by NTP.",
        )
    if parts.facts.contact_of(about.node_id) is Contact.RETIRED:
        raise ProblemError(
            422,
            "node_retired",
            f"node {about.node_id!r} is retired",
            "It comes back when its own agent, or remote write, sends again.",
        )
    if saying.proves_repair and caller.role not in _MAY_END_REPAIRS:
        raise ProblemError(
            403,
            "role_not_allowed",
            f"role {caller.role} may not say that a repair has ended",
            "Use a key of role operator, or leave proves_repair out.",
        )


def _said_by_alert(alert: AlertBody, node_labels: tuple[str, ...], now: float) -> Saying:
    labels, started = alert.labels, alert.startsAt.timestamp()
    fingerprint = alert.fingerprint or derived_id(sorted(labels.items()))
    named = labels.get("alertname", "alert")
    is_firing = alert.status == "firing"
    turn = max(0, int((now - started) / RENEW_S)) if is_firing else 0
    index = labels.get("gpu", "")
    texts = (alert.annotations.get(name, "") for name in ("summary", "description", "message"))
    return Saying(
        id=f"{fingerprint}:{started:.3f}:{alert.status}:{turn}",
        told_by="alertmanager",
        about=About(
            node_id=node_of(labels, node_labels),
            gpu_uuid=gpu_of(labels),
            pci_bus_id=slot_of(labels),
            gpu_index=int(index) if index.isdecimal() and len(index) < 4 else None,
        ),
        # Alerts of one name may speak of several things of a GPU: each ends its own.
        name=f"{named[:31]}/{fingerprint[:8]}",
        condition=condition_of(labels.get("severity", "")) if is_firing else Condition.OK,
        at=now,  # it holds, or has ended, now: its own times are of when it began and ended
        text=next((text for text in texts if text), named),
        attributes={"alert": named[:200], "started_at": started, "from": alert.generatorURL[:300]},
    )


def _said_by_event(event: EventBody, now: float) -> Saying | ProblemError:
    about = About(
        node_id=event.node or "",
        gpu_uuid=gpu_of({"gpu_uuid": event.gpu_uuid or ""}) or event.gpu_uuid or "",
        pci_bus_id=slot_of({"pci_bus_id": event.pci_bus_id or ""}) or event.pci_bus_id or "",
        gpu_index=event.gpu_index,
        nic=event.nic or "",
        disk=event.disk or "",
        mount=event.mount or "",
    )
    if event.id is None and event.observed_at is None:
        return ProblemError(
            422,
            "no_identity",
            "neither id nor observed_at: the same event sent again could not be told from another",
            "Give observed_at (epoch seconds), or an id of your own.",
        )
    said: tuple[Any, ...] = (event.name, event.state.value, event.observed_at, event.text)
    return Saying(
        id=event.id or derived_id(*said, *_named(about)),
        told_by="event",
        about=about,
        name=event.name,
        condition=event.state,
        at=now if event.observed_at is None else event.observed_at,
        text=event.text,
        fault_class=event.fault_class.value if event.fault_class else "",
        proves_repair=event.proves_repair,
    )


def _named(about: About) -> tuple[object, ...]:
    return (
        *(about.node_id, about.gpu_uuid, about.pci_bus_id, about.gpu_index),
        *(about.nic, about.disk, about.mount),
    )
