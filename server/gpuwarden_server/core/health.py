"""/healthz, /readyz, /metrics: the truth about this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.meters import Meters

Probe = Callable[[], str | None]
"""None where the part works, else why not."""

# /readyz is open to everybody, so its probes, which write, run at most this often.
PROBE_INTERVAL_S = 1.0


class HealthBoard:
    """Named probes of the server's parts.

    Attributes:
        stand_by: Why this server does not do its work since another one leads; None where it leads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._probes: dict[str, Probe] = {}
        self._notes: dict[str, Probe] = {}
        self.stand_by: Probe = _leads
        self._lock = Lock()
        self._probed_at = float("-inf")
        self._reasons: dict[str, str] = {}

    def add_probe(self, part: str, probe: Probe) -> None:
        """Register a part that must work for the server to be ready."""
        self._probes[part] = probe

    def add_note(self, part: str, probe: Probe) -> None:
        """Register a part without which the server works, with less; /readyz says what is less."""
        self._notes[part] = probe

    def notes(self) -> Mapping[str, str]:
        """What works with less than it could, by part."""
        answers = {part: probe() for part, probe in self._notes.items()}
        return {part: why for part, why in answers.items() if why is not None}

    def reasons(self) -> Mapping[str, str]:
        """Why the server is not ready, by part; empty when it is."""
        with self._lock:
            if self._clock.monotonic() - self._probed_at >= PROBE_INTERVAL_S:
                answers = {part: probe() for part, probe in self._probes.items()}
                self._reasons = {part: why for part, why in answers.items() if why is not None}
                self._probed_at = self._clock.monotonic()
            return dict(self._reasons)


class AliveView(BaseModel):
    """The process answers."""

    state: Literal["alive"]


class ReadyView(BaseModel):
    """Whether every part works."""

    state: Literal["ready", "not_ready", "stand_by"]
    reasons: dict[str, str] = Field(description="why not, by part; empty when ready", examples=[{}])
    notes: dict[str, str] = Field(
        description="what works with less than it could, by part",
        examples=[{"model": "no model is loaded: rules judge alone"}],
    )


def _leads() -> str | None:
    """Nobody else can lead."""
    return None


def health_router(board: HealthBoard, meters: Meters) -> APIRouter:
    """Routes that need no key."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="The process answers")
    async def healthz() -> AliveView:
        return AliveView(state="alive")

    @router.get(
        "/readyz",
        summary="Every part works; 503 names those that do not",
        responses={503: {"model": ReadyView, "description": "Not ready; the reasons say why."}},
    )
    def readyz(response: Response) -> ReadyView:
        if (why := board.stand_by()) is not None:  # parts that do not run are not asked
            response.status_code = 503
            return ReadyView(state="stand_by", reasons={"lease": why}, notes={})
        reasons = dict(board.reasons())
        if reasons:
            response.status_code = 503
        return ReadyView(
            state="not_ready" if reasons else "ready", reasons=reasons, notes=dict(board.notes())
        )

    @router.get(
        "/metrics",
        summary="Prometheus metrics of the server itself",
        response_class=PlainTextResponse,
    )
    def metrics() -> Response:
        body, content_type = meters.exposition()
        return Response(body, media_type=content_type)

    return router
