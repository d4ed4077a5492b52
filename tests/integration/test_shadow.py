"""Models in shadow on a running server: tried, tallied, kept over restarts, told to the gate."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarden_server.incidents.repository import write_incidents
from gpuwarden_server.learning.shadow.backtests import taught_by
from gpuwarden_server.learning.shadow.book import ShadowBook
from gpuwarden_server.learning.shadow.domain import Opinion, Outcome, Role, TriedModel
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.store.versions import prepare_store
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.incidents.domain import IncidentPhase
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import incident, item
from tests.builders.feed import get, quick_settings
from tests.builders.models import digest_of, version_files
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until
from tests.builders.simulated import shipped_files, shipped_model
from tests.builders.stores import place_in
from tests.builders.verdict import gpu_ref
from tests.fakes.clock import MovedClock

BOTH_STORES = True
WHY = {"reason": "is it better?"}
DAY_S = 86_400.0
TRIED = TriedModel(EntityKind.GPU, "v1", "abc", 0.8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: object) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("shadow"), Mode.ADVISE)) as running:
        yield running


def feed(server: Running, name: str) -> Feeder:
    """A node with two GPUs that report."""
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(number, name) for number in range(2)])
    table, schema = gpu_table({f"GPU-{name}-{n}": (50.0, 300.0, 1.0) for n in range(2)})
    node.telemetry([table], [schema])
    return node


def challenge(server: Running, version: str) -> None:
    told = [
        {"name": name, "content": base64.b64encode(content).decode()}
        for name, content in version_files(version, offset=0.2).items()
    ]
    server.admin.post("/v1/models", json={"files": told, **WHY}).raise_for_status()
    body = {"version": version, **WHY}
    server.admin.post("/v1/models/gpu/challenger", json=body).raise_for_status()


def stand(server: Running, role: str) -> dict[str, Any]:
    found = get(server, "/v1/shadow")["items"]
    return next((one for one in found if (one["kind"], one["role"]) == ("gpu", role)), {})


@pytest.mark.postgres
def test_both_models_are_tried_and_the_gate_says_what_is_missing(server: Running) -> None:
    node = feed(server, "tried")
    challenge(server, "gpu-tried")
    for role in ("promoted", "challenger"):
        wait_until(lambda role=role: stand(server, role).get("healthy_days"), role, 60.0)
        found = stand(server, role)
        assert (found["would_exclude"], found["bound_per_day"] > 1.0) == (0, True)
        said = " ".join(found["missing"])
        assert "score_may_exclude is false" in said
        assert ("challenger" in said) is (role == "challenger")
    assert server.figure("gpuwarden_challenger_duration_seconds_count") >= 1
    wait_until(lambda: stand(server, "promoted")["trials"], "a trial is recorded", 60.0)
    days = "gpuwarden_shadow_healthy_days"
    wait_until(lambda: server.figure(days, kind="gpu", role="promoted") > 0, "its figure", 60.0)
    assert server.figure("gpuwarden_learning_failures_total") == 0
    gate = get(server, "/v1/gpus/GPU-tried-0/why")["gate"]
    assert any("bounds false exclusions" in line for line in gate["missing"])
    node.close()


@pytest.mark.postgres
def test_a_backtest_of_this_fleet_is_recorded_and_the_gate_goes_by_it(server: Running) -> None:
    version = shipped_model().version
    body = {
        "version": version,
        "digest": digest_of(shipped_files()),
        "recording_digest": "",
        "healthy_days": 60_000.0,
        "false_actions": 0,
        "exclude_confidence": 0.8,
        "origin": "",
        **WHY,
        "entities": ["GPU-tried-0", "GPU-tried-1"],
    }
    path = "/v1/models/gpu/trials"
    told = server.admin.post(path, json=body).raise_for_status().json()
    assert told["bound_per_day"] == pytest.approx(3.0 / 60_000.0, rel=0.01)
    trials = {one["trial"]: one for one in stand(server, "promoted")["trials"]}
    assert trials["backtest"]["healthy_days"] == 60_000.0
    assert trials["backtest"]["digest"] == trials["shadow"]["digest"] == body["digest"]
    wait_until(
        lambda: not any("bounds false" in line for line in gate_lines(server)), "the gate", 60.0
    )
    assert any("score_may_exclude" in line for line in gate_lines(server))
    mild = {**body, "exclude_confidence": 0.95}
    server.admin.post(path, json=mild).raise_for_status()
    wait_until(
        lambda: any("from a confidence of 0.95 on" in line for line in gate_lines(server)),
        "the gate asks for a lower limit",
        60.0,
    )
    unknown = server.admin.post(path, json={**body, "version": "gpu-none"})
    assert unknown.status_code == 404
    lesson = next(iter(taught_by(shipped_files())))
    for wrong in (
        {"digest": "0" * 64},
        {"origin": "simulated"},
        {"recording_digest": lesson},
        {"entities": ["GPU-elsewhere"]},
    ):
        refused = server.admin.post(path, json={**body, **wrong})
        assert (refused.status_code, refused.json()["code"]) == (409, "trial_refused"), wrong


def gate_lines(server: Running) -> list[str]:
    found: list[str] = get(server, "/v1/nodes/tried/why")["gate"]["missing"]
    return found


@pytest.mark.postgres
def test_features_are_kept_as_they_served(server: Running) -> None:
    columns = FEATURE_SETS[EntityKind.GPU]
    wait_until(lambda: get(server, "/v1/feature-rows")["items"], "rows", 60.0)
    page = get(server, "/v1/feature-rows", schema=columns.schema_hash, limit=1)
    row = page["items"][0]
    assert (row["why"], row["node_id"], row["share"]) == ("healthy", "tried", 1.0)
    assert row["model_version"] == shipped_model().version
    values = np.frombuffer(base64.b64decode(row["values"]), "<f4")
    assert values.shape == (len(columns),)
    assert np.isfinite(values).any()
    after = get(server, "/v1/feature-rows", after=page["next_after"])["items"]
    assert all(one["row"] > row["row"] for one in after)
    assert get(server, "/v1/feature-rows", schema="0" * 16)["items"] == []
    assert server.figure("gpuwarden_feature_rows_total", why="healthy") >= 1
    with server.client(server.mint("runtime")) as runtime:
        assert runtime.get("/v1/feature-rows").status_code == 403


@pytest.mark.postgres
def test_would_be_exclusions_are_stored_tallied_and_outlive_a_restart(tmp_path: Path) -> None:
    """The book over a real database, since a score that is wrong on purpose is hard to come by."""
    clock = MovedClock()
    place = place_in(tmp_path / "state")
    prepare_store(place)
    store = connect_store(place)
    store.start()
    try:
        right, wrong, waits = (gpu_ref(0, number) for number in range(3))
        book = ShadowBook(store.state, clock)
        for _ in range(2):
            says = [Opinion(ref, 0.9, "memory", ("counters", "peers")) for ref in (right, wrong)]
            book.look(TRIED, Role.PROMOTED, says, 100, clock.now())
            clock.ahead += 60.0
        book.save()
        since = clock.now()
        failed = replace(
            incident(right, item(first_at=since)),
            opened_at=since,
            phase=IncidentPhase.RESOLVED,
            resolved_at=since + 60.0,
        )
        store.state.writer.call(lambda connection: write_incidents(connection, [failed]))
        clock.ahead += 2 * DAY_S
        again = ShadowBook(store.state, clock)
        again.load()
        says = [Opinion(waits, 0.8, "bus", ("counters", "events"))]
        again.look(TRIED, Role.CHALLENGER, says, 100, clock.now())
        again.save()
        told = again.told((EntityKind.GPU, "v1"), DAY_S, 10)
        assert told is not None
        outcomes = {one.entity: outcome for one, outcome in told.newest}
        assert outcomes == {
            right: Outcome.NEEDED,
            wrong: Outcome.FALSE,
            waits: Outcome.PENDING,
        }
        assert (told.tally.needed, told.tally.false, told.tally.unsettled) == (1, 1, 1)
        assert told.run.healthy_days == pytest.approx(100 * 60.0 / DAY_S, rel=0.01)
        ended = {one.entity: one.until for one, _ in told.newest}
        assert ended[waits] is None and ended[right] is not None
        again.keep_trial(EntityKind.GPU, told)
        (trial,) = again.trials((EntityKind.GPU, "v1")).values()
        assert (trial.false_actions, trial.exclude_confidence) == (2, 0.8)
        lower = replace(TRIED, exclude_confidence=0.5)
        again.look(lower, Role.PROMOTED, [], 100, clock.now())
        again.save()
        anew = again.told((EntityKind.GPU, "v1"), DAY_S, 10)
        assert anew is not None
        assert (anew.run.healthy_days, anew.run.exclude_confidence, anew.newest) == (0.0, 0.5, ())
        store.state.writer.call(lambda c: again.forget(c, (EntityKind.GPU, "v1")))
        again.save()
        assert again.trials((EntityKind.GPU, "v1")) == {}
        once_more = ShadowBook(store.state, clock)
        once_more.load()
        assert once_more.run_of((EntityKind.GPU, "v1")) is None
    finally:
        store.close()
