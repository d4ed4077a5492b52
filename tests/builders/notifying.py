"""Planner and lanes over a real database, on a clock that a test moves, without threads."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gpuwarden_server.notifications.addresses import INSIDE, AddressGuard, parse_networks
from gpuwarden_server.notifications.document import Endpoint, NotifyDocument
from gpuwarden_server.notifications.feature import Notifications, NotifyParts
from gpuwarden_server.notifications.planning import repository as case_rows
from gpuwarden_server.notifications.planning.cases import Case, Member, Standing
from gpuwarden_server.notifications.quiet import repository as silence_rows
from gpuwarden_server.notifications.quiet.domain import Silence, SilenceKind, parse_matcher
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove, IncidentPhase
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase, Mode
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stores import place_in


@cache
def _fresh_store() -> Path:
    """An empty store, migrated once a process and then copied."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prepare_store(folder)
    return folder


class StoryClock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        """Epoch seconds."""
        return self._now

    def monotonic(self) -> float:
        """The same."""
        return self._now

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class Story:
    """What a judge would say, and what endpoints are told of it."""

    def __init__(
        self,
        folder: Path,
        *endpoints: Endpoint,
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Make one.

        Args:
            folder: Of the database.
            endpoints: Who is told.
            labels: Labels by node.
        """
        self.clock = StoryClock()
        place = place_in(folder)
        if place != folder:
            prepare_store(place)
        elif not folder.exists():
            shutil.copytree(_fresh_store(), folder)
        self._store = connect_store(place)
        self.state = self._store.state
        places = labels or {}
        self.scoring = True
        self.told = Notifications(
            NotifyDocument(endpoints, "https://console.example"),
            AddressGuard(parse_networks(",".join(INSIDE))),
            NotifyParts(
                state=self.state,
                clock=self.clock,
                registry=CollectorRegistry(),
                places=lambda node_id: {"pool": "default", **places.get(node_id, {})},
                sweep_interval_s=5.0,
                approve_path=lambda decision_id: f"/approve/{decision_id}.signed",
            ),
        )
        self._store.start()
        self.told.follow_sweeps(lambda: 0.0 if self.scoring else None)

    def close(self) -> None:
        """Close the files."""
        for lanes in self.told.lanes.values():
            for lane in lanes:
                lane.stop()
        self._store.close()

    def incident(self, number: int = 1, node: str = "", **fields: Any) -> Incident:
        """An open incident of GPU `number`."""
        node_id = node or f"node-{number}"
        values: dict[str, Any] = {
            "id": f"inc-{number:012x}",
            "entity": EntityRef(EntityKind.GPU, f"GPU-{number}", node_id),
            "fault_class": FaultClass.MEMORY,
            "severity": Severity.CRITICAL,
            "phase": IncidentPhase.OPEN,
            "why": "XID 64: row remapping failed",
            "action": RecommendedAction.REPAIR,
            "confidence": 0.97,
            "opened_at": self.clock.now(),
            "updated_at": self.clock.now(),
            "resolved_at": None,
            "boot_id": "b",
            "evidence": (),
        }
        return Incident(**(values | fields))

    def opens(self, *incidents: Incident) -> None:
        """The judge opens incidents."""
        self._write(
            [IncidentMove(one, None, "seen", "gpuwarden", self.clock.now()) for one in incidents]
        )

    def changes(self, incident: Incident, **fields: Any) -> Incident:
        """The judge, or a person, changes an incident."""
        after = replace(incident, updated_at=self.clock.now(), **fields)
        self._write([IncidentMove(after, incident.phase, "news", "gpuwarden", self.clock.now())])
        return after

    def resolves(self, incident: Incident) -> Incident:
        """The judge resolves an incident."""
        return self.changes(incident, phase=IncidentPhase.RESOLVED, resolved_at=self.clock.now())

    def advises(self, incident: Incident, phase: DecisionPhase = DecisionPhase.PROPOSED) -> None:
        """The judge advises to exclude what an incident is about, or a person has answered."""
        now = self.clock.now()
        decision = Decision(
            id="dec-00000000000a",
            entity=incident.entity,
            rung=Rung.EXCLUDE,
            phase=phase,
            mode=Mode.ADVISE,
            fault_class=incident.fault_class,
            reasons=(incident.why,),
            confidence=0.97,
            decided_by="rule",
            incident_id=incident.id,
            policy_version="p",
            model_version="",
            decided_at=now,
            expires_at=None,
        )
        before = None if phase is DecisionPhase.PROPOSED else DecisionPhase.PROPOSED
        self._write([], [DecisionMove(decision, before, "advice", "gpuwarden", now)])

    def silence(self, *matchers: str, duration_s: float = 3600.0) -> Silence:
        """A person makes a silence."""
        now = self.clock.now()
        made = Silence(
            f"sil-{int(now * 1000):012x}",
            SilenceKind.SILENCE,
            tuple(parse_matcher(text) for text in matchers),
            now,
            now + duration_s,
            "work",
            "op",
            now,
        )
        self.state.writer.call(lambda writes: silence_rows.add(writes, made))
        return made

    def passes(self, seconds: float = 0.0, step_s: float = 0.0) -> None:
        """Time passes, in steps, and all that is due is planned and sent."""
        self.run()
        left = seconds
        while left > 0:
            step = min(step_s or seconds, left)
            self.clock.move(step)
            left -= step
            self.run()

    def run(self) -> None:
        """Plan and send all that is due now."""
        self.told.planner.run_once()
        for lanes in self.told.lanes.values():
            for lane in lanes:
                lane.run_once()

    def cases(self, endpoint: str) -> Sequence[Case]:
        """Open cases of an endpoint."""
        with self.state.read() as connection:
            return case_rows.open_cases(connection, endpoint, 0.0)

    def members(self, endpoint: str, standing: Standing) -> Sequence[Member]:
        """Members of an endpoint."""
        with self.state.read() as connection:
            return case_rows.members_standing(connection, endpoint, [standing])

    def _write(self, moves: Sequence[IncidentMove], decisions: Sequence[DecisionMove] = ()) -> None:
        outbox = self.told.outbox
        assert outbox is not None
        self.state.writer.call(lambda writes: outbox.write_facts(writes, moves, decisions))
